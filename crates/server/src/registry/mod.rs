//! Sessions, links and their workers: the only state of a server that all workers share. It is not
//! on the data path: it is used at log-ins, registrations, new forwarded streams, and the end of
//! links.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cluster::names::Instance;
use logging::RepeatLimit;

use super::ServerShared;
use super::brake::Brake;
use super::directory::Directory;
use super::presence::{Presence, instance_of};
use super::shared_clients::{MaybeShared, SharedClients};
use super::sightings::Sightings;
use node::descriptors;
use node::session::{Handle, Session};

mod common;
mod elsewhere;
mod entries;
mod listing;
mod log_in;
mod pending;
mod publish;
mod registration;
mod sessions;
mod takeover;
#[cfg(test)]
pub(super) mod tests;

pub(super) use listing::ClientNotes;
use pending::Pending;
use publish::Published;
use sessions::Sessions;

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Itself, for tasks that outlive a call.
    own: Weak<Self>,
    shared: Arc<ServerShared>,
    handles: Arc<[Handle]>,
    brake: Brake,
    /// A random number of this process: the first four bytes of its link ids.
    generation: [u8; 4],
    serials: Arc<AtomicU64>,
    sessions: Mutex<Sessions>,
    /// Limits the log lines about introductions.
    introduced: Mutex<RepeatLimit<IpAddr>>,
    /// The log-in records of the clients.
    sightings: Sightings,
    /// Pending registrations.
    pending: Pending,
    /// The clients whose processes are about to be compared again.
    ranked: Mutex<HashSet<String>>,
    /// The entrances of services.
    published: Published,
    /// What the cluster is told of the processes of clients; `None`: the server is alone.
    presence: Option<Arc<Presence>>,
    /// The codes and the enrolled clients of the cluster; `None`: the server is alone.
    common: MaybeShared,
    /// The server is stopping: it accepts no new link and publishes nothing. A resumed link
    /// continues, because its streams may finish.
    leaving: AtomicBool,
}

impl Registry {
    pub(super) fn new(
        shared: Arc<ServerShared>,
        handles: Arc<[Handle]>,
        directory: Arc<dyn Directory>,
        presence: Option<Arc<Presence>>,
    ) -> Arc<Self> {
        let limits = (descriptors::of_listeners(), descriptors::kept() / 4);
        let common = presence
            .as_ref()
            .map(|presence| Arc::new(SharedClients::new(presence.cluster().clone())));
        let published = Published::new(limits, directory, shared.public_bind);
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            shared,
            handles,
            brake: Brake::new(),
            generation: link::random(),
            serials: Arc::new(AtomicU64::new(1)),
            sessions: Mutex::default(),
            introduced: Mutex::new(RepeatLimit::new().with_quota()),
            sightings: Sightings::default(),
            pending: Pending::default(),
            ranked: Mutex::default(),
            published,
            presence,
            common,
            leaving: AtomicBool::new(false),
        })
    }

    pub(super) fn shared(&self) -> &ServerShared {
        &self.shared
    }

    pub(super) const fn shared_arc(&self) -> &Arc<ServerShared> {
        &self.shared
    }

    /// The number of the next link of this process.
    pub(super) const fn serials(&self) -> &Arc<AtomicU64> {
        &self.serials
    }

    /// The workers.
    pub(super) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// The sessions of a process of a client that is in force, by its number in the cluster.
    pub(super) fn processes_of(&self, client: &str, instance: Instance) -> Vec<Arc<Session>> {
        let is_it = |own, is_beside| instance_of(client, own, is_beside) == instance;
        self.sessions().of_process(client, is_it)
    }

    pub(super) fn brake(&self) -> &Brake {
        &self.brake
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of the link with this serial.
    pub(super) fn session_of(&self, serial: u64) -> Option<Arc<Session>> {
        self.sessions().link(serial).map(|entry| Arc::clone(&entry.session))
    }

    /// Whether the server is stopping, or another process has replaced it.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Whether a client of this name has a link.
    pub(super) fn is_connected(&self, name: &str) -> bool {
        self.sessions().is_connected(name)
    }
}
