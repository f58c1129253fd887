//! A route: the session, the service, and the limit of streams. An entrance binds the address; its
//! route may change while the entrance listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use config::Secret;
use proto::Target;
use proto::control::ServiceTerms;
use relay::{Credentials, Gate, ProxyKind};

use crate::session::Session;

/// The destination of the visitors of an entrance.
#[derive(Debug)]
pub(crate) struct Route {
    /// The service or the target. A reload may replace it ([`Self::set_aim`]).
    pub(crate) aim: ArcSwap<Aim>,
    edition: AtomicU64,
    /// The session whose links carry the streams. A new process of the client replaces the session
    /// with its own.
    pub(crate) session: ArcSwap<Session>,
    /// Limits the number of streams.
    pub(crate) gate: ArcSwap<Gate>,
}

impl Route {
    pub(crate) fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Arc<Self> {
        let (aim, session) = (ArcSwap::from_pointee(aim), ArcSwap::new(Arc::clone(session)));
        let edition = AtomicU64::new(next_edition());
        Arc::new(Self { aim, edition, session, gate: ArcSwap::new(gate) })
    }

    /// Replaces the aim. Requests that were judged by the former aim are not current any more.
    pub(crate) fn set_aim(&self, aim: Aim) {
        self.aim.store(Arc::new(aim));
        self.renew();
    }

    /// Takes a new edition: a request on a kept connection needs a new stream.
    pub(crate) fn renew(&self) {
        self.edition.store(next_edition(), Ordering::Release);
    }

    /// The number of the rules in force; no other route of this process has the same number at any
    /// time. A caller that reads the edition before the aim never takes a former aim for the new
    /// one.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The name of the service or forward in logs and status.
    pub(crate) fn name(&self) -> String {
        self.aim.load().name.clone()
    }
}

fn next_edition() -> u64 {
    static EDITIONS: AtomicU64 = AtomicU64::new(1);
    EDITIONS.fetch_add(1, Ordering::Relaxed)
}

/// Where streams lead, and on which terms.
#[derive(Debug)]
pub(crate) struct Aim {
    /// The name in logs and status.
    pub(crate) name: String,
    /// The service or address that the far side dials.
    pub(crate) target: Target,
    /// What holds for its visitors.
    pub(crate) terms: ServiceTerms,
    /// The options of HTTP in the form that the proxy needs, where visitors come by a name.
    pub(crate) rules: Option<Arc<web::Rules>>,
    /// The visitors name the target themselves, and the target of the aim is empty.
    pub(crate) proxy: Option<Arc<ProxyTerms>>,
}

impl PartialEq for Aim {
    fn eq(&self, other: &Self) -> bool {
        // The rules are another form of the terms.
        let Self { name, target, terms, rules: _, proxy } = self;
        let of_other = (&other.name, &other.target, &other.terms, &other.proxy);
        (name, target, terms, proxy) == of_other
    }
}

/// A forward whose visitors name their targets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxyTerms {
    pub(crate) kind: ProxyKind,
    /// Pairs `user:password`, one of which a visitor has to know; empty asks for none.
    pub(crate) users: Vec<Secret>,
}

impl ProxyTerms {
    /// The users in the form that the proxy needs.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        credentials(&self.users)
    }
}

/// The credentials of pairs `user:password`, which the configuration has checked.
pub(crate) fn credentials(pairs: &[Secret]) -> Option<Credentials> {
    Credentials::any_of(pairs.iter().filter_map(|pair| pair.reveal().split_once(':')))
}
