//! The rate at which unanswered flows are evicted while their peers may still wait for the answer.
//!
//! At an interval of [`LATE`] divided by the number of such flows, each flow lasts about as long as
//! its peer waits, however quickly new flows arrive. The algorithm is GCRA (ITU-T I.371, annex A):
//! one timestamp, no timer.

use std::time::Duration;

use tokio::time::Instant;

/// The longest time that a peer waits for an answer: resolvers retry within 5 s (resolv.conf(5),
/// `timeout`).
pub(super) const LATE: Duration = Duration::from_secs(5);

/// The longest interval, for tables with few flows: 1,000 flows per second.
const SLOWEST: Duration = Duration::from_millis(1);

/// The burst: flows that may be evicted at once, when datagrams of many peers arrive together.
const BURST: u32 = 128;

/// The time at which the next flow may be evicted.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Instant>);

fn interval(flows: usize) -> Duration {
    let flows = u32::try_from(flows).unwrap_or(u32::MAX).max(1);
    (LATE / flows).min(SLOWEST)
}

impl Pace {
    /// Whether one of `flows` flows may be evicted now.
    pub(super) fn permits(&self, flows: usize, now: Instant) -> bool {
        self.0.is_none_or(|next| next <= now + interval(flows) * (BURST - 1))
    }

    /// Records the eviction of one of `flows` flows.
    pub(super) fn spend(&mut self, flows: usize, now: Instant) {
        let from = self.0.map_or(now, |next| next.max(now));
        self.0 = Some(from + interval(flows));
    }
}
