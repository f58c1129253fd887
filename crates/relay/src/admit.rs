//! Admission: a [`Permit`] is the proof that a stream is within its limits; drop returns it.
//!
//! The count is shared by all workers, since a limit of a service is not one per worker. That is
//! an atomic per opened stream, none per byte, and none at all for a gate without limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A limit of live streams, optionally within the limit of a larger whole (service in client).
#[derive(Debug)]
pub struct Gate {
    limit: Option<u32>,
    live: AtomicU32,
    outer: Option<Arc<Self>>,
}

impl Gate {
    /// A gate on its own; `None` lets everybody in.
    #[must_use]
    pub fn new(limit: Option<u32>) -> Arc<Self> {
        Arc::new(Self { limit, live: AtomicU32::new(0), outer: None })
    }

    /// A gate inside `outer`: who passes it has passed both.
    #[must_use]
    pub fn within(outer: Arc<Self>, limit: Option<u32>) -> Arc<Self> {
        Arc::new(Self { limit, live: AtomicU32::new(0), outer: Some(outer) })
    }

    /// Admits one stream, or `None` when this gate or an outer one is full.
    #[must_use]
    pub fn admit(self: &Arc<Self>) -> Option<Permit> {
        self.enter().then(|| Permit(Arc::clone(self)))
    }

    /// Live permits of this gate; 0 where nothing is limited, because nothing is counted.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    fn enter(&self) -> bool {
        if !self.outer.as_ref().is_none_or(|outer| outer.enter()) {
            return false;
        }
        let Some(limit) = self.limit else { return true };
        let admitted = self
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1))
            .is_ok();
        if !admitted && let Some(outer) = &self.outer {
            outer.leave();
        }
        admitted
    }

    fn leave(&self) {
        if self.limit.is_some() {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(outer) = &self.outer {
            outer.leave();
        }
    }
}

/// One admitted stream.
#[derive(Debug)]
pub struct Permit(Arc<Gate>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_admits_again_after_a_drop() {
        let gate = Gate::new(Some(2));
        let first = gate.admit();
        let second = gate.admit();
        assert!(first.is_some() && second.is_some() && gate.admit().is_none());
        drop(first);
        assert!(gate.admit().is_some());
    }

    #[test]
    fn a_refusal_by_the_inner_gate_gives_the_outer_place_back() {
        let client = Gate::new(Some(3));
        let service = Gate::within(Arc::clone(&client), Some(1));
        let held = service.admit();
        assert!(held.is_some() && service.admit().is_none());
        assert_eq!(client.live(), 1);
        drop(held);
        assert_eq!((client.live(), service.live()), (0, 0));
    }

    #[test]
    fn the_outer_limit_counts_over_all_inner_gates() {
        let client = Gate::new(Some(1));
        let (ssh, web) = (Gate::within(Arc::clone(&client), None), Gate::within(client, Some(5)));
        let held = ssh.admit();
        assert!(held.is_some() && web.admit().is_none());
        assert_eq!(web.live(), 0);
    }
}
