//! The interface of the client process around the links with other clients.

use std::fmt;
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

use super::accept::PeerHost;
use super::direct::DirectPaths;
use super::material::Materials;
use node::session::{Session, Worker};
use targets::Local;

/// The client process, as its links with other clients see it.
pub trait Home: fmt::Debug + Send + Sync {
    /// The configuration in force.
    fn config(&self) -> &ArcSwap<ClientConfig>;

    /// The links of visitors of private services.
    fn host(&self) -> &PeerHost;

    /// The certificates of visits.
    fn materials(&self) -> &Materials;

    /// The direct paths to other clients.
    fn direct(&self) -> &DirectPaths;

    /// Whether this process is stopping.
    fn is_leaving(&self) -> bool;

    /// The random id of this process.
    fn instance(&self) -> InstanceId;

    /// The number of the next link.
    fn serials(&self) -> Arc<AtomicU64>;

    /// The session with the server of the other clients.
    fn server(&self) -> Arc<Session>;

    /// A worker with a live link to the server, for which the caller waits at most this time.
    fn live_worker(&self, from: usize, patience: Duration) -> SendFuture<'_, Option<usize>>;

    /// The STUN servers for a trial of a direct path.
    fn stun(&self) -> SendFuture<'_, Vec<SocketAddr>>;

    /// A service of the configuration in force, on this worker.
    fn service(&self, worker: &Worker, name: &str) -> Option<Rc<Local>>;

    /// Records that a visitor with this token visits a service.
    fn note_visit(&self, visitor: &str, service: &str, token: &StoredCredential);
}
