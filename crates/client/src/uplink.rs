//! An uplink: everything that belongs to one server of a client. A client has a list of uplinks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::ClientConfig;
use ops::events::Events;
use proto::control::StunPorts;
use tokio::time::Instant;

use super::destination::Places;
use super::links::Links;
use super::published::Published;
use node::session::{Handle, Session};

/// A server as this client knows it.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// The current links, which take streams.
    links: ArcSwap<Links>,
    /// The state of the services according to the server.
    pub(super) published: Published,
    /// The public addresses of the services.
    pub(super) places: Places,
    /// The generation of the registered set of services.
    generation: AtomicU64,
    /// Whether this process has logged in at the server at least once.
    pub(super) logged_in: Arc<AtomicBool>,
    /// Whether the client has a shared service. New links announce it.
    pub(super) shares: Arc<AtomicBool>,
    /// The ports at which the server answers STUN.
    stun: ArcSwap<StunPorts>,
}

impl Uplink {
    pub(super) fn new(links: &Arc<Links>, events: &Events, generation: u64) -> Arc<Self> {
        Arc::new(Self {
            links: ArcSwap::new(Arc::clone(links)),
            published: Published::new(events),
            places: Places::default(),
            generation: AtomicU64::new(generation),
            logged_in: Arc::default(),
            shares: Arc::default(),
            stun: ArcSwap::default(),
        })
    }

    /// Records whether this client has a shared service, which new links announce.
    pub(super) fn note_shares(&self, config: &ClientConfig) {
        let shares = config.services.iter().any(config::Service::is_shared);
        self.shares.store(shares, Ordering::Relaxed);
    }

    /// Records the ports at which the server answers STUN.
    pub(super) fn note_stun(&self, ports: StunPorts) {
        if **self.stun.load() != ports {
            tracing::debug!(?ports, "the server answers STUN");
            self.stun.store(Arc::new(ports));
        }
    }

    /// The ports at which the server answers STUN, as it announced last.
    pub(super) fn stun(&self) -> Arc<StunPorts> {
        self.stun.load_full()
    }

    /// The session of the current links.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.links.load().session)
    }

    /// The generation of the set of services that a new link registers.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins the next generation, and returns its number.
    pub(super) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Release) + 1
    }

    /// No more links are made; live links continue.
    pub(super) fn leave(&self) {
        self.links.load().leaving.store(true, Ordering::Relaxed);
    }

    /// Retires the current links, which the links of the next process replace.
    pub(super) async fn retire(&self, handles: &[Handle]) {
        self.links.load_full().retire(handles).await;
    }

    /// Replaces the current links, which retire. A process that is stopping sets `leaving` and then
    /// calls [`Self::leave`]; this call sets the links first and then reads `leaving`. So the new
    /// links see it in any case.
    pub(super) async fn replace(
        &self,
        links: Arc<Links>,
        handles: &[Handle],
        leaving: &AtomicBool,
    ) {
        let before = self.links.swap(links);
        if leaving.load(Ordering::SeqCst) {
            self.leave();
        }
        // The failures of the old links no longer matter.
        self.published.note_trouble(None);
        before.retire(handles).await;
    }

    /// A worker with a live link: `from` or another. Waits for a link up to `limit` when there is
    /// none.
    pub(crate) async fn live_worker(&self, from: usize, limit: Duration) -> Option<usize> {
        let deadline = Instant::now() + limit;
        loop {
            let session = self.session();
            let revived = session.revived.notified();
            if let Some(worker) = session.live_worker(from) {
                return Some(worker);
            }
            tokio::select! {
                () = revived => {}
                () = tokio::time::sleep_until(deadline) => return None,
                // A reload may have replaced the session.
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    }
}

/// The uplinks of a client, at least one.
#[derive(Debug)]
pub(super) struct Uplinks {
    preferred: Arc<Uplink>,
    others: Vec<Arc<Uplink>>,
}

impl Uplinks {
    pub(super) fn of(preferred: Arc<Uplink>) -> Self {
        Self { preferred, others: Vec::new() }
    }

    /// The uplink of commands and forwards that name no server.
    pub(super) fn preferred(&self) -> &Arc<Uplink> {
        &self.preferred
    }

    /// All uplinks, the preferred uplink first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Uplink>> {
        std::iter::once(&self.preferred).chain(&self.others)
    }
}
