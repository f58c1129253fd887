//! The backends of a shared entrance, and the choice among them.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::Guard;
use proto::{Balance, ResetCode};
use relay::balance::{Candidate, Turns, fingerprint, key_of};

use super::backend::{Backend, Pick, Tried};
use crate::answer::Answer;
use crate::health::{clock_millis, percent_since};
use crate::session::Session;

/// The backends of a shared entrance, or of a forward with several servers; at least one.
#[derive(Debug)]
pub(super) struct Members {
    /// `None`: the first backend that can serve a visitor serves it.
    policy: Option<Balance>,
    /// Of a shared entrance, the oldest first.
    pub(super) all: Box<[Arc<Member>]>,
    turns: Mutex<Turns>,
}

#[derive(Debug)]
pub(super) struct Member {
    /// Its id for the policy by address. It stays the same when the client reconnects.
    pub(super) id: u64,
    pub(super) backend: Arc<Backend>,
    /// When a visitor was last directed to it although its target was down, in milliseconds of
    /// [`clock_millis`].
    pub(super) tried: AtomicU64,
    /// Whether its target was down when a visitor was last directed to any member.
    was_down: AtomicBool,
    /// When its target was first seen to serve again, by the same clock; 0: it was not down.
    pub(super) back: AtomicU64,
}

/// A backend whose target is down gets one trial visitor this long after its last failure, in
/// milliseconds, like a target of a list.
const TRIAL: u64 = 10_000;

impl Members {
    /// The policy is that of the oldest backend. `None`: there is no backend.
    pub(super) fn new(all: Vec<Arc<Member>>) -> Option<Self> {
        let policy = all.first()?.backend.picked.aim.terms.shared.unwrap_or_default();
        Some(Self { policy: Some(policy), all: all.into(), turns: Mutex::default() })
    }

    /// Backends of which the first that can serve a visitor serves it.
    pub(super) fn in_order(all: Vec<Arc<Member>>) -> Self {
        Self { policy: None, all: all.into(), turns: Mutex::default() }
    }

    /// Whether each backend has counters of its own.
    pub(super) const fn count_apart(&self) -> bool {
        self.policy.is_some()
    }

    /// Whether another backend may serve a visitor that a backend has refused for this reason. The
    /// backends of a forward are servers, and a server that has dialled the target and failed gives
    /// the answer that the visitor gets.
    fn may_follow(&self, why: ResetCode) -> bool {
        // A stream that leaves a silent link has `Timeout`; a target that did not answer the server
        // does not lead here.
        let is_of_server = matches!(
            why,
            ResetCode::Shutdown | ResetCode::Internal | ResetCode::Timeout | ResetCode::Moved
        );
        self.policy.is_some() || is_of_server
    }

    pub(super) fn pick(
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
        let last = tried.last().map(|tried| tried.why);
        let is_final = last.is_some_and(|why| !self.may_follow(why));
        // A client that no node serves now is looked for.
        let is_sought = self.all.iter().any(|one| one.backend.is_elsewhere());
        if is_sought && !is_final && !self.all.iter().any(|one| one.backend.takes_visitors()) {
            return Pick::Wait;
        }
        if is_final || !self.all.iter().any(|one| is_left(one)) {
            return Pick::Refuse(Answer::Down(last.unwrap_or(ResetCode::Shutdown)));
        }
        let takes = |of: &Backend| of.takes_visitors() && !of.session.is_on_hold();
        let may = |one: &Member| is_left(one) && takes(&one.backend);
        let wished =
            self.all.iter().find(|one| Some(one.backend.session.id) == preferred && may(one));
        let picked = wished.or_else(|| self.choose(visitor.map(|peer| peer.ip()), may));
        let Some(picked) = picked else {
            // A visitor for whom there is a reason to refuse does not wait for disconnected
            // clients.
            return last.map_or(Pick::Wait, |why| Pick::Refuse(Answer::Down(why)));
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
    pub(super) fn choose(
        &self,
        visitor: Option<IpAddr>,
        may: impl Fn(&Member) -> bool,
    ) -> Option<&Arc<Member>> {
        self.choose_at(clock_millis(), visitor, may)
    }

    pub(super) fn choose_at(
        &self,
        now: u64,
        visitor: Option<IpAddr>,
        may: impl Fn(&Member) -> bool,
    ) -> Option<&Arc<Member>> {
        self.all.iter().for_each(|one| one.note_health(now));
        let Some(policy) = self.policy else {
            let answers = |one: &&Arc<Member>| may(one) && one.backend.session.answers();
            return self.all.iter().find(answers).or_else(|| self.all.iter().find(|one| may(one)));
        };
        let key = visitor.map(|ip| key_of(&ip.into()));
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pick = |is_fit: &dyn Fn(&Member) -> bool| {
            let candidate =
                |one: &Arc<Member>| (may(one) && is_fit(one)).then(|| one.candidate(now));
            let candidates: Vec<_> = self.all.iter().map(candidate).collect();
            turns.pick(policy, &candidates, key).and_then(|place| self.all.get(place))
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
    pub(super) fn new(id: u64, backend: Arc<Backend>) -> Self {
        let (tried, was_down, back) = Default::default();
        Self { id, backend, tried, was_down, back }
    }

    /// All members have the weight 100; a member whose target has just recovered gets a part of it.
    pub(super) fn candidate(&self, now: u64) -> Candidate {
        let percent = percent_since(self.back.load(Ordering::Relaxed), now);
        let now = u32::try_from(percent).unwrap_or(100);
        // The workers do not share the round-trip times of their links.
        Candidate { id: self.id, weight: 100, now, live: self.backend.gate.live(), micros: 0 }
    }

    /// Records when its target serves again.
    pub(super) fn note_health(&self, now: u64) {
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
    pub(super) fn free_id(all: &[Arc<Self>], client: &str) -> u64 {
        let ids = (0_u64..).map(|nth| fingerprint(&format!("{client} {nth}")));
        let is_free = |id: &u64| all.iter().all(|one| one.id != *id);
        ids.into_iter().find(is_free).unwrap_or_default()
    }

    /// Whether its target is not known to be down, or a trial visitor is due.
    pub(super) fn is_fit(&self, now: u64) -> bool {
        self.backend.picked.health.fault().is_none_or(|fault| {
            let last = fault.since_millis().max(self.tried.load(Ordering::Relaxed));
            now.saturating_sub(last) >= TRIAL
        })
    }
}
