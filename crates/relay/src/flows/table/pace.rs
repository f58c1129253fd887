//! How often a flow without an answer goes for another one while somebody may still wait for it.
//!
//! At the pace of [`LATE`] divided by the number of such flows, each of them lives about as long as
//! somebody waits for it, however quickly new ones arrive. The algorithm is GCRA (ITU-T I.371,
//! annex A): one instant, no timer.

use std::time::Duration;

use tokio::time::Instant;

/// Nobody waits any longer for an answer that has not come within this time: resolvers ask again
/// after 5 s at the latest (resolv.conf(5), `timeout`).
pub(super) const LATE: Duration = Duration::from_secs(5);

/// The slowest pace, for tables with few flows: 1,000 flows per second.
const SLOWEST: Duration = Duration::from_millis(1);

/// Flows that may go at once: peers whose datagrams arrive in one burst.
const BURST: u32 = 128;

/// When the next flow may go.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Instant>);

fn interval(flows: usize) -> Duration {
    let flows = u32::try_from(flows).unwrap_or(u32::MAX).max(1);
    (LATE / flows).min(SLOWEST)
}

impl Pace {
    /// Whether one of `flows` may go now.
    pub(super) fn permits(&self, flows: usize, now: Instant) -> bool {
        self.0.is_none_or(|next| next <= now + interval(flows) * (BURST - 1))
    }

    /// One of `flows` goes.
    pub(super) fn spend(&mut self, flows: usize, now: Instant) {
        let from = self.0.map_or(now, |next| next.max(now));
        self.0 = Some(from + interval(flows));
    }
}
