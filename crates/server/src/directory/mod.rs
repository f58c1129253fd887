//! The directory: which client holds which public resource, and which ports services had before.
//! Servers that publish for the same clients would have to agree on both, so each query that needs
//! such an agreement is made here. [`Local`] is the directory of a single server.
//!
//! ```text
//!   publication ──claim, release──> Directory   asynchronous: other servers may have to be asked
//!   visitor ──────find──────> Names (a snapshot of each worker's look-ups, never the directory)
//! ```
//!
//! Each server limits its own listeners (`registry/publish/budget.rs`) and delays guesses
//! independently (`brake.rs`): an agreement would cost every log-in an answer of all other servers.
//! The clients that were enrolled by a code have a separate trait ([`Enrolled`](super::Enrolled)).

mod local;
mod ports;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use config::Over;

use node::names::Space;

pub(super) use local::Local;

/// A resource that one client at a time may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A port of this protocol. A TCP port and the UDP port of the same number are two resources.
    Port(Over, SocketAddr),
    /// A name in this space.
    Name(Space, Arc<str>),
}

impl Key {
    /// The port at which visitors connect; `None` for a name.
    pub(super) const fn port(&self) -> Option<Port> {
        match self {
            Self::Port(over, address) => Some((*over, *address)),
            Self::Name(..) => None,
        }
    }
}

/// A port of a protocol.
pub(super) type Port = (Over, SocketAddr);

/// A client already holds the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken;

/// The answer of a directory.
pub(super) type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which client holds which resource. A claimed resource belongs to its owner until it is released.
pub(super) trait Directory: fmt::Debug + Send + Sync {
    /// Gives a resource to a client, if it is free. A future that is dropped before it completes
    /// has claimed nothing.
    ///
    /// # Errors
    /// A client holds the resource, possibly `owner` itself.
    fn claim<'a>(&'a self, key: &'a Key, owner: &'a Arc<str>) -> Answer<'a, Result<(), Taken>>;

    /// Frees a resource. The caller does not wait: a directory that must notify other servers does
    /// so in the background.
    fn release(&self, key: &Key);

    /// The client that has a resource.
    fn locate<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Arc<str>>>;

    /// The ports that the server chose for a service of a client, oldest first.
    fn chosen<'a>(&'a self, client: &'a str, service: &'a str) -> Answer<'a, Vec<Port>>;

    /// The ports that were chosen for other services, of this client or of others.
    fn chosen_by_others<'a>(
        &'a self,
        client: &'a str,
        service: &'a str,
    ) -> Answer<'a, HashSet<Port>>;

    /// Records the port that the server has chosen for a service.
    fn note_chosen(&self, client: &str, service: &str, port: Port);

    /// Forgets the ports of a client that was removed.
    fn forget(&self, client: &str);

    /// Stores what was recorded since the last call. Must be called inside a Tokio runtime.
    fn save(&self);
}

/// A resource of a client. Dropping it releases the resource.
#[derive(Debug)]
pub(super) struct Claim {
    directory: Arc<dyn Directory>,
    key: Key,
}

impl Claim {
    /// Claims a resource for a client.
    ///
    /// # Errors
    /// As for [`Directory::claim`].
    pub(super) async fn new(
        directory: &Arc<dyn Directory>,
        key: Key,
        owner: &Arc<str>,
    ) -> Result<Self, Taken> {
        if let Err(taken) = directory.claim(&key, owner).await {
            // The client that is refused does not learn the name of the other client.
            let other = directory.locate(&key).await;
            tracing::debug!(client = &**owner, ?key, ?other, "a resource is taken");
            return Err(taken);
        }
        Ok(Self { directory: Arc::clone(directory), key })
    }

    /// The resource.
    pub(super) const fn key(&self) -> &Key {
        &self.key
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.directory.release(&self.key);
    }
}
