//! The interface that a client provides for its links with other clients.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use config::ClientConfig;
use ops::SendFuture;
use proto::InstanceId;
use proto::greeting::StoredCredential;

use super::services::service;
use super::shared::ClientShared;
use super::stun;
use node::session::{Session, Worker};
use peer::accept::PeerHost;
use peer::direct::DirectPaths;
use peer::home::Home;
use peer::material::Materials;
use targets::Local;

impl ClientShared {
    /// This client, as its links with other clients see it.
    pub(super) fn home(self: &Arc<Self>) -> Arc<dyn Home> {
        Arc::<Self>::clone(self)
    }
}

impl Home for ClientShared {
    fn config(&self) -> &ArcSwap<ClientConfig> {
        &self.config
    }

    fn host(&self) -> &PeerHost {
        &self.host
    }

    fn materials(&self) -> &Materials {
        &self.materials
    }

    fn direct(&self) -> &DirectPaths {
        &self.direct
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving()
    }

    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn serials(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.serials)
    }

    fn server(&self) -> Arc<Session> {
        self.uplink().session()
    }

    fn live_worker(&self, from: usize, patience: Duration) -> SendFuture<'_, Option<usize>> {
        let uplink = self.uplink();
        Box::pin(async move { uplink.live_worker(from, patience).await })
    }

    fn stun(&self) -> SendFuture<'_, Vec<SocketAddr>> {
        Box::pin(async move {
            let config = self.config.load_full();
            stun::of(&self.uplink(), &config, stun::LOOKUPS).await
        })
    }

    fn service(&self, worker: &Worker, name: &str) -> Option<Rc<Local>> {
        service(worker, self, name)
    }

    fn note_visit(&self, visitor: &str, service: &str, token: &StoredCredential) {
        self.invites.note_visit(visitor, service, token);
    }
}
