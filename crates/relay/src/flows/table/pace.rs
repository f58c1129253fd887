//! How often an unanswered flow is evicted while its peer may still wait for the answer.
//!
//! At an interval of [`LATE`] divided by the number of such flows, each flow lives about as long as
//! its peer waits, however quickly new flows arrive. The algorithm is GCRA (ITU-T I.371, annex A):
//! one instant, no timer.

use std::time::Duration;

use tokio::time::Instant;

/// No peer waits longer than this time for an answer: resolvers retry after 5 s at the latest
/// (resolv.conf(5), `timeout`).
pub(super) const LATE: Duration = Duration::from_secs(5);

/// The longest interval, for tables with few flows: 1,000 flows per second.
const SLOWEST: Duration = Duration::from_millis(1);

/// Flows that may be evicted at once: peers whose datagrams arrive in one burst.
const BURST: u32 = 128;

/// When the next flow may be evicted.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Instant>);

fn interval(flows: usize) -> Duration {
    let flows = u32::try_from(flows).unwrap_or(u32::MAX).max(1);
    (LATE / flows).min(SLOWEST)
}

impl Pace {
    /// Whether one of `flows` may be evicted now.
    pub(super) fn permits(&self, flows: usize, now: Instant) -> bool {
        self.0.is_none_or(|next| next <= now + interval(flows) * (BURST - 1))
    }

    /// Notes that one of `flows` is evicted.
    pub(super) fn spend(&mut self, flows: usize, now: Instant) {
        let from = self.0.map_or(now, |next| next.max(now));
        self.0 = Some(from + interval(flows));
    }
}
