//! What a joined stream takes while it lives, and where it is counted.

use std::rc::Rc;

use crate::{Permit, Stats};

/// The account of a joined stream: the counters of its service, and its places in the limits of the
/// two clients. Dropping it gives the places back.
#[derive(Debug, Default)]
pub struct Crossing {
    /// `None`: nobody counts the stream.
    stats: Option<Rc<Stats>>,
    /// The stream with the outlet is that of the service.
    is_far: bool,
    _permits: Vec<Permit>,
}

impl Crossing {
    /// Counts the stream in `stats` from now on.
    #[must_use]
    pub fn new(stats: Rc<Stats>, permits: Vec<Permit>) -> Self {
        stats.count_opened();
        stats.enter();
        Self { stats: Some(stats), is_far: false, _permits: permits }
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
