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
//!
//! | file | content |
//! |---|---|
//! | `backend` | a backend, what a stream keeps of it, and the answer to a visitor |
//! | `members` | the backends of a shared entrance |

mod backend;
mod members;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use proto::{ResetCode, Target};
use relay::Gate;

use crate::aim::Aim;
use crate::answer::Answer;
use crate::health::clock_millis;
use crate::session::Session;
pub use backend::{Backend, InForce, Locator, Pick, Picked, Tried};
use members::{Member, Members};

/// The number of times that a visitor follows a client to another node of the cluster. A client
/// that moves more often while a visitor arrives is not settled yet.
const MOVES_MAX: usize = 3;

/// The backends of one entrance.
#[derive(Debug)]
pub struct Backends {
    first: ArcSwap<Backend>,
    /// `None`: the entrance is not shared.
    shared: ArcSwapOption<Members>,
    edition: AtomicU64,
}

impl Backends {
    pub fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Self {
        let first = ArcSwap::from_pointee(Backend::new(aim, session, gate));
        Self { first, shared: ArcSwapOption::empty(), edition: AtomicU64::new(next_edition()) }
    }

    /// The backends of a service whose client is at other nodes of the cluster.
    pub fn at_other_nodes(
        aim: Aim,
        session: &Arc<Session>,
        gate: Arc<Gate>,
        locator: Arc<dyn Locator>,
    ) -> Self {
        let backends = Self::new(aim, session, gate);
        backends.change(|backend| backend.locator = Some(Arc::clone(&locator)));
        backends
    }

    /// The oldest backend, for the answers below. What serves a visitor is a question for
    /// [`Self::pick`].
    fn first(&self) -> Guard<Arc<Backend>> {
        self.first.load()
    }

    /// The terms and the gate that apply before a backend is picked. All backends of a shared
    /// entrance have the same lists of visitors and options of HTTP; the rest is that of the oldest
    /// backend.
    pub(crate) fn in_force(&self) -> InForce {
        InForce(self.first())
    }

    /// The backend for which a visitor is counted and logged that no backend has served.
    pub fn accountable(&self) -> Arc<Picked> {
        Arc::clone(self.in_force().accountable())
    }

    /// The session that is asked for a link while visitors wait and no backend has a link.
    pub(crate) fn awaited(&self) -> Arc<Session> {
        Arc::clone(&self.first().session)
    }

    /// Requests a link of the session that visitors wait for, on this worker.
    pub fn demand(&self, worker: usize) {
        let first = self.first();
        first.session.demand(worker);
        if let Some(locator) = &first.locator {
            locator.awaited();
        }
    }

    /// Records that a backend has refused a visitor for this reason. After
    /// [`ResetCode::Moved`] the backend is another one, or there is none until the client is found.
    pub fn note_refusal(&self, picked: &Picked, why: ResetCode) {
        if why != ResetCode::Moved {
            return;
        }
        let locator = self.first().locator.clone();
        if let (Target::Hop(hop), Some(locator)) = (&picked.aim.target, locator) {
            locator.moved(hop, picked.session);
        }
    }

    /// The last answer of the backends, if each of them gives an answer.
    pub fn each_gives<T>(&self, mut ask: impl FnMut(&Backend) -> Option<T>) -> Option<T> {
        let shared = self.shared.load();
        let Some(members) = &*shared else { return ask(&self.first()) };
        let mut last = None;
        for one in &members.all {
            last = Some(ask(&one.backend)?);
        }
        last
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
        for why in [ResetCode::Moved, ResetCode::Timeout] {
            if tried.iter().filter(|tried| tried.why == why).count() > MOVES_MAX {
                return Pick::Refuse(Answer::Down(why));
            }
        }
        if let Some(members) = &*self.shared.load() {
            return members.pick(visitor, tried, preferred, is_live);
        }
        let backend = self.first.load();
        if !backend.picked.aim.permits(visitor) {
            return Pick::Refuse(Answer::Forbidden);
        }
        if backend.is_elsewhere() && !backend.takes_visitors() {
            // The client is looked for at other nodes before the silence of this node ends.
            return Pick::Wait;
        }
        let left = tried.iter().rev().find(|tried| tried.is(&backend));
        // A visitor that has left a silent link comes back to it after the end of the silence.
        let is_gone = |tried: &&Tried| !backend.is_elsewhere() || tried.why != ResetCode::Timeout;
        if let Some(tried) = left.filter(is_gone) {
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

    /// The backend of which `is_live` says that this worker has a link of its session, among the
    /// backends that a visitor without an address may use; else the first backend.
    pub(crate) fn pick_live(&self, is_live: impl Fn(&Session) -> bool) -> Arc<Backend> {
        let shared = self.shared.load();
        let picked = shared
            .as_ref()
            .and_then(|members| members.choose(None, |member| is_live(&member.backend.session)));
        picked.map_or_else(|| self.first.load_full(), |member| Arc::clone(&member.backend))
    }

    /// Whether each session has counters of its own. Servers of a forward have not: the forward is
    /// the same over each of them.
    pub fn count_apart(&self) -> bool {
        self.shared.load().as_ref().is_some_and(|members| members.count_apart())
    }

    /// The backends for a status: all that have counters of their own.
    pub fn counted(&self) -> Vec<Arc<Backend>> {
        if self.is_shared() && !self.count_apart() {
            return vec![self.first.load_full()];
        }
        self.all()
    }

    /// The backend for a new flow of a peer whose datagrams this worker reads. `is_live` returns
    /// whether this worker has a link of the session for the flow. `None`: the peer may not visit.
    pub(crate) fn pick_flow(
        &self,
        peer: SocketAddr,
        is_live: impl Fn(&Session) -> bool,
    ) -> Option<Guard<Arc<Backend>>> {
        let shared = self.shared.load();
        let picked = shared.as_ref().and_then(|members| {
            members.choose(Some(peer.ip()), |member| {
                let Backend { session, picked, .. } = &*member.backend;
                picked.aim.permits(Some(peer)) && !session.is_on_hold() && is_live(session)
            })
        });
        let backend = picked.map_or_else(
            || self.first.load(),
            |member| Guard::from_inner(Arc::clone(&member.backend)),
        );
        backend.picked.aim.permits(Some(peer)).then_some(backend)
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

    /// Whether the client is at other nodes of the cluster.
    pub fn are_at_other_nodes(&self) -> bool {
        self.first.load().locator.is_some()
    }

    /// Whether several sessions may serve the entrance.
    pub fn is_shared(&self) -> bool {
        self.shared.load().is_some()
    }

    /// Whether another session may later serve a visitor whose stream has begun, because the
    /// entrance is shared or its client has another process that may take it over.
    pub fn have_others(&self) -> bool {
        let first = self.first.load();
        self.is_shared() || first.locator.is_some() || first.session.stands_beside()
    }

    /// Whether a visitor had better leave a link of this session that is silent or lost: another
    /// session can serve the visitor now, or the client may be found at another node.
    pub fn had_better_leave(&self, session: u64, visitor: Option<SocketAddr>) -> bool {
        self.are_at_other_nodes() || self.are_served_beside(session, visitor)
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
    pub fn lead_to_session(&self, id: u64) -> bool {
        match &*self.shared.load() {
            Some(members) => members.all.iter().any(|one| one.backend.session.id == id),
            None => self.first.load().session.id == id,
        }
    }

    /// Whether every client that may serve the entrance is disconnected.
    pub fn are_away(&self) -> bool {
        match &*self.shared.load() {
            Some(members) => members.all.iter().all(|one| one.backend.is_away()),
            None => self.first.load().is_away(),
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
        self.shared.store(Members::new(all).map(Arc::new));
        self.first.store(first);
        self.renew();
    }

    /// Directs new visitors to other sessions, with the same aim. Of several sessions the first
    /// that can serve a visitor serves it. An empty list changes nothing.
    pub fn lead_to(&self, sessions: &[Arc<Session>]) {
        let Some(first) = sessions.first() else { return };
        if self.first.load().session.id != first.id {
            self.change(|backend| {
                backend.session = Arc::clone(first);
                let aim = &backend.picked.aim;
                backend.picked = Arc::new(backend.picked.behind(first, aim));
            });
        }
        let first = self.first.load_full();
        let known = self.members();
        let member = |session: &Arc<Session>| {
            let is_same = |one: &&Arc<Member>| {
                let Backend { session: own, picked, .. } = &*one.backend;
                own.id == session.id && Arc::ptr_eq(&picked.aim, &first.picked.aim)
            };
            if session.id == first.session.id {
                return Arc::new(Member::new(0, Arc::clone(&first)));
            }
            known.iter().find(is_same).map_or_else(
                || Arc::new(Member::new(0, Arc::new(first.of_session(session)))),
                Arc::clone,
            )
        };
        let all: Vec<_> = sessions.iter().map(member).collect();
        let members = (all.len() > 1).then(|| Arc::new(Members::in_order(all)));
        self.shared.store(members);
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
    ///
    /// A client that is found at another node has the same target there, so whatever was admitted
    /// under the same aim stays current.
    pub fn replace(&self, session: &Arc<Session>, aim: Aim, gate: Option<&Arc<Gate>>) {
        let aim = Arc::new(aim);
        let is_found_again = {
            let first = self.first();
            first.locator.is_some() && first.picked.aim.is_as(&aim)
        };
        self.change(|backend| {
            backend.session = Arc::clone(session);
            if let Some(gate) = gate {
                backend.gate = Arc::clone(gate);
            }
            backend.picked = Arc::new(backend.picked.behind(session, &aim));
        });
        if !is_found_again {
            self.renew();
        }
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
}

fn next_edition() -> u64 {
    static EDITIONS: AtomicU64 = AtomicU64::new(1);
    EDITIONS.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
