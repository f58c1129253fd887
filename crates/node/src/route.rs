//! A route: the session, the service, and the limit of streams. An entrance binds the address; its
//! route may change while the entrance listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::Secret;
use proto::control::FlowTimes;
use proto::{HttpOptions, Priority, Target, Visitors};
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

/// The request that opens a stream at the far side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// The name in logs and status.
    pub(crate) name: String,
    /// The service or address that the far side dials.
    pub(crate) target: Target,
    /// The priority of the streams.
    pub(crate) priority: Priority,
    /// Who may visit.
    pub(crate) visitors: Visitors,
    /// What the server does with HTTP requests, where visitors come by a name.
    pub(crate) http: Option<Arc<HttpTerms>>,
    /// When its idle flows end.
    pub(crate) flows: FlowTimes,
    /// The keepalive of the sockets of its visitors ([`net::socket::keep_alive`]).
    pub(crate) keepalive: Duration,
    /// The visitors name the target themselves, and the target of the aim is empty.
    pub(crate) proxy: Option<Arc<ProxyTerms>>,
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

/// The options of a service by HTTP name.
#[derive(Debug)]
pub(crate) struct HttpTerms {
    pub(crate) options: HttpOptions,
    /// The options in the form that the proxy needs.
    pub(crate) rules: Arc<web::Rules>,
}

impl HttpTerms {
    /// # Errors
    /// An option that no HTTP message can have.
    pub(crate) fn new(options: &HttpOptions) -> Result<Self, web::InvalidRule> {
        Ok(Self { options: options.clone(), rules: Arc::new(web::Rules::new(options)?) })
    }
}

impl PartialEq for HttpTerms {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
    }
}

impl Eq for HttpTerms {}
