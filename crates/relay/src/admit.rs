//! Admission of streams: a [`Permit`] proves that a stream is within the limits. Dropping the
//! permit returns its place.
//!
//! All workers share a gate, because the limit of a service holds for the whole process and not per
//! worker. An admission therefore costs atomic operations per opened stream. A byte costs none, and
//! a gate without limits has none at all.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::shares::{HasEntrance, Holder};

/// Limits the live streams and the new streams per second. A gate can lie inside an outer gate, as
/// a service lies inside its client.
#[derive(Debug)]
pub struct Gate {
    /// `None`: nothing is counted.
    limit: Option<AtomicU32>,
    live: AtomicU32,
    rate: Option<Rate>,
    outer: Option<Arc<Self>>,
    /// Whose descriptors the sockets behind the gate are.
    holder: Option<Arc<Holder>>,
    /// A gate inside a gate is that of an entrance.
    _entrance: Option<HasEntrance>,
}

/// A limit of new streams per second, which allows the streams of one second at once. The algorithm
/// is the generic cell rate algorithm (ITU-T I.371): a token bucket in one number.
#[derive(Debug)]
struct Rate {
    /// The time between two streams at the full rate, in nanoseconds.
    interval: u64,
    begun: Instant,
    /// The time at which the next stream is due at an even rate, in nanoseconds since `begun`.
    due: AtomicU64,
}

impl Rate {
    fn new(per_second: NonZeroU32) -> Self {
        let interval = SECOND / u64::from(per_second.get());
        Self { interval, begun: Instant::now(), due: AtomicU64::new(0) }
    }

    fn admit(&self) -> bool {
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let next = |due: u64| {
            let next = due.max(now).saturating_add(self.interval);
            (next - now <= SECOND).then_some(next)
        };
        self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// One second in nanoseconds.
const SECOND: u64 = Duration::from_secs(1).as_nanos() as u64;

impl Gate {
    /// Makes a gate without an outer gate; `None` sets no limit.
    #[must_use]
    pub fn new(limit: Option<u32>) -> Arc<Self> {
        Self::limited(limit, None, None)
    }

    /// Makes a gate without an outer gate that limits the live streams and the new streams per
    /// second. The sockets behind the gate are descriptors of `holder`.
    #[must_use]
    pub fn limited(
        limit: Option<u32>,
        new_per_second: Option<NonZeroU32>,
        holder: Option<Arc<Holder>>,
    ) -> Arc<Self> {
        let (rate, live) = (new_per_second.map(Rate::new), AtomicU32::new(0));
        let limit = limit.map(AtomicU32::new);
        Arc::new(Self { limit, live, rate, outer: None, holder, _entrance: None })
    }

    /// Makes the gate of an entrance inside `outer`. A stream that this gate admits has a place in
    /// both gates.
    #[must_use]
    pub fn within(outer: Arc<Self>, limit: Option<u32>) -> Arc<Self> {
        let (live, holder) = (AtomicU32::new(0), outer.holder.clone());
        let entrance = holder.as_ref().map(Holder::enter);
        let limit = limit.map(AtomicU32::new);
        Arc::new(Self { limit, live, rate: None, outer: Some(outer), holder, _entrance: entrance })
    }

    /// Changes the limit of live streams. Streams above the new limit go on. A gate that was made
    /// without a limit has none.
    pub fn set_limit(&self, limit: u32) {
        if let Some(own) = &self.limit {
            own.store(limit, Ordering::Relaxed);
        }
    }

    /// Whose descriptors the sockets behind the gate are; `None` has no share.
    #[must_use]
    pub fn holder(&self) -> Option<&Arc<Holder>> {
        self.holder.as_ref()
    }

    /// Admits one stream. Returns `None` when this gate or an outer gate is full, or when the rate
    /// of new streams is above the limit.
    #[must_use]
    pub fn admit(self: &Arc<Self>) -> Option<Permit> {
        self.enter().then(|| Permit(Arc::clone(self)))
    }

    /// The number of live permits of this gate. A gate without a limit of live streams counts
    /// nothing and returns 0.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    fn enter(&self) -> bool {
        if !self.outer.as_ref().is_none_or(|outer| outer.enter()) {
            return false;
        }
        let limit = self.limit.as_ref().map_or(u32::MAX, |limit| limit.load(Ordering::Relaxed));
        let next = |n: u32| (n < limit).then_some(n + 1);
        let is_counted = self.limit.is_some();
        let has_room = !is_counted
            || self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        let admitted = has_room && self.rate.as_ref().is_none_or(Rate::admit);
        if !admitted {
            if has_room && is_counted {
                self.live.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some(outer) = &self.outer {
                outer.leave();
            }
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

/// The proof that one stream was admitted.
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

    #[tokio::test(start_paused = true)]
    async fn so_many_per_second_and_a_second_s_worth_at_once() {
        let gate = Gate::limited(Some(1000), NonZeroU32::new(10), None);
        let pass = |gate: &Arc<Gate>| (0..100).filter(|_| gate.admit().is_some()).count();
        assert_eq!(pass(&gate), 10);
        assert_eq!(gate.live(), 0, "who is refused takes no place");
        tokio::time::advance(Duration::from_millis(99)).await;
        assert_eq!(pass(&gate), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(pass(&gate), 1);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(pass(&gate), 5);
        // However long the gate was idle, it admits at most the streams of one second at once.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(pass(&gate), 10);
        let inner = Gate::within(Arc::clone(&gate), Some(5));
        assert!(inner.admit().is_none());
        assert_eq!((inner.live(), gate.live()), (0, 0));
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
