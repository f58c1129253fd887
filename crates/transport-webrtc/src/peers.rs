//! The settings of all connections of a process, and the number of peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::SignalError;
use crate::settings::WebrtcSettings;

/// Admits peers up to the limit. All workers share it.
#[derive(Clone, Debug)]
pub struct Peers {
    settings: Arc<WebrtcSettings>,
    count: Arc<AtomicUsize>,
}

/// The slot of a peer; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Peers {
    /// Makes an empty set of peers.
    #[must_use]
    pub fn new(settings: WebrtcSettings) -> Self {
        Self { settings: Arc::new(settings), count: Arc::default() }
    }

    /// The same peers with other settings, for new connections.
    #[must_use]
    pub fn with(&self, settings: WebrtcSettings) -> Self {
        Self { settings: Arc::new(settings), count: Arc::clone(&self.count) }
    }

    /// The number of peers that are connected or about to connect.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn settings(&self) -> &WebrtcSettings {
        &self.settings
    }

    pub(crate) fn enter(&self) -> Result<Place, SignalError> {
        let limit = self.settings.peers;
        let more = |count| (count < limit).then_some(count + 1);
        match self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Place(Arc::clone(&self.count))),
            Err(_) => Err(SignalError::Full(limit)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
