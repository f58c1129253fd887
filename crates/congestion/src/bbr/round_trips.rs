//! The least and the usual round trip of a path without a queue of this sender.

use std::time::{Duration, Instant};

/// The largest age of the least round trip (the draft's `ProbeRTTInterval`). Then half of the path
/// stays empty for a moment, so that the round trip is measured again.
const AGED: Duration = Duration::from_secs(5);
/// A round trip counts as equal to the least round trip if it is longer by less than this part. The
/// window exceeds the capacity by a larger part. After the drain of a probe, such a round trip
/// usually occurs.
const SAME: u32 = 32;
/// How long the minimum round-trip time of the path is remembered. If a search finds a longer round
/// trip, the cause may be the queue of other senders. The sender then yields to them.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Measures round trips by batches of acknowledgements.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrips {
    /// The least round trip of the present batch.
    batch: Option<Duration>,
    /// The least round trip of all, and when it was measured.
    least: Option<(Duration, Instant)>,
    /// The least round trip of the last [`REMEMBERED`], and when it was measured.
    floor: Option<(Duration, Instant)>,
    /// The least round trip since the sender's own queue was drained in this cycle.
    rested: Option<Duration>,
    /// The same value of the cycle before.
    usual: Option<Duration>,
    /// The least round trip since the path was left half empty for the search.
    sought: Option<Duration>,
    /// The result of the last search, if it was too long to be accepted at once.
    doubted: Option<Duration>,
}

impl RoundTrips {
    /// A packet of the batch was acknowledged after the time `took`.
    pub(super) fn acknowledged(&mut self, took: Duration) {
        self.batch = Some(self.batch.map_or(took, |least| least.min(took)));
    }

    /// Ends the batch. Returns the least round trip of the batch.
    pub(super) fn end_batch(&mut self, now: Instant) -> Option<Duration> {
        let took = self.batch.take()?;
        // A round trip that is only slightly longer shows that the path has not become longer.
        for least in [&mut self.least, &mut self.floor] {
            *least = match *least {
                Some((least, _)) if took <= least + least / SAME => Some((least.min(took), now)),
                None => Some((took, now)),
                longer => longer,
            };
        }
        if self.floor.is_some_and(|(_, seen)| now.saturating_duration_since(seen) > REMEMBERED) {
            self.floor = self.least.map(|(least, _)| (least, now));
        }
        for least in [&mut self.rested, &mut self.sought] {
            *least = Some(least.map_or(took, |least| least.min(took)));
        }
        Some(took)
    }

    /// The least round trip. Zero before the first measurement.
    pub(super) fn least(&self) -> Duration {
        self.least.map_or(Duration::ZERO, |(least, _)| least)
    }

    /// The usual round trip without a queue of this sender. With jitter it is longer than the least
    /// round trip. It is at most twice the least round trip. Otherwise each of several senders at
    /// one bottleneck would take the queue of the others for the path. The limit is lower if the
    /// path seems to have become longer, because that queue may be the cause: without the limit six
    /// senders filled a queue of seconds.
    pub(super) fn usual(&self) -> Duration {
        let least = self.least();
        let floor = self.floor.map_or(least, |(floor, _)| floor);
        let most = if least > floor + floor / SAME { floor * 3 / 2 } else { floor * 2 };
        self.usual.map_or(least, |usual| usual.clamp(least, most.max(least)))
    }

    /// The sender's own queue is about to be drained.
    pub(super) const fn rest_begins(&mut self) {
        self.rested = None;
    }

    /// The sender may cause a queue again.
    pub(super) const fn rest_ends(&mut self) {
        self.usual = self.rested;
    }

    /// Whether the least round trip was measured too long ago.
    pub(super) fn is_aged(&self, now: Instant) -> bool {
        self.least.is_some_and(|(_, seen)| now.saturating_duration_since(seen) > AGED)
    }

    /// Half of the path is about to be left empty.
    pub(super) const fn search_begins(&mut self) {
        self.sought = None;
    }

    /// The round trip of the search counts from now on. It may contain the queue of other senders,
    /// so a much longer round trip is accepted step by step.
    pub(super) fn search_ends(&mut self, now: Instant) {
        let least = self.least();
        let sought = self.sought.unwrap_or(least).max(least);
        let alike = |a: Duration, b: Duration| a <= b + b / SAME;
        let is_same =
            self.doubted.is_some_and(|before| alike(sought, before) && alike(before, sought));
        let believed = if is_same { sought } else { sought.min(least + least / 4) };
        self.doubted = (believed < sought).then_some(sought);
        self.least = Some((believed, now));
    }
}
