//! What a joined stream takes while it lives, where it is counted, and the rates of its bytes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::admit::Gate;
use crate::{Permit, Stats};

/// The account of a joined stream: the counters of its service, and its places in the limits of the
/// two clients. Dropping it gives the places back. Bytes of the visitor are under the rates `up` of
/// these limits, and bytes of the service under the rates `down`.
#[derive(Debug, Default)]
pub struct Crossing {
    /// `None`: nobody counts the stream.
    stats: Option<Rc<Stats>>,
    /// The stream with the outlet is that of the service.
    is_far: bool,
    /// The address of the client that visits.
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

    /// The same, with the address of the client that visits, for the list of streams.
    #[must_use]
    pub const fn of_visitor(mut self, visitor: Option<SocketAddr>) -> Self {
        self.visitor = visitor;
        self
    }

    /// The same at the stream to the service, whose bytes are for the visitor.
    #[must_use]
    pub fn far(stats: Rc<Stats>, permits: Vec<Permit>) -> Self {
        let mut own = Self::new(stats, permits);
        own.is_far = true;
        own
    }

    /// Counts bytes that the outlet gets.
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

    /// The address of the client that visits.
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
