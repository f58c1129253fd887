use std::io;

use config::{ClientFlags, Sources, Text, load_client};

use super::*;
use node::health::SLOW_START;

fn service(keys: &str) -> Service {
    service_at("'tcp://:1'", keys)
}

fn service_at(public: &str, keys: &str) -> Service {
    let text = format!(
        "servers: tls://a\nname: a\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi\n\
         services: [{{ name: web, public: {public}, {keys} }}]\n"
    );
    let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
    let text = Some(Text { name: "client.yaml", text: &text });
    load_client(text, &ClientFlags::default(), &sources).unwrap().config.services.remove(0)
}

const TWO: &str = "target: ['tcp://a:1', 'tcp://b:1']";

fn refused(member: &Member, over: Over, now: u64) {
    let target = member.address(over).unwrap();
    let source = io::ErrorKind::ConnectionRefused.into();
    let error = DialError::Connect { target, source };
    member.note_at(Err(&error), now);
}

fn picks(pool: &Pool, now: u64, visitors: usize) -> Vec<usize> {
    (0..visitors).map(|_| pool.pick_at(None, &[], now).unwrap()).collect()
}

#[test]
fn the_time_of_dials_is_a_moving_average() {
    let pool = Pools::default().of(&service(TWO));
    let took = |millis| {
        pool.took_at(0, Duration::from_millis(millis), 1);
        pool.member(0).micros_at(MEASURED)
    };
    assert_eq!(took(8), 8_000);
    assert_eq!(took(4), 7_000);
    assert_eq!(took(0), 5_250);
    assert_eq!(pool.member(1).micros_at(1), 0);
    assert_eq!(took(u64::MAX / 1000), u32::MAX);
    // A time that is long ago has no influence on the next average.
    assert_eq!(pool.member(0).micros_at(MEASURED + 1), 0);
    pool.took_at(0, Duration::from_millis(3), MEASURED + 1);
    assert_eq!(pool.member(0).micros_at(MEASURED + 1), 3_000);
}

#[test]
fn a_target_that_once_was_slow_is_measured_again() {
    let pool = Pools::default().of(&service(&format!("{TWO}, balance: least_latency")));
    pool.took_at(0, Duration::from_secs(1), 1);
    pool.took_at(1, Duration::from_millis(1), 1);
    assert_eq!(picks(&pool, MEASURED, 4), [1; 4]);
    pool.took_at(1, Duration::from_millis(1), MEASURED);
    // The time of the first target is too old, and counts as that of the second target.
    let next = picks(&pool, MEASURED + 1, 4);
    assert_eq!(next.iter().filter(|place| **place == 0).count(), 2, "{next:?}");
}

#[test]
fn a_target_that_is_down_gets_one_visitor_in_ten_seconds() {
    let pool = Pools::default().of(&service(TWO));
    assert_eq!(picks(&pool, 1, 4), [0, 1, 0, 1]);
    refused(pool.member(1), Over::Tcp, 1_000);
    assert_eq!(picks(&pool, 1_000 + TRIAL - 1, 3), [0, 0, 0]);
    let later = picks(&pool, 1_000 + TRIAL, 4);
    assert_eq!(later.iter().filter(|place| **place == 1).count(), 1, "{later:?}");
}

#[test]
fn with_checks_a_target_that_is_down_gets_no_visitor() {
    let pool = Pools::default().of(&service(&format!("{TWO}, health: {{}}")));
    refused(pool.member(1), Over::Tcp, 1_000);
    assert_eq!(picks(&pool, 1_000_000, 3), [0, 0, 0]);
    // Unless none serves.
    refused(pool.member(0), Over::Tcp, 1_000);
    assert_eq!(pool.pick_at(None, &[0], 1_000_000), Some(1));
    assert_eq!(pool.pick_at(None, &[0, 1], 1_000_000), None);
    assert!(pool.down().is_some());
}

#[test]
fn a_target_of_udp_alone_has_no_checks_and_gets_visitors_as_a_trial() {
    let pool = Pools::default().of(&service_at(
        "private",
        "target: ['udp://a:1', 'udp://b:1'], health: { path: /ok }, \
         visitors: [{ name: b, token: w3Jb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi }]",
    ));
    refused(pool.member(1), Over::Udp, 1_000);
    let later = picks(&pool, 1_000 + TRIAL, 4);
    assert!(later.contains(&1), "{later:?}");
    pool.dialled(1, Ok(()));
    assert_eq!(pool.member(1).watch.health.fault(), None);
}

#[test]
fn a_visitor_brings_no_target_back_that_fails_the_request_of_a_check() {
    for (health, is_back) in [("health: {}", true), ("health: { path: /ok }", false)] {
        let pool = Pools::default().of(&service(&format!("{TWO}, {health}")));
        refused(pool.member(1), Over::Tcp, 1_000);
        pool.dialled(1, Ok(()));
        assert_eq!(pool.member(1).watch.health.fault().is_none(), is_back, "{health}");
    }
}

#[test]
fn a_visitor_whose_protocol_a_target_lacks_takes_no_target_down() {
    let pool = Pools::default().of(&service(TWO));
    let target = pool.member(0).address(Over::Tcp).unwrap();
    let error = DialError::Protocol { target, reason: "does not speak HTTP/2".into() };
    pool.dialled(0, Err(&error));
    assert_eq!(pool.member(0).watch.health.fault(), None);
}

#[test]
fn the_share_of_a_target_that_returns_grows() {
    let pool = Pools::default().of(&service(TWO));
    refused(pool.member(1), Over::Tcp, 1_000);
    pool.member(1).note_at(Ok(()), 100_000);
    let of_it = |now| picks(&pool, now, 110).iter().filter(|place| **place == 1).count();
    assert_eq!(of_it(100_000), 10);
    assert!((30..45).contains(&of_it(100_000 + SLOW_START / 2)));
    assert_eq!(of_it(100_000 + SLOW_START), 55);
}

#[test]
fn a_target_that_is_removed_drains_and_one_that_stays_keeps_what_is_known() {
    let pools = Pools::default();
    let before = pools.of(&service(TWO));
    assert!(Arc::ptr_eq(&before, &pools.of(&service(TWO))));
    for member in before.members() {
        member.enter();
    }
    let after = pools.of(&service("target: ['tcp://b:1', { url: 'tcp://c:1', weight: 3 }]"));
    let shown = |pool: &Pool| {
        let all = pool.status().into_iter();
        all.map(|one| (one.target, one.weight, one.visitors)).collect::<Vec<_>>()
    };
    let row = |target: &str, weight, visitors| (target.to_owned(), weight, visitors);
    let [b, c] = [row("tcp://b:1", 1, 1), row("tcp://c:1", 3, 0)];
    assert_eq!(shown(&after), [b.clone(), c.clone(), row("tcp://a:1", 0, 1)]);
    before.member(0).leave();
    assert_eq!(shown(&after), [b, c]);
}

#[test]
fn a_reader_of_the_former_configuration_gives_no_target_a_second_record() {
    let pools = Pools::default();
    let [before, after] = [TWO, "target: ['tcp://b:1', 'tcp://c:1']"].map(service);
    drop(pools.of(&before));
    let of_worker = pools.of(&after);
    drop(pools.of(&before));
    assert!(Arc::ptr_eq(of_worker.member(1), pools.of(&after).member(1)));
}

#[test]
fn a_visitor_keeps_a_target_that_serves() {
    let pool =
        Pools::default().of(&service("target: ['tcp://a:1', { url: 'tcp://b:1', weight: 0 }]"));
    let marks = [0, 1].map(|place| pool.member(place).mark());
    assert_eq!(marks.map(|mark| pool.serving(mark)), [Some(0), Some(1)]);
    assert_eq!((pool.serving(0), pool.serving(7)), (None, None));
    refused(pool.member(0), Over::Tcp, 1_000);
    assert_eq!(marks.map(|mark| pool.serving(mark)), [None, Some(1)]);
    // It may be tried with a new visitor, not with a visitor that has had it.
    assert_eq!(pool.pick_at(None, &[], 1_000 + TRIAL), Some(0));
    let again = Pools::default().of(&service("target: ['tcp://c:1', 'tcp://a:1']"));
    assert_eq!(again.serving(marks[0]), Some(1), "the mark of a target stays the same");
}

fn drain(pools: &Pools, name: &str, off: bool) -> Drained {
    pools.drain(&DrainOrder { name: name.to_owned(), off }).unwrap()
}

/// The state of the service, and the states of its targets.
fn states(pools: &Pools, service: &Service) -> (ServiceState, Vec<TargetState>) {
    let state = ServiceState::Up.into();
    let mut status = ops::status::Service { state, ..ops::status::Service::default() };
    pools.report(service, &mut status);
    status.settle();
    let targets = status.targets.iter().map(|target| target.state.state());
    (status.state.state(), targets.collect())
}

#[test]
fn a_drained_target_gets_no_new_visitor_until_the_drain_ends() {
    let (pools, web) = (Pools::default(), service(TWO));
    let pool = pools.of(&web);
    pool.member(0).enter();
    let drained = drain(&pools, "a:1", false);
    assert_eq!((drained.targets.len(), drained.services.len()), (1, 0));
    let one = &drained.targets[0];
    assert_eq!((&*one.service, &*one.target, one.draining), ("web", "tcp://a:1", true));
    assert_eq!(picks(&pool, 1, 3), [1, 1, 1]);
    assert_eq!(
        states(&pools, &web),
        (ServiceState::Up, vec![TargetState::Draining, TargetState::Up])
    );
    assert_eq!(pool.status()[0].visitors, 1, "its visitor stays");
    assert_eq!(pool.serving(pool.member(0).mark()), Some(0), "as at weight 0");
    // The other target is down: it is tried, and the drained one is not.
    refused(pool.member(1), Over::Tcp, 1_000);
    assert_eq!(picks(&pool, 1_001, 2), [1, 1]);
    assert_eq!(pool.pick_at(None, &[1], 1_001), None);
    assert_eq!(states(&pools, &web).0, ServiceState::TargetDown);
    let drained = drain(&pools, "tcp://a:1", true);
    assert!(!drained.targets[0].draining);
    assert_eq!(picks(&pool, 1_002, 2), [0, 0]);
}

#[test]
fn a_reload_ends_no_drain() {
    let pools = Pools::default();
    pools.of(&service(TWO));
    drain(&pools, "tcp://a:1", false);
    let heavy = service("target: [{ url: 'tcp://a:1', weight: 9 }, 'tcp://c:1']");
    let pool = pools.of(&heavy);
    assert_eq!(picks(&pool, 1, 3), [1, 1, 1]);
    // A whole service is drained with the targets that it gets later.
    let all = drain(&pools, "web", false);
    assert_eq!((all.targets.len(), &*all.services), (2, &["web".to_owned()][..]));
    let more = service("target: ['tcp://a:1', 'tcp://d:1']");
    assert!(pools.of(&more).is_drained());
    assert!(drain(&pools, "d:1", true).services.is_empty());
    let pool = pools.of(&more);
    assert_eq!((pool.is_drained(), picks(&pool, 1, 2)), (false, vec![1, 1]));
}

#[test]
fn a_service_whose_targets_are_all_drained_refuses_and_says_so() {
    let keys = "target: [{ url: 'tcp://a:1', weight: 0 }, 'tcp://b:1', 'tcp://c:1']";
    let (pools, web) = (Pools::default(), service(keys));
    let pool = pools.of(&web);
    assert!(drain(&pools, "b:1", false).services.is_empty() && !pool.is_drained());
    assert_eq!(drain(&pools, "c:1", false).services, ["web"]);
    assert!(pool.is_drained(), "a target of weight 0 gets no new visitor either");
    assert_eq!(states(&pools, &web).0, ServiceState::Draining);
    // A visitor that was admitted before has a target.
    assert!(pool.pick_at(None, &[], 1).is_some());
    drain(&pools, "web", true);
    assert_eq!((pool.is_drained(), states(&pools, &web).0), (false, ServiceState::Up));
    let single = service("target: 'tcp://a:1'");
    pools.of(&single);
    drain(&pools, "web", false);
    assert_eq!(states(&pools, &single), (ServiceState::Draining, Vec::new()));
}

#[test]
fn an_unknown_name_is_answered_with_the_known_names() {
    let pools = Pools::default();
    let why = |pools: &Pools| {
        let order = DrainOrder { name: "wbe".to_owned(), off: false };
        pools.drain(&order).unwrap_err().to_string()
    };
    assert!(why(&pools).ends_with("this daemon has no service"), "{}", why(&pools));
    pools.of(&service(TWO));
    let text = "there is no service or target `wbe`; known are: web, tcp://a:1, tcp://b:1";
    assert_eq!(why(&pools), text);
    let many: Vec<_> = (0..40).map(|n| format!("'tcp://a:{}'", n + 1)).collect();
    pools.of(&service(&format!("target: [{}]", many.join(", "))));
    assert!(why(&pools).ends_with(", and 11 more"), "{}", why(&pools));
}

const TWO_UDP: &str = "target: ['udp://a:1', 'udp://b:1']";

#[test]
fn a_target_of_udp_that_is_silent_while_another_answers_is_down() {
    let pool = Pools::default().of(&service_at("'udp://:1'", TWO_UDP));
    let note = |place, answers| pool.note_answers_at(place, answers, 1_000);
    assert!(!note(0, true), "its flows stay");
    assert_eq!([note(1, false), note(1, false)], [false; 2], "two lost datagrams are no reason");
    assert!(!note(1, true));
    let notes: Vec<_> = (0..4).map(|_| note(1, false)).collect();
    assert!(notes.contains(&true) && pool.member(1).watch.health.fault().is_some());
    assert_eq!(picks(&pool, 1_001, 3), [0, 0, 0]);
    // The visitor of a trial is not answered, and leaves; that of a later one is.
    assert!(note(1, false));
    pool.dialled(1, Ok(()));
    assert!(!note(1, false) && pool.member(1).watch.health.fault().is_none());
}

#[test]
fn a_protocol_without_answers_takes_no_target_down() {
    let pool = Pools::default().of(&service_at("'udp://:1'", TWO_UDP));
    for _ in 0..20 {
        assert_eq!([0, 1].map(|place| pool.note_answers_at(place, false, 1_000)), [false; 2]);
    }
    // An answer of long ago says nothing of now.
    pool.note_answers_at(0, true, 2_000);
    assert!(!pool.note_answers_at(1, false, 2_001 + HEARD));
    assert!(pool.down().is_none());
}

#[test]
fn targets_whose_flows_are_answered_as_rarely_as_those_of_others_stay() {
    let pool = Pools::default().of(&service_at("'udp://:1'", TWO_UDP));
    for turn in 0..50 {
        for place in [0, 1] {
            assert!(!pool.note_answers_at(place, turn % 4 == 0, 1_000));
        }
    }
}

#[test]
fn checks_by_datagram_decide_alone_whether_a_target_of_udp_serves() {
    let keys = format!("{TWO_UDP}, health: {{ udp: dns }}");
    let pool = Pools::default().of(&service_at("'udp://:1'", &keys));
    pool.note_answers_at(0, true, 1_000);
    assert!((0..9).all(|_| !pool.note_answers_at(1, false, 1_000)));
    refused(pool.member(1), Over::Udp, 1_000);
    assert!(pool.note_answers_at(1, false, 1_000), "its flows leave");
    assert_eq!(picks(&pool, 1_000_000, 3), [0, 0, 0]);
    pool.dialled(1, Ok(()));
    assert!(pool.member(1).watch.health.fault().is_some(), "a visitor brings it not back");
    pool.member(1).note(Ok(()));
    assert!(pool.member(1).watch.health.fault().is_none());
}

#[test]
fn all_visitors_of_an_address_have_the_same_target() {
    let pool = Pools::default().of(&service(&format!("{TWO}, balance: source_hash")));
    let home = |ip: &str| {
        let source = Source::Address(ip.parse().unwrap());
        pool.pick_at(Some(&source), &[], 1).unwrap()
    };
    let all: Vec<_> = (0..64).map(|n| home(&format!("192.0.2.{n}"))).collect();
    assert!(all.contains(&0) && all.contains(&1));
    assert_eq!(home("192.0.2.7"), home("::ffff:192.0.2.7"));
}
