//! The backends of an entrance, which serve its visitors. An entrance binds the address; its
//! backends may change while it listens.
//!
//! ```text
//!   visitor ──pick──> To(backend)     a stream over a link of the session, which keeps `Picked`
//!                     Here(backend)   this process dials a target itself
//!                     Wait            a backend may serve the visitor, and has no live link here
//!                     Refuse(answer)  no backend may serve the visitor, or each was tried
//! ```
//!
//! Most entrances have one backend: the session of the client that publishes the service, the
//! session of the server to which a forward leads, or the targets of a proxy. A shared service has
//! a backend for each session that shares its address. The policy of the oldest backend chooses
//! among the backends that have a live link on any worker and whose target serves.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use proto::{Balance, ResetCode};
use relay::Gate;
use relay::balance::{Candidate, Turns, fingerprint, key_of};

use crate::aim::Aim;
use crate::answer::Answer;
use crate::health::{Health, clock_millis, percent_since};
use crate::session::Session;

/// The backends of one entrance.
#[derive(Debug)]
pub struct Backends {
    first: ArcSwap<Backend>,
    /// `None`: the entrance is not shared.
    shared: ArcSwapOption<Members>,
    edition: AtomicU64,
}

/// The backends of a shared entrance; at least one, the oldest first.
#[derive(Debug)]
struct Members {
    policy: Balance,
    all: Box<[Arc<Member>]>,
    turns: Mutex<Turns>,
}

#[derive(Debug)]
struct Member {
    /// Its id for the policy by address. It stays the same when the client reconnects.
    id: u64,
    backend: Arc<Backend>,
    /// When a visitor was last directed to it although its target was down, in milliseconds of
    /// [`clock_millis`].
    tried: AtomicU64,
    /// Whether its target was down when a visitor was last directed to any member.
    was_down: AtomicBool,
    /// When its target was first seen to serve again, by the same clock; 0: it was not down.
    back: AtomicU64,
}

/// A backend whose target is down gets one trial visitor this long after its last failure, in
/// milliseconds, like a target of a list.
const TRIAL: u64 = 10_000;

/// A session that serves visitors. It is immutable: a change replaces it.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The session whose links carry the streams. A new process of the client replaces the session
    /// with its own.
    pub session: Arc<Session>,
    /// The limit of streams.
    pub gate: Arc<Gate>,
    /// The part that a stream keeps.
    pub picked: Arc<Picked>,
}

/// The part of a backend that a stream keeps until its end: log, status and limits of a stream name
/// it even if other backends serve the entrance by then. It does not hold the session, whose totals
/// are final when its last link has ended.
#[derive(Clone, Debug)]
pub struct Picked {
    /// The id of the session.
    pub session: u64,
    /// The client's name; on a client the name of the server.
    pub client: String,
    /// The service or the target, and the terms.
    pub aim: Arc<Aim>,
    /// Whether the target serves, as reported by the streams.
    pub health: Arc<Health>,
}

/// A backend that failed to serve a visitor: it opened no stream, or its stream was refused.
#[derive(Clone, Debug)]
pub struct Tried {
    pub picked: Arc<Picked>,
    pub why: ResetCode,
    /// Whether the refusal has been counted.
    pub is_counted: bool,
}

/// The backend for a visitor.
#[derive(Debug)]
pub enum Pick {
    /// This backend serves the visitor.
    To(Guard<Arc<Backend>>),
    /// A target that this process dials itself, as a proxy does, serves the visitor.
    Here(Guard<Arc<Backend>>),
    /// The session of the backend has no live link on this worker, but one on another worker.
    Elsewhere(Arc<Session>),
    /// There is a backend, but this worker has no live link to it.
    Wait,
    /// There is no backend.
    Refuse(Answer),
}

impl capture::log::Serving for Picked {
    fn names(&self) -> (&str, &str) {
        (&self.aim.name, &self.client)
    }
}

impl Picked {
    fn new(session: &Session, aim: Aim) -> Arc<Self> {
        let (client, aim) = (session.name.clone(), Arc::new(aim));
        Arc::new(Self { session: session.id, client, aim, health: Arc::default() })
    }
}

impl Backend {
    fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Self {
        Self { session: Arc::clone(session), gate, picked: Picked::new(session, aim) }
    }
}

impl Backends {
    pub fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Self {
        let first = ArcSwap::from_pointee(Backend::new(aim, session, gate));
        Self { first, shared: ArcSwapOption::empty(), edition: AtomicU64::new(next_edition()) }
    }

    /// The backend that stands for the entrance in names, lists and admission. For a visitor, use
    /// [`Self::pick`].
    pub fn first(&self) -> Guard<Arc<Backend>> {
        self.first.load()
    }

    /// The backend for a visitor, other than those that were `tried`. `is_live` returns whether
    /// this worker has a link of the session that accepts streams. `preferred`: the session that
    /// was picked for the visitor on another worker.
    pub fn pick(
        &self,
        visitor: Option<SocketAddr>,
        tried: &[Tried],
        preferred: Option<u64>,
        is_live: impl FnOnce(&Session) -> bool,
    ) -> Pick {
        if let Some(members) = &*self.shared.load() {
            return members.pick(visitor, tried, preferred, is_live);
        }
        let backend = self.first.load();
        if !backend.picked.aim.permits(visitor) {
            return Pick::Refuse(Answer::Forbidden);
        }
        if let Some(tried) = tried.iter().find(|tried| tried.is(&backend)) {
            let session = &backend.session;
            let is_over = matches!(tried.why, ResetCode::Shutdown | ResetCode::Internal);
            // Another process of the client is about to take over the address of the process that
            // ended.
            if is_over && session.stands_beside() && session.live() == 0 {
                return Pick::Wait;
            }
            return Pick::Refuse(Answer::Down(tried.why));
        }
        if backend.session.is_here() {
            return Pick::Here(backend);
        }
        if is_live(&backend.session) { Pick::To(backend) } else { Pick::Wait }
    }

    /// The backend for a new flow of a peer whose datagrams this worker reads. `is_live` returns
    /// whether this worker has a link of the session for the flow.
    pub(crate) fn pick_flow(
        &self,
        peer: SocketAddr,
        is_live: impl Fn(&Session) -> bool,
    ) -> Guard<Arc<Backend>> {
        let shared = self.shared.load();
        let picked = shared.as_ref().and_then(|members| {
            members.choose(Some(peer.ip()), |member| {
                let Backend { session, picked, .. } = &*member.backend;
                picked.aim.permits(Some(peer)) && !session.is_on_hold() && is_live(session)
            })
        });
        picked.map_or_else(
            || self.first.load(),
            |member| Guard::from_inner(Arc::clone(&member.backend)),
        )
    }

    /// The id of the client of this session, for a cookie. It stays the same when the client
    /// reconnects.
    pub(crate) fn number_of(&self, session: u64) -> u64 {
        let shared = self.shared.load();
        let all = shared.iter().flat_map(|members| &members.all);
        let mut own = all.filter(|one| one.backend.session.id == session);
        own.next().map_or(0, |one| one.id)
    }

    /// The session of the client with this id, if the client is responsive and no failure of its
    /// target is known.
    pub fn serving(&self, number: u64) -> Option<u64> {
        let shared = self.shared.load();
        let all = shared.iter().flat_map(|members| &members.all);
        let mut own = all.filter(|one| one.id == number);
        let Backend { session, picked, .. } = &*own.next()?.backend;
        (session.answers() && picked.health.fault().is_none()).then_some(session.id)
    }

    /// Whether several sessions may serve the entrance.
    pub fn is_shared(&self) -> bool {
        self.shared.load().is_some()
    }

    /// Whether another session may later serve a visitor whose stream has begun, because the
    /// entrance is shared or its client has another process that may take it over.
    pub fn have_others(&self) -> bool {
        self.is_shared() || self.first.load().session.stands_beside()
    }

    /// Whether a session other than this one can serve the visitor now.
    pub fn are_served_beside(&self, session: u64, visitor: Option<SocketAddr>) -> bool {
        let shared = self.shared.load();
        let Some(members) = &*shared else {
            let Backend { session: own, picked, .. } = &**self.first.load();
            return own.id != session && own.answers() && picked.aim.permits(visitor);
        };
        let now = clock_millis();
        let serves = |one: &Arc<Member>| {
            let Backend { session: own, picked, .. } = &*one.backend;
            own.id != session
                && own.answers()
                && !own.is_on_hold()
                && picked.aim.permits(visitor)
                && one.is_fit(now)
        };
        members.all.iter().any(serves)
    }

    /// The backends, the oldest first.
    pub fn all(&self) -> Vec<Arc<Backend>> {
        match &*self.shared.load() {
            Some(members) => members.all.iter().map(|one| Arc::clone(&one.backend)).collect(),
            None => vec![self.first.load_full()],
        }
    }

    /// The gate of the picked backend.
    pub(crate) fn gate_of(&self, picked: &Picked) -> Arc<Gate> {
        let shared = self.shared.load();
        let all = shared.iter().flat_map(|members| &members.all);
        let mut own = all.filter(|one| one.backend.session.id == picked.session);
        own.next().map_or_else(
            || Arc::clone(&self.first.load().gate),
            |one| Arc::clone(&one.backend.gate),
        )
    }

    /// Whether the session with this id serves the entrance.
    pub(crate) fn lead_to_session(&self, id: u64) -> bool {
        match &*self.shared.load() {
            Some(members) => members.all.iter().any(|one| one.backend.session.id == id),
            None => self.first.load().session.id == id,
        }
    }

    /// Whether every client that may serve the entrance is disconnected.
    pub fn are_away(&self) -> bool {
        match &*self.shared.load() {
            Some(members) => members.all.iter().all(|one| one.backend.session.is_away()),
            None => self.first.load().session.is_away(),
        }
    }

    /// Adds a session to those that serve visitors, or gives a known session a new aim and gate.
    /// The entrance is shared from now on. The caller holds the lock of the shared entrances, so
    /// the members cannot change concurrently.
    pub fn join(&self, session: &Arc<Session>, aim: Aim, gate: &Arc<Gate>) {
        let backend = Arc::new(Backend::new(aim, session, Arc::clone(gate)));
        let mut all = self.members();
        let known = all.iter().position(|one| one.backend.session.id == session.id);
        let id = match known.and_then(|place| all.get(place)) {
            Some(known) => known.id,
            None => Member::free_id(&all, &session.name),
        };
        let member = Arc::new(Member::new(id, backend));
        match known.and_then(|place| all.get_mut(place)) {
            Some(known) => *known = member,
            None => all.push(member),
        }
        self.set_members(all);
    }

    /// Removes a session from a shared entrance; see [`Self::join`]. The last session stays: the
    /// caller closes the entrance.
    pub fn leave(&self, session: u64) {
        let mut all = self.members();
        if all.len() > 1 {
            all.retain(|one| one.backend.session.id != session);
            self.set_members(all);
        }
    }

    /// The members; empty before the first session joins.
    fn members(&self) -> Vec<Arc<Member>> {
        self.shared.load().as_ref().map(|members| members.all.to_vec()).unwrap_or_default()
    }

    fn set_members(&self, all: Vec<Arc<Member>>) {
        let Some(first) = all.first().map(|one| Arc::clone(&one.backend)) else { return };
        let policy = first.picked.aim.terms.shared.unwrap_or_default();
        let members = Members { policy, all: all.into(), turns: Mutex::default() };
        self.shared.store(Some(Arc::new(members)));
        self.first.store(first);
        self.renew();
    }

    /// Directs new visitors to another session, with the same aim.
    pub fn lead_to(&self, session: &Arc<Session>) {
        self.change(|backend| {
            backend.session = Arc::clone(session);
            let (session, client) = (session.id, session.name.clone());
            backend.picked = Arc::new(Picked { session, client, ..Picked::clone(&backend.picked) });
        });
    }

    /// Replaces the aim. Requests that were admitted under the previous aim are no longer current.
    pub(crate) fn set_aim(&self, aim: Aim) {
        let aim = Arc::new(aim);
        self.change(|backend| {
            let aim = Arc::clone(&aim);
            backend.picked = Arc::new(Picked { aim, ..Picked::clone(&backend.picked) });
        });
        self.renew();
    }

    /// Forgets the state of the target.
    pub fn forget_health(&self) {
        self.first().picked.health.forget();
    }

    /// Replaces the backend atomically, so no visitor sees parts of both. Requests that were
    /// admitted before are no longer current, even if the aim is the same: the target of the
    /// service may have changed. `gate`: `None` keeps the gate.
    pub fn replace(&self, session: &Arc<Session>, aim: Aim, gate: Option<&Arc<Gate>>) {
        let aim = Arc::new(aim);
        self.change(|backend| {
            backend.session = Arc::clone(session);
            if let Some(gate) = gate {
                backend.gate = Arc::clone(gate);
            }
            let (client, aim) = (session.name.clone(), Arc::clone(&aim));
            let old = Picked::clone(&backend.picked);
            backend.picked = Arc::new(Picked { session: session.id, client, aim, ..old });
        });
        self.renew();
    }

    fn change(&self, change: impl Fn(&mut Backend)) {
        self.first.rcu(|backend| {
            let mut backend = Backend::clone(backend);
            change(&mut backend);
            backend
        });
    }

    /// Takes a new edition, so the next request on a keep-alive connection needs a new stream.
    fn renew(&self) {
        self.edition.store(next_edition(), Ordering::Release);
    }

    /// The version of the rules in force, unique in this process over all entrances and time. A
    /// caller that reads the edition before the aim never mistakes a previous aim for the new one.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The name of the service or forward in logs and status.
    pub fn name(&self) -> String {
        self.first().picked.aim.name.clone()
    }
}

impl Tried {
    fn is(&self, backend: &Backend) -> bool {
        Arc::ptr_eq(&self.picked, &backend.picked)
    }
}

impl Members {
    fn pick(
        &self,
        visitor: Option<SocketAddr>,
        tried: &[Tried],
        preferred: Option<u64>,
        is_live: impl FnOnce(&Session) -> bool,
    ) -> Pick {
        let permits = |one: &Member| one.backend.picked.aim.permits(visitor);
        if !self.all.iter().any(|one| permits(one)) {
            return Pick::Refuse(Answer::Forbidden);
        }
        let is_left =
            |one: &Member| permits(one) && !tried.iter().any(|tried| tried.is(&one.backend));
        if !self.all.iter().any(|one| is_left(one)) {
            let why = tried.last().map_or(ResetCode::Shutdown, |tried| tried.why);
            return Pick::Refuse(Answer::Down(why));
        }
        let takes = |session: &Session| session.live() > 0 && !session.is_on_hold();
        let may = |one: &Member| is_left(one) && takes(&one.backend.session);
        let wished =
            self.all.iter().find(|one| Some(one.backend.session.id) == preferred && may(one));
        let picked = wished.or_else(|| self.choose(visitor.map(|peer| peer.ip()), may));
        let Some(picked) = picked else {
            // A visitor for whom there is a reason to refuse does not wait for disconnected
            // clients.
            let why = tried.last().map(|tried| tried.why);
            return why.map_or(Pick::Wait, |why| Pick::Refuse(Answer::Down(why)));
        };
        let backend = &picked.backend;
        if is_live(&backend.session) {
            Pick::To(Guard::from_inner(Arc::clone(backend)))
        } else {
            Pick::Elsewhere(Arc::clone(&backend.session))
        }
    }

    /// A backend that `may` serve. The policy chooses among the backends whose target is not known
    /// to be down and whose client is responsive. Without such a backend, a client that has just
    /// become silent may still return, and the dial of a target that is known to be down gives the
    /// visitor the reason.
    fn choose(
        &self,
        visitor: Option<IpAddr>,
        may: impl Fn(&Member) -> bool,
    ) -> Option<&Arc<Member>> {
        self.choose_at(clock_millis(), visitor, may)
    }

    fn choose_at(
        &self,
        now: u64,
        visitor: Option<IpAddr>,
        may: impl Fn(&Member) -> bool,
    ) -> Option<&Arc<Member>> {
        self.all.iter().for_each(|one| one.note_health(now));
        let key = visitor.map(|ip| key_of(&ip.into()));
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pick = |is_fit: &dyn Fn(&Member) -> bool| {
            let candidate =
                |one: &Arc<Member>| (may(one) && is_fit(one)).then(|| one.candidate(now));
            let candidates: Vec<_> = self.all.iter().map(candidate).collect();
            turns.pick(self.policy, &candidates, key).and_then(|place| self.all.get(place))
        };
        let answers = |one: &Member| one.backend.session.answers();
        let picked = pick(&|one| one.is_fit(now) && answers(one))
            .or_else(|| pick(&|one| one.is_fit(now)))
            .or_else(|| pick(&answers))
            .or_else(|| pick(&|_| true))?;
        if picked.backend.picked.health.fault().is_some() {
            picked.tried.store(now, Ordering::Relaxed);
        }
        Some(picked)
    }
}

impl Member {
    fn new(id: u64, backend: Arc<Backend>) -> Self {
        let (tried, was_down, back) = Default::default();
        Self { id, backend, tried, was_down, back }
    }

    /// All members have the weight 100; a member whose target has just recovered gets a part of it.
    fn candidate(&self, now: u64) -> Candidate {
        let percent = percent_since(self.back.load(Ordering::Relaxed), now);
        let now = u32::try_from(percent).unwrap_or(100);
        Candidate { id: self.id, weight: 100, now, live: self.backend.gate.live() }
    }

    /// Records when its target serves again.
    fn note_health(&self, now: u64) {
        let is_down = self.backend.picked.health.fault().is_some();
        // Most calls change nothing and write nothing.
        if self.was_down.load(Ordering::Relaxed) != is_down
            && self.was_down.swap(is_down, Ordering::Relaxed)
            && !is_down
        {
            self.back.store(now, Ordering::Relaxed);
        }
    }

    /// The first unused id for a process of this client: processes of one name are numbered.
    fn free_id(all: &[Arc<Self>], client: &str) -> u64 {
        let ids = (0_u64..).map(|nth| fingerprint(&format!("{client} {nth}")));
        let is_free = |id: &u64| all.iter().all(|one| one.id != *id);
        ids.into_iter().find(is_free).unwrap_or_default()
    }

    /// Whether its target is not known to be down, or a trial visitor is due.
    fn is_fit(&self, now: u64) -> bool {
        self.backend.picked.health.fault().is_none_or(|fault| {
            let last = fault.since_millis().max(self.tried.load(Ordering::Relaxed));
            now.saturating_sub(last) >= TRIAL
        })
    }
}

fn next_edition() -> u64 {
    static EDITIONS: AtomicU64 = AtomicU64::new(1);
    EDITIONS.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use proto::control::ServiceTerms;
    use proto::{Network, Target, Visitors};

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
        backends.lead_to(&Session::new("home", 1));
        assert!(matches!(backends.pick(None, &tried, None, |_| true), Pick::To(_)));
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
        backends.lead_to(&other);
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
        backends.lead_to(&other);
        backends.set_aim(aim("files"));
        assert_eq!((picked.client.as_str(), picked.aim.name.as_str()), ("home", "web"));
        let now = backends.first();
        assert_eq!((now.picked.client.as_str(), now.picked.aim.name.as_str()), ("office", "files"));
        assert_eq!(now.session.id, other.id);
        assert_ne!(backends.edition(), edition);
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
        let turn = |count: usize| -> Vec<_> {
            (0..count).filter_map(|_| client(&backends, None)).collect()
        };
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
        let of = |backends: &Backends, n: u8| match backends.pick(
            visitor([10, 0, 0, n]),
            &[],
            None,
            |_| true,
        ) {
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
}
