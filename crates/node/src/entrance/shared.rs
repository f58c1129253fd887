//! The part of an entrance that all workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::udp::Steering;
use relay::{FlowBounds, ProxyKind};

use super::announcers::Announcers;
use crate::backends::{Backends, InForce};
use crate::session::{Session, SessionPort};

/// The part of an entrance that all workers share. Its backends decide what serves a visitor.
#[derive(Debug)]
pub struct Entrance {
    /// Unique in this process.
    pub id: u64,
    /// The listening address, as a URL.
    pub address: String,
    /// What serves its visitors.
    pub backends: Backends,
    /// Steers the peers of a UDP port to workers.
    pub steering: Option<Arc<Steering>>,
    /// The limits of its peers' flows.
    pub bounds: Arc<FlowBounds>,
    /// The load balancers that announce the address of a visitor.
    pub announcers: Announcers,
}

/// Returns a new id for an entrance.
pub fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

impl Entrance {
    /// The name in logs and status.
    pub fn name(&self) -> String {
        self.in_force().aim().name.clone()
    }

    /// The terms and the gate that apply to a visitor before a backend is picked.
    pub fn in_force(&self) -> InForce {
        self.backends.in_force()
    }

    /// Whether its visitors may open flows: it is a UDP port or a SOCKS5 proxy.
    pub(super) fn carries_flows(&self) -> bool {
        let in_force = self.in_force();
        let is_socks =
            in_force.aim().proxy.as_ref().is_some_and(|terms| terms.kind == ProxyKind::Socks5);
        self.steering.is_some() || is_socks
    }

    /// Directs new visitors to other sessions, as [`Backends::lead_to`] does.
    pub fn lead_to(self: &Arc<Self>, sessions: &[Arc<Session>]) {
        self.backends.lead_to(sessions);
        sessions.iter().for_each(|session| self.steer(session));
    }

    /// Steers the peers of a UDP port to the workers that have a link of the session, now and after
    /// each change of these workers.
    pub fn steer(self: &Arc<Self>, session: &Session) {
        if self.steering.is_some() {
            session.add_port(&(Arc::clone(self) as Arc<dyn SessionPort>));
        }
    }
}

impl SessionPort for Entrance {
    fn leads_to(&self, session: u64) -> bool {
        self.backends.lead_to_session(session)
    }

    /// Steers the peers of a UDP port to the workers that have a link of a session that serves it,
    /// or, of a shared port, of a responsive session, if there is one. Existing flows keep their
    /// worker.
    fn lead_peers(&self) {
        let Some(steering) = &self.steering else { return };
        let all = self.backends.all();
        let workers = |only: bool| -> Vec<_> {
            let serving = all.iter().filter(|one| !only || one.session.answers());
            serving.flat_map(|one| one.session.flow_workers()).collect()
        };
        let mut workers = Some(workers(self.backends.is_shared()))
            .filter(|some| !some.is_empty())
            .unwrap_or_else(|| workers(false));
        workers.sort_unstable();
        workers.dedup();
        // Without a link, no worker can use a datagram.
        if !workers.is_empty()
            && let Err(error) = steering.assign(&workers)
        {
            tracing::warn!(
                client = self.in_force().accountable().client, address = self.address, %error,
                "the kernel does not lead the datagrams of {} to the workers with links: {error}",
                self.address
            );
        }
    }
}
