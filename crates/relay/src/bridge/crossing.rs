//! The permits, the counters and the byte rates of a joined stream.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::admit::Gate;
use crate::{Permit, Stats};

/// The account of a joined stream: the counters of its service, and its permits in the limits of
/// the two clients. Dropping the account returns the permits. The rates `up` of these limits apply
/// to bytes of the visitor, and the rates `down` to bytes of the service.
#[derive(Debug, Default)]
pub struct Crossing {
    /// `None`: the stream is not counted.
    stats: Option<Rc<Stats>>,
    /// Whether the stream with the outlet is that of the service.
    is_far: bool,
    /// The address of the visiting client.
    visitor: Option<SocketAddr>,
    /// The rates of the stream; `None`: it has none.
    gate: Option<Arc<Gate>>,
    _permits: Vec<Permit>,
}

impl Crossing {
    /// Counts the stream in `stats` from now on.
    #[must_use]
    pub fn new(stats: Rc<Stats>, permits: Vec<Permit>) -> Self {
        stats.count_opened();
        stats.enter();
        let gate = Gate::of_all(&permits);
        Self { stats: Some(stats), is_far: false, visitor: None, gate, _permits: permits }
    }

    /// Sets the address of the visiting client, for the list of streams.
    #[must_use]
    pub const fn of_visitor(mut self, visitor: Option<SocketAddr>) -> Self {
        self.visitor = visitor;
        self
    }

    /// As [`Self::new`], for the stream to the service, whose bytes are for the visitor.
    #[must_use]
    pub fn far(stats: Rc<Stats>, permits: Vec<Permit>) -> Self {
        let mut own = Self::new(stats, permits);
        own.is_far = true;
        own
    }

    /// Counts bytes that the outlet receives.
    pub(super) fn count_in(&self, bytes: usize) {
        match &self.stats {
            Some(stats) if self.is_far => stats.count_out(bytes),
            Some(stats) => stats.count_in(bytes),
            None => {}
        }
    }

    /// Counts bytes of the other stream.
    pub(super) fn count_out(&self, bytes: usize) {
        match &self.stats {
            Some(stats) if self.is_far => stats.count_in(bytes),
            Some(stats) => stats.count_out(bytes),
            None => {}
        }
    }

    /// The gate with the rates of the stream.
    pub(super) const fn gate(&self) -> Option<&Arc<Gate>> {
        self.gate.as_ref()
    }

    /// The address of the visiting client.
    pub(super) const fn visitor(&self) -> Option<SocketAddr> {
        self.visitor
    }

    /// The identity of the counters.
    pub(super) fn identity(&self) -> *const () {
        self.stats.as_ref().map_or(std::ptr::null(), |stats| stats.identity())
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        if let Some(stats) = &self.stats {
            stats.leave();
        }
    }
}
