//! What serves the visitors of an entrance. An entrance binds the address; its backends may change
//! while the entrance listens.
//!
//! ```text
//!   visitor ──pick──> To(backend)     a stream over a link of the session, which keeps `Picked`
//!                     Here(backend)   this process dials a target itself
//!                     Wait            a backend may serve the visitor, and has no live link here
//!                     Refuse(answer)  no backend may serve the visitor, or each was tried
//! ```
//!
//! An entrance has one backend today: the session of the client that publishes the service, the
//! session of the server to which a forward leads, or the targets of a proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use proto::ResetCode;
use relay::Gate;

use crate::aim::Aim;
use crate::entrance::Answer;
use crate::health::Health;
use crate::session::Session;

/// The backends of one entrance.
#[derive(Debug)]
pub(crate) struct Backends {
    only: ArcSwap<Backend>,
    edition: AtomicU64,
}

/// A session that serves visitors. It does not change: another one takes its place.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    /// The session whose links carry the streams. A new process of the client replaces the session
    /// with its own.
    pub(crate) session: Arc<Session>,
    /// Limits the number of streams.
    pub(crate) gate: Arc<Gate>,
    /// What a stream keeps.
    pub(crate) picked: Arc<Picked>,
}

/// What serves a stream. It belongs to the stream until its end: log, status and limits of a stream
/// name it even if other backends serve the entrance by then. It does not hold the session, whose
/// totals are final when its last link has ended.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    /// The client's name; on a client the name of the server.
    pub(crate) client: String,
    /// The service or the target, and the terms.
    pub(crate) aim: Arc<Aim>,
    /// Whether the target serves, as the streams report it.
    pub(crate) health: Arc<Health>,
}

/// A backend that did not open a stream for a visitor.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) picked: Arc<Picked>,
    pub(crate) why: ResetCode,
}

/// The backend for a visitor.
pub(crate) enum Pick {
    /// This one serves the visitor.
    To(Guard<Arc<Backend>>),
    /// A target of this process serves the visitor: of a proxy.
    Here(Guard<Arc<Backend>>),
    /// There is one, to which no live link leads from here.
    Wait,
    /// There is none.
    Refuse(Answer),
}

impl Backends {
    pub(crate) fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Self {
        let picked =
            Picked { client: session.name.clone(), aim: Arc::new(aim), health: Arc::default() };
        let backend = Backend { session: Arc::clone(session), gate, picked: Arc::new(picked) };
        let edition = AtomicU64::new(next_edition());
        Self { only: ArcSwap::from_pointee(backend), edition }
    }

    /// The backend by which the entrance is named, listed and judged. A visitor asks
    /// [`Self::pick`].
    pub(crate) fn first(&self) -> Guard<Arc<Backend>> {
        self.only.load()
    }

    /// The backend for a visitor, other than those that were `tried`. `is_live` says whether this
    /// worker has a link of the session that takes streams.
    pub(crate) fn pick(
        &self,
        visitor: Option<SocketAddr>,
        tried: &[Tried],
        is_live: impl FnOnce(&Session) -> bool,
    ) -> Pick {
        let backend = self.only.load();
        if !backend.picked.aim.permits(visitor) {
            return Pick::Refuse(Answer::Forbidden);
        }
        let is_this = |tried: &&Tried| Arc::ptr_eq(&tried.picked, &backend.picked);
        if let Some(tried) = tried.iter().find(is_this) {
            return Pick::Refuse(Answer::Down(tried.why));
        }
        if backend.session.is_here() {
            return Pick::Here(backend);
        }
        if is_live(&backend.session) { Pick::To(backend) } else { Pick::Wait }
    }

    /// Leads new visitors to another session, with the same aim.
    pub(crate) fn lead_to(&self, session: &Arc<Session>) {
        self.change(|backend| {
            backend.session = Arc::clone(session);
            let picked = Picked { client: session.name.clone(), ..Picked::clone(&backend.picked) };
            backend.picked = Arc::new(picked);
        });
    }

    /// Replaces the aim. Requests that were judged by the former aim are not current any more.
    pub(crate) fn set_aim(&self, aim: Aim) {
        let aim = Arc::new(aim);
        self.change(|backend| {
            let aim = Arc::clone(&aim);
            backend.picked = Arc::new(Picked { aim, ..Picked::clone(&backend.picked) });
        });
        self.renew();
    }

    /// Forgets what is known of the target.
    pub(crate) fn forget_health(&self) {
        self.first().picked.health.forget();
    }

    /// Replaces the backend in one step, so that no visitor has a part of both. Requests that were
    /// judged before are not current any more, even if the aim is the same: the target of the
    /// service may have changed. `gate`: `None` keeps the gate.
    pub(crate) fn replace(&self, session: &Arc<Session>, aim: Aim, gate: Option<&Arc<Gate>>) {
        let aim = Arc::new(aim);
        self.change(|backend| {
            backend.session = Arc::clone(session);
            if let Some(gate) = gate {
                backend.gate = Arc::clone(gate);
            }
            let (client, aim) = (session.name.clone(), Arc::clone(&aim));
            backend.picked = Arc::new(Picked { client, aim, ..Picked::clone(&backend.picked) });
        });
        self.renew();
    }

    fn change(&self, change: impl Fn(&mut Backend)) {
        self.only.rcu(|backend| {
            let mut backend = Backend::clone(backend);
            change(&mut backend);
            backend
        });
    }

    /// Takes a new edition: a request on a kept connection needs a new stream.
    fn renew(&self) {
        self.edition.store(next_edition(), Ordering::Release);
    }

    /// The number of the rules in force; no other entrance of this process has the same number at
    /// any time. A caller that reads the edition before the aim never takes a former aim for the
    /// new one.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The name of the service or forward in logs and status.
    pub(crate) fn name(&self) -> String {
        self.first().picked.aim.name.clone()
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
            assert!(matches!(backends.pick(peer, &[], |_| true), Pick::To(_)));
            assert!(matches!(backends.pick(peer, &[], |_| false), Pick::Wait));
        }
        let bad = backends.pick(visitor([192, 0, 2, 7]), &[], |_| true);
        assert!(matches!(bad, Pick::Refuse(Answer::Forbidden)));
    }

    #[test]
    fn a_backend_that_opened_no_stream_is_tried_once() {
        let session = Session::new("home", 1);
        let backends = backends(&session);
        let picked = Arc::clone(&backends.first().picked);
        let tried = [Tried { picked, why: ResetCode::Limit }];
        let again = backends.pick(None, &tried, |_| true);
        assert!(matches!(again, Pick::Refuse(Answer::Down(ResetCode::Limit))));
        // Another process of the client is another backend.
        backends.lead_to(&Session::new("home", 1));
        assert!(matches!(backends.pick(None, &tried, |_| true), Pick::To(_)));
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
}
