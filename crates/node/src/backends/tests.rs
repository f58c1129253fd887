//! Which backend serves a visitor, and when a visitor waits.

use std::sync::Mutex;

use proto::control::ServiceTerms;
use proto::{Balance, Hop, Network, Target, Visitors};

use super::*;
use crate::health::SLOW_START;

fn aim(name: &str) -> Aim {
    let visitors = Visitors {
        deny_from: [Network::new([192, 0, 2, 0].into(), 24).unwrap()].into(),
        ..Visitors::default()
    };
    Aim {
        name: name.into(),
        target: Target::Service(name.into()),
        terms: ServiceTerms { visitors, ..ServiceTerms::default() },
        rules: None,
        proxy: None,
    }
}

fn backends(session: &Arc<Session>) -> Backends {
    Backends::new(aim("web"), session, Gate::new(None))
}

fn visitor(ip: [u8; 4]) -> Option<SocketAddr> {
    Some((ip, 1).into())
}

#[test]
fn a_visitor_is_served_or_waits_or_is_refused() {
    let backends = backends(&Session::new("home", 1));
    let good = visitor([198, 51, 100, 1]);
    for peer in [good, None] {
        assert!(matches!(backends.pick(peer, &[], None, |_| true), Pick::To(_)));
        assert!(matches!(backends.pick(peer, &[], None, |_| false), Pick::Wait));
    }
    let bad = backends.pick(visitor([192, 0, 2, 7]), &[], None, |_| true);
    assert!(matches!(bad, Pick::Refuse(Answer::Forbidden)));
}

#[test]
fn a_backend_that_opened_no_stream_is_tried_once() {
    let session = Session::new("home", 1);
    let backends = backends(&session);
    let picked = Arc::clone(&backends.first().picked);
    let tried = [Tried { picked, why: ResetCode::Limit, is_counted: false }];
    let again = backends.pick(None, &tried, None, |_| true);
    assert!(matches!(again, Pick::Refuse(Answer::Down(ResetCode::Limit))));
    // Another process of the client is another backend.
    backends.lead_to(&[Session::new("home", 1)]);
    assert!(matches!(backends.pick(None, &tried, None, |_| true), Pick::To(_)));
}

#[test]
fn of_several_servers_the_first_that_answers_serves() {
    let [first, second] = ["a", "b"].map(|name| Session::new(name, 1));
    let backends = backends(&first);
    backends.lead_to(&[Arc::clone(&first), Arc::clone(&second)]);
    let served = |tried: &[Tried]| match backends.pick(None, tried, None, |_| true) {
        Pick::To(backend) => Some(backend.session.id),
        Pick::Wait | Pick::Here(_) | Pick::Elsewhere(_) | Pick::Refuse(_) => None,
    };
    assert!(matches!(backends.pick(None, &[], None, |_| true), Pick::Wait));
    second.set_live(0, true);
    assert_eq!(served(&[]), Some(second.id));
    first.set_live(0, true);
    assert_eq!(served(&[]), Some(first.id));
    first.set_answers(0, false);
    assert_eq!(served(&[]), Some(second.id), "the first is silent");
    first.set_answers(0, true);
    let picked = Arc::clone(&backends.first().picked);
    let tried = |why| [Tried { picked: Arc::clone(&picked), why, is_counted: false }];
    assert_eq!(served(&tried(ResetCode::Shutdown)), Some(second.id), "the link ended");
    assert_eq!(served(&tried(ResetCode::Timeout)), Some(second.id), "the link is silent");
    assert_eq!(served(&tried(ResetCode::Refused)), None, "the target has refused");
    // The order changes, and what was tried stays known.
    backends.lead_to(&[Arc::clone(&second), Arc::clone(&first)]);
    assert_eq!(served(&[]), Some(second.id));
    backends.lead_to(std::slice::from_ref(&first));
    assert!(!backends.is_shared());
    assert_eq!(served(&[]), Some(first.id));
    backends.lead_to(&[]);
    assert_eq!(served(&[]), Some(first.id), "an entrance keeps its last server");
}

#[test]
fn a_visitor_of_a_process_that_is_gone_goes_to_the_other_process_of_the_client() {
    let [session, other] = [(); 2].map(|()| Session::new("home", 1));
    let backends = backends(&session);
    let picked = Arc::clone(&backends.first().picked);
    let tried = |why| [Tried { picked: Arc::clone(&picked), why, is_counted: false }];
    let over = tried(ResetCode::Shutdown);
    let pick = |tried: &[Tried]| backends.pick(None, tried, None, |_| true);
    let (good, bad) = (visitor([198, 51, 100, 1]), visitor([192, 0, 2, 7]));
    assert!(!backends.have_others());
    assert!(matches!(pick(&over), Pick::Refuse(Answer::Down(ResetCode::Shutdown))));
    session.set_beside(true);
    assert!(backends.have_others() && !backends.are_served_beside(session.id, good));
    // The address of the ended process will be taken over by the other process.
    assert!(matches!(pick(&over), Pick::Wait));
    assert!(matches!(pick(&tried(ResetCode::Refused)), Pick::Refuse(_)));
    session.set_live(0, true);
    assert!(matches!(pick(&over), Pick::Refuse(_)));
    backends.lead_to(&[Arc::clone(&other)]);
    assert!(!backends.are_served_beside(session.id, good), "the other one does not answer");
    other.set_live(0, true);
    assert!(backends.are_served_beside(session.id, good));
    assert!(!backends.are_served_beside(session.id, bad));
    assert!(!backends.are_served_beside(other.id, good));
    assert!(matches!(pick(&over), Pick::To(_)));
}

#[test]
fn what_was_picked_stays_what_it_was() {
    let backends = backends(&Session::new("home", 1));
    let (picked, edition) = (Arc::clone(&backends.first().picked), backends.edition());
    let other = Session::new("office", 1);
    backends.lead_to(&[Arc::clone(&other)]);
    backends.set_aim(aim("files"));
    assert_eq!((picked.client.as_str(), picked.aim.name.as_str()), ("home", "web"));
    let now = backends.first();
    assert_eq!((now.picked.client.as_str(), now.picked.aim.name.as_str()), ("office", "files"));
    assert_eq!(now.session.id, other.id);
    assert_ne!(backends.edition(), edition);
}

/// Records the calls of backends.
#[derive(Debug, Default)]
struct Calls {
    moved: Mutex<Vec<Hop>>,
    awaited: AtomicU64,
}

impl Locator for Calls {
    fn moved(&self, hop: &Hop, _: u64) {
        self.moved.lock().unwrap().push(hop.clone());
    }

    fn awaited(&self) {
        self.awaited.fetch_add(1, Ordering::Relaxed);
    }

    fn is_away(&self) -> bool {
        false
    }
}

/// The target of a client at another node, found by a record of this number.
fn hop(generation: u64) -> Hop {
    let (client, service) = ("home".parse().unwrap(), "web".parse().unwrap());
    Hop { client, instance: 1, generation, service, claim: 1, mark: None, visitor: None }
}

#[test]
fn a_visitor_follows_a_client_to_another_node() {
    let aim = |generation| Aim { target: Target::Hop(hop(generation)), ..aim("web") };
    let [one, two] = ["node:a", "node:b"].map(live);
    let calls = Arc::new(Calls::default());
    let locator = Arc::clone(&calls) as Arc<dyn Locator>;
    let backends = Backends::at_other_nodes(aim(5), &one, Gate::new(None), locator);
    assert!(backends.have_others() && backends.are_at_other_nodes());
    let (picked, edition) = (Arc::clone(&backends.first().picked), backends.edition());
    assert_eq!(picked.client, "home", "the session is that of a node");
    let tried =
        |why, count| vec![Tried { picked: Arc::clone(&picked), why, is_counted: false }; count];
    // The target of the client has refused: the client is there.
    backends.note_refusal(&picked, ResetCode::Refused);
    assert!(calls.moved.lock().unwrap().is_empty());
    backends.note_refusal(&picked, ResetCode::Moved);
    assert_eq!(*calls.moved.lock().unwrap(), [hop(5)]);
    let moved = tried(ResetCode::Moved, 1);
    backends.lead_to(&[Session::new("", 1)]);
    assert!(matches!(backends.pick(None, &moved, None, |_| false), Pick::Wait));
    backends.demand(0);
    assert_eq!(calls.awaited.load(Ordering::Relaxed), 1);
    backends.replace(&two, aim(6), None);
    assert_eq!(backends.edition(), edition, "the visitor was admitted under the same terms");
    let to = |tried: &[Tried]| match backends.pick(None, tried, None, |_| true) {
        Pick::To(backend) => backend.session.id,
        other @ (Pick::Here(_) | Pick::Elsewhere(_) | Pick::Wait | Pick::Refuse(_)) => {
            panic!("{other:?}")
        }
    };
    assert_eq!(to(&moved), two.id);
    // Of two homes the second serves if the link to the first is lost.
    backends.lead_to(&[Arc::clone(&two), Arc::clone(&one)]);
    let now = Arc::clone(&backends.first().picked);
    let lost = [Tried { picked: now, why: ResetCode::Shutdown, is_counted: false }];
    assert_eq!((to(&[]), to(&lost)), (two.id, one.id));
    let often = tried(ResetCode::Moved, 4);
    assert!(matches!(backends.pick(None, &often, None, |_| true), Pick::Refuse(_)));
}

#[test]
fn a_visitor_of_a_lost_node_waits_until_the_client_is_found() {
    let session = Session::new("node:a", 1);
    let locator = Arc::new(Calls::default());
    let aim = Aim { target: Target::Hop(hop(1)), ..aim("web") };
    let backends = Backends::at_other_nodes(aim, &session, Gate::new(None), locator);
    let picked = Arc::clone(&backends.first().picked);
    let lost = [Tried { picked, why: ResetCode::Shutdown, is_counted: false }];
    assert!(matches!(backends.pick(None, &lost, None, |_| false), Pick::Wait));
}

#[test]
fn a_visitor_leaves_a_silent_node_and_comes_back_when_the_node_answers() {
    let [one, two] = ["node:a", "node:b"].map(live);
    let locator = Arc::new(Calls::default());
    let aim = Aim { target: Target::Hop(hop(1)), ..aim("web") };
    let backends = Backends::at_other_nodes(aim, &one, Gate::new(None), locator);
    let picked = Arc::clone(&backends.first().picked);
    assert!(backends.had_better_leave(one.id, None));
    one.set_answers(0, false);
    let left = |count| {
        let picked = Arc::clone(&picked);
        vec![Tried { picked, why: ResetCode::Timeout, is_counted: false }; count]
    };
    let waits = |tried: &[Tried]| match backends.pick(None, tried, None, |_| true) {
        Pick::Wait => true,
        Pick::To(_) => false,
        other @ (Pick::Here(_) | Pick::Elsewhere(_) | Pick::Refuse(_)) => panic!("{other:?}"),
    };
    assert!(waits(&[]) && waits(&left(1)));
    one.set_answers(0, true);
    assert!(!waits(&[]) && !waits(&left(1)));
    let often = backends.pick(None, &left(4), None, |_| true);
    assert!(matches!(often, Pick::Refuse(_)), "a link that falls silent again and again");
    // With two homes the silence of one is the turn of the other.
    one.set_answers(0, false);
    backends.lead_to(&[Arc::clone(&one), Arc::clone(&two)]);
    assert!(matches!(&backends.pick(None, &[], None, |_| true),
        Pick::To(backend) if backend.session.id == two.id));
    two.set_answers(0, false);
    assert!(waits(&[]) && waits(&left(1)), "the client is looked for");
}

fn shared(sharing: Balance, sessions: &[&Arc<Session>]) -> Backends {
    let mut of = aim("web");
    of.terms.shared = Some(sharing);
    let gate = || Gate::within(Gate::new(None), Some(u32::MAX));
    let again = || Aim { rules: None, proxy: None, ..aim_like(&of) };
    let backends = Backends::new(again(), sessions[0], gate());
    sessions.iter().for_each(|session| backends.join(session, again(), &gate()));
    backends
}

fn aim_like(of: &Aim) -> Aim {
    Aim { terms: of.terms.clone(), ..aim(&of.name) }
}

/// The client to which the visitor is directed.
fn client(backends: &Backends, peer: Option<SocketAddr>) -> Option<String> {
    match backends.pick(peer, &[], None, |_| true) {
        Pick::To(backend) => Some(backend.picked.client.clone()),
        Pick::Elsewhere(session) => Some(session.name.clone()),
        Pick::Here(_) | Pick::Wait | Pick::Refuse(_) => None,
    }
}

fn live(name: &str) -> Arc<Session> {
    let session = Session::new(name, 1);
    session.set_live(0, true);
    session
}

#[test]
fn visitors_take_turns_among_the_clients_that_share_and_are_there() {
    let [a, b, c] = ["a", "b", "c"].map(live);
    let backends = shared(Balance::RoundRobin, &[&a, &b, &c]);
    let turn =
        |count: usize| -> Vec<_> { (0..count).filter_map(|_| client(&backends, None)).collect() };
    let mut first = turn(3);
    first.sort();
    assert_eq!(first, ["a", "b", "c"]);
    b.set_live(0, false);
    assert!(!turn(9).contains(&"b".to_owned()));
    c.set_hold(true);
    assert_eq!(turn(2), ["a", "a"]);
    a.set_live(0, false);
    assert!(matches!(backends.pick(None, &[], None, |_| true), Pick::Wait));
    backends.leave(a.id);
    c.set_hold(false);
    assert_eq!((turn(1), backends.first().picked.client.as_str()), (vec!["c".into()], "b"));
}

#[test]
fn a_client_that_does_not_answer_gets_no_visitor_while_another_does() {
    let [a, b, c] = ["a", "b", "c"].map(live);
    let backends = shared(Balance::RoundRobin, &[&a, &b, &c]);
    let of = |count: usize| -> std::collections::BTreeSet<_> {
        (0..count).filter_map(|_| client(&backends, None)).collect()
    };
    assert_eq!(of(9).len(), 3);
    a.set_answers(0, false);
    assert_eq!(of(9), ["b".to_owned(), "c".to_owned()].into());
    // A target that refuses serves nobody; a silent client may return shortly.
    backends.all()[1].picked.health.down(ResetCode::Refused);
    c.set_live(0, false);
    assert_eq!(of(9), ["a".to_owned()].into());
    a.set_answers(0, true);
    c.set_live(0, true);
    assert_eq!(of(9), ["a".to_owned(), "c".to_owned()].into());
}

#[test]
fn a_visitor_of_several_workers_goes_to_the_one_whose_link_answers() {
    let session = Session::new("a", 2);
    session.set_live(0, true);
    session.set_live(1, true);
    assert_eq!([0, 1].map(|from| session.live_worker(from)), [Some(0), Some(1)]);
    session.set_answers(0, false);
    assert_eq!([0, 1].map(|from| session.live_worker(from)), [Some(1), Some(1)]);
    session.set_answers(1, false);
    assert_eq!([0, 1].map(|from| session.live_worker(from)), [Some(0), Some(1)]);
}

#[test]
fn a_client_whose_target_is_down_gets_no_visitor_while_another_serves() {
    let [a, b] = ["a", "b"].map(live);
    let backends = shared(Balance::LeastConnections, &[&a, &b]);
    backends.first().picked.health.down(ResetCode::Refused);
    for _ in 0..4 {
        assert_eq!(client(&backends, None).as_deref(), Some("b"));
    }
    b.set_live(0, false);
    assert_eq!(client(&backends, None).as_deref(), Some("a"), "a visitor learns the reason");
}

#[test]
fn the_share_of_a_client_whose_target_returns_grows() {
    let [a, b] = ["a", "b"].map(live);
    let backends = shared(Balance::RoundRobin, &[&a, &b]);
    let members = backends.shared.load_full().unwrap();
    let of_b = |now: u64| {
        let chosen = (0..110).filter_map(|_| members.choose_at(now, None, |_| true));
        chosen.filter(|one| one.backend.session.id == b.id).count()
    };
    assert_eq!(of_b(1_000), 55);
    let health = &members.all[1].backend.picked.health;
    health.down(ResetCode::Refused);
    of_b(clock_millis());
    health.up();
    let start = clock_millis() + 1_000;
    assert_eq!(of_b(start), 10);
    assert!((30..45).contains(&of_b(start + SLOW_START / 2)));
    assert_eq!(of_b(start + SLOW_START), 55);
}

#[test]
fn the_client_with_the_fewest_streams_is_next_and_each_is_tried_once() {
    let [a, b] = ["a", "b"].map(live);
    let backends = shared(Balance::LeastConnections, &[&a, &b]);
    let _busy = backends.first().gate.admit();
    assert_eq!(client(&backends, None).as_deref(), Some("b"));
    let tried = |backend: &Backend| Tried {
        picked: Arc::clone(&backend.picked),
        why: ResetCode::Limit,
        is_counted: false,
    };
    let all: Vec<_> = backends.all().iter().map(|one| tried(one)).collect();
    let of = |tried| match backends.pick(None, tried, None, |_| true) {
        Pick::To(backend) => backend.picked.client.clone(),
        Pick::Refuse(answer) => format!("{answer:?}"),
        Pick::Here(_) | Pick::Elsewhere(_) | Pick::Wait => String::new(),
    };
    assert_eq!((of(&all[1..]), of(&all[..1])), ("a".into(), "b".into()));
    assert_eq!(of(&all), "Down(Limit)");
}

#[test]
fn a_process_that_returns_gets_the_visitors_that_it_had() {
    let [a, b] = ["pod", "pod"].map(live);
    let backends = shared(Balance::SourceHash, &[&a, &b]);
    let of =
        |backends: &Backends, n: u8| match backends
            .pick(visitor([10, 0, 0, n]), &[], None, |_| true)
        {
            Pick::To(backend) => backend.session.id,
            Pick::Here(_) | Pick::Elsewhere(_) | Pick::Wait | Pick::Refuse(_) => 0,
        };
    let before: Vec<_> = (0..50).map(|n| of(&backends, n)).collect();
    backends.leave(b.id);
    let again = live("pod");
    let mut of_pod = aim("web");
    of_pod.terms.shared = Some(Balance::SourceHash);
    backends.join(&again, of_pod, &Gate::new(None));
    for (n, before) in (0..50).zip(before) {
        let now = of(&backends, n);
        assert_eq!(now == again.id, before == b.id, "{n}");
    }
}
