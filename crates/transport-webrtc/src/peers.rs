//! The settings of all connections of a process, and how many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::SignalError;
use crate::settings::WebrtcSettings;

/// Admits peers up to the limit. All workers share it.
#[derive(Clone, Debug)]
pub struct Peers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: WebrtcSettings,
    count: AtomicUsize,
}

/// The place of a peer; dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Place(Arc<Inner>);

impl Peers {
    /// No peer yet.
    #[must_use]
    pub fn new(settings: WebrtcSettings) -> Self {
        Self(Arc::new(Inner { settings, count: AtomicUsize::new(0) }))
    }

    /// Peers that are connected or about to connect.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    pub(crate) fn settings(&self) -> &WebrtcSettings {
        &self.0.settings
    }

    pub(crate) fn enter(&self) -> Result<Place, SignalError> {
        let limit = self.0.settings.peers;
        let more = |count| (count < limit).then_some(count + 1);
        match self.0.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Place(Arc::clone(&self.0))),
            Err(_) => Err(SignalError::Full(limit)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
