//! The least and the usual round trip of a path without a queue of this sender.

use std::time::{Duration, Instant};

/// The largest age of the least round trip (the draft's `ProbeRTTInterval`). After it, ProbeRtt
/// leaves half of the path empty for a moment, so that the round trip is measured again.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// A round trip counts as equal to the least round trip if it is longer by at most this fraction of
/// it (1/32). The window exceeds the capacity by a larger fraction. After the drain of a probe,
/// such a round trip usually occurs.
const RTT_TOLERANCE_DIVISOR: u32 = 32;
/// The time for which the least round trip of the path is remembered. If ProbeRtt measures a longer
/// round trip, the cause may be the queue of other senders. The sender then yields to them.
const FLOOR_INTERVAL: Duration = Duration::from_secs(60);

/// Measures round trips by batches of acknowledgements.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrips {
    /// The least round trip of the present batch.
    batch: Option<Duration>,
    /// The least round trip of all, and when it was measured.
    least: Option<(Duration, Instant)>,
    /// The least round trip of the last [`FLOOR_INTERVAL`], and when it was measured.
    floor: Option<(Duration, Instant)>,
    /// The least round trip since the sender's own queue was drained in this cycle.
    drained: Option<Duration>,
    /// The same value of the cycle before.
    usual: Option<Duration>,
    /// The least round trip since ProbeRtt left the path half empty.
    probed: Option<Duration>,
    /// The result of the last ProbeRtt, if it was too long to be accepted at once.
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
                Some((least, _)) if took <= least + least / RTT_TOLERANCE_DIVISOR => {
                    Some((least.min(took), now))
                }
                None => Some((took, now)),
                longer => longer,
            };
        }
        if self.floor.is_some_and(|(_, seen)| now.saturating_duration_since(seen) > FLOOR_INTERVAL)
        {
            self.floor = self.least.map(|(least, _)| (least, now));
        }
        for least in [&mut self.drained, &mut self.probed] {
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
        let most =
            if least > floor + floor / RTT_TOLERANCE_DIVISOR { floor * 3 / 2 } else { floor * 2 };
        self.usual.map_or(least, |usual| usual.clamp(least, most.max(least)))
    }

    /// The sender's own queue is about to be drained.
    pub(super) const fn drain_begins(&mut self) {
        self.drained = None;
    }

    /// The sender may cause a queue again.
    pub(super) const fn drain_ends(&mut self) {
        self.usual = self.drained;
    }

    /// Whether the least round trip was measured too long ago.
    pub(super) fn is_probe_rtt_due(&self, now: Instant) -> bool {
        self.least.is_some_and(|(_, seen)| now.saturating_duration_since(seen) > PROBE_RTT_INTERVAL)
    }

    /// ProbeRtt is about to leave half of the path empty.
    pub(super) const fn probe_rtt_begins(&mut self) {
        self.probed = None;
    }

    /// The round trip that ProbeRtt measured counts from now on. It may contain the queue of other
    /// senders, so a much longer round trip is accepted step by step.
    pub(super) fn probe_rtt_ends(&mut self, now: Instant) {
        let least = self.least();
        let probed = self.probed.unwrap_or(least).max(least);
        let alike = |a: Duration, b: Duration| a <= b + b / RTT_TOLERANCE_DIVISOR;
        let is_same =
            self.doubted.is_some_and(|before| alike(probed, before) && alike(before, probed));
        let believed = if is_same { probed } else { probed.min(least + least / 4) };
        self.doubted = (believed < probed).then_some(probed);
        self.least = Some((believed, now));
    }
}
