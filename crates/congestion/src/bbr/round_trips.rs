//! Round trips of a path without a queue of our own: the least and the usual round trip.

use std::time::{Duration, Instant};

/// So old may the least round trip become (the draft's `ProbeRTTInterval`). To see it again, half
/// of the path is left empty for a moment.
const AGED: Duration = Duration::from_secs(5);
/// A round trip that is longer by less than this part of the least one counts as the same: what is
/// kept under way exceeds what fits by more. After a probe's rest there mostly is one.
const SAME: u32 = 32;
/// For so long the path is known to have been as short as it was. What was looked for and found
/// longer may be the queue of others, which are then given way to.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Round trips, by batches of acknowledgements.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrips {
    /// The least of the batch that is being read.
    batch: Option<Duration>,
    /// The least of all, and when it was seen.
    least: Option<(Duration, Instant)>,
    /// The least of the last [`REMEMBERED`], and when it was seen.
    floor: Option<(Duration, Instant)>,
    /// The least since our own queue was drained in this cycle.
    rested: Option<Duration>,
    /// That of the cycle before.
    usual: Option<Duration>,
    /// The least since the path was left half empty for it.
    sought: Option<Duration>,
    /// What the last search found, if it was too long to be believed.
    doubted: Option<Duration>,
}

impl RoundTrips {
    /// A packet of the batch was acknowledged after so long.
    pub(super) fn acknowledged(&mut self, took: Duration) {
        self.batch = Some(self.batch.map_or(took, |least| least.min(took)));
    }

    /// The batch is read. Its least.
    pub(super) fn end_batch(&mut self, now: Instant) -> Option<Duration> {
        let took = self.batch.take()?;
        // One that is hardly longer shows that the path has not become longer.
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

    /// Zero before the first.
    pub(super) fn least(&self) -> Duration {
        self.least.map_or(Duration::ZERO, |(least, _)| least)
    }

    /// What it takes when no queue is our own, which is more than the least where the path has
    /// jitter; but no more than twice the least, or several senders at one bottleneck would each
    /// take the queue of the others for the path. Less than that where the path seems to have
    /// become longer, which may be that very queue: without it six of them filled a queue of
    /// seconds.
    pub(super) fn usual(&self) -> Duration {
        let least = self.least();
        let floor = self.floor.map_or(least, |(floor, _)| floor);
        let most = if least > floor + floor / SAME { floor * 3 / 2 } else { floor * 2 };
        self.usual.map_or(least, |usual| usual.clamp(least, most.max(least)))
    }

    /// Our own queue is about to be drained.
    pub(super) const fn rest_begins(&mut self) {
        self.rested = None;
    }

    /// A queue of our own may be there again.
    pub(super) const fn rest_ends(&mut self) {
        self.usual = self.rested;
    }

    /// Whether the least was seen too long ago.
    pub(super) fn is_aged(&self, now: Instant) -> bool {
        self.least.is_some_and(|(_, seen)| now.saturating_duration_since(seen) > AGED)
    }

    /// Half of the path is about to be left empty.
    pub(super) const fn search_begins(&mut self) {
        self.sought = None;
    }

    /// What was seen meanwhile counts from now on. It may be the queue of others, so a path that
    /// has become much longer is believed step by step.
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
