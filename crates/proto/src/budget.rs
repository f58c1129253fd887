//! The memory budget for streams, windows and replay. The process has one budget. Workers lease
//! pieces of it, and links draw from the lease of their worker.
//!
//! The memory that is *left* limits a stream, not a fixed share: this is the dynamic threshold of
//! Choudhury and Hahne ("Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
//! IEEE/ACM Transactions on Networking 6(2), 1998). A single busy stream may have half of the
//! budget. Many busy streams have about equal parts, and a part is always left for new streams.

use crate::Instant;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// A worker's lease of the process budget, shared by its links. Counts bytes.
pub trait Budget: fmt::Debug {
    /// Takes `bytes` if that much is left. Returns whether it was.
    fn draw(&self, bytes: u64) -> bool;
    /// Takes `bytes` that are already in use, even beyond the limit.
    fn charge(&self, bytes: u64);
    /// Returns bytes that were drawn or charged.
    fn release(&self, bytes: u64);
    /// Bytes that may still be drawn.
    fn left(&self) -> u64;
    /// Bytes of the whole budget.
    fn total(&self) -> u64;
    /// The memory that the source of a visitor holds, over all streams of the process. `None`: the
    /// source has no limit.
    fn share(&self, _visitor: SocketAddr) -> Option<Rc<dyn Share>> {
        None
    }
    /// The budget with the limit of a visitor's source, for memory that belongs to no stream.
    /// `None`: the source has no limit.
    fn of_visitor(&self, _visitor: SocketAddr) -> Option<Rc<dyn Budget>> {
        None
    }
}

/// The share of a budget that a source of visitors holds. Counts bytes.
pub trait Share: fmt::Debug {
    /// Records that a stream of the source held `before` bytes and now holds `now` bytes.
    fn change(&self, before: u64, now: u64);
    /// Whether the source may open another stream.
    fn has_room(&self) -> bool;
}

/// The change of a stream's memory that is reported to its source: this fraction of the reported
/// memory, but at least `REPORTED_LEAST` bytes, a quarter of the implicit window.
const REPORTED_PART: u64 = 4;
const REPORTED_LEAST: u64 = 4 << 10;

/// The memory of a stream as last reported to the source of its visitor.
#[derive(Debug)]
pub(crate) struct Reported {
    share: Rc<dyn Share>,
    bytes: u64,
}

impl Reported {
    pub(crate) const fn new(share: Rc<dyn Share>) -> Self {
        Self { share, bytes: 0 }
    }

    /// Reports the current size, in steps: the source is shared by all threads, and a report for
    /// each frame would slow down an active stream.
    pub(crate) fn set(&mut self, bytes: u64) {
        let step = (self.bytes / REPORTED_PART).max(REPORTED_LEAST);
        let is_first_or_last = self.bytes == 0 || bytes == 0;
        if bytes != self.bytes && (is_first_or_last || bytes.abs_diff(self.bytes) >= step) {
            self.share.change(self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

/// Windows and replay leave the `RESERVE`th part of the budget to new streams and to implicit
/// windows, which cannot be refused to open streams. (300 streams needed more than an eighth of 32
/// MiB.)
const RESERVE: u64 = 4;

/// An active stream may use three quarters of the reserve, because it returns what it takes. (With
/// the whole reserve kept, 400 stalled streams leave an active stream too little of 32 MiB: 0.4 of
/// its throughput at 30 ms.)
const RESERVE_OF_MOVING: u64 = 4 * RESERVE;

/// The fraction of the budget for all streams that have not yet shown that their bytes are read, as
/// long as it is unused. Streams whose bytes are never read, however many, leave the rest to
/// streams whose bytes are read.
const UNPROVEN: u64 = 4;

/// Each such stream gets at most this fraction of the unused part: with 32 MiB, the first stream
/// gets the 256 KiB of `window_initial`.
const UNPROVEN_EACH: u64 = 32;

/// The bytes that windows and replay may still take.
pub(crate) fn spare(budget: &dyn Budget) -> u64 {
    budget.left().saturating_sub(budget.total() / RESERVE)
}

/// The bytes that a stream may take before it has shown that its bytes are read.
pub(crate) fn unproven(budget: &dyn Budget) -> u64 {
    let used = budget.total().saturating_sub(budget.left());
    (budget.total() / UNPROVEN).saturating_sub(used) / UNPROVEN_EACH
}

/// A stream counts as moving for one to two periods after its bytes were consumed. The period is
/// longer than the round trip of nearly all paths, and short enough that a new stream waits less
/// than a second for its share when other streams have just stalled.
const LATELY: Duration = Duration::from_millis(250);

/// The memory of the streams of a link that moved lately, in one direction.
///
/// A stream that moves can stall at any moment, and then its memory cannot be reclaimed. So all
/// streams that move together have at most half of the memory that stalled streams leave: the other
/// half is for the streams that move after these have stalled.
#[derive(Debug, Default)]
pub(crate) struct Moving {
    /// Counts periods of [`LATELY`].
    period: u64,
    since: Option<Instant>,
    /// Bytes held by the streams that moved in the current period, and in the previous period.
    now: u64,
    before: u64,
}

/// The part of a stream's memory that is counted in [`Moving`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// The last period in which the stream moved, plus one.
    period: u64,
    bytes: u64,
}

impl Counted {
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Moving {
    /// Records that a stream that holds `bytes` has moved.
    pub(crate) fn moved(&mut self, now: Instant, counted: &mut Counted, bytes: u64) {
        self.pass(now);
        self.hold(counted, bytes);
    }

    /// Records that a stream holds `bytes` now. The bytes are counted if the stream moved in this
    /// period.
    pub(crate) fn holds(&mut self, counted: &mut Counted, bytes: u64) {
        if counted.period == self.period + 1 {
            self.hold(counted, bytes);
        }
    }

    fn hold(&mut self, counted: &mut Counted, bytes: u64) {
        let is_counted = counted.period == self.period + 1;
        let known = if is_counted { counted.bytes } else { 0 };
        self.now = self.now.saturating_sub(known).saturating_add(bytes);
        *counted = Counted { period: self.period + 1, bytes };
    }

    /// Removes a stream that is forgotten.
    pub(crate) fn left(&mut self, counted: &mut Counted) {
        let Counted { period, bytes } = std::mem::take(counted);
        if period == self.period + 1 {
            self.now = self.now.saturating_sub(bytes);
        }
        if period >= self.period {
            self.before = self.before.saturating_sub(bytes);
        }
    }

    fn pass(&mut self, now: Instant) {
        let passed = self.since.map_or(LATELY, |since| now.saturating_duration_since(since));
        if passed < LATELY {
            return;
        }
        self.before = if passed < 2 * LATELY { self.now } else { 0 };
        self.now = 0;
        self.period += 1;
        self.since = Some(now);
    }

    /// Whether the stream moved in the current or in the previous period.
    pub(crate) const fn includes(&self, counted: &Counted) -> bool {
        counted.period > 0 && counted.period >= self.period
    }

    /// The maximum that a moving stream may hold in addition to the 16 KiB of every stream.
    ///
    /// If stalled streams leave `a`, each of `n` moving streams gets `a / (2n + 1/4)`: a single
    /// moving stream gets 4/9 of `a`, and many get half of `a` together. If a stream's own part
    /// were not counted at all, each stream would keep what it has and a new stream would get
    /// nothing; if it were counted in full, a single stream would get a third.
    pub(crate) fn share(&self, counted: &Counted, budget: &dyn Budget) -> u64 {
        let spare = budget.left().saturating_sub(budget.total() / RESERVE_OF_MOVING);
        let moving = self.now.max(self.before).saturating_sub(counted.bytes / 4 * 3);
        spare.saturating_sub(moving)
    }
}

/// The bytes that were charged to a budget for memory in use.
#[derive(Debug, Default)]
pub(crate) struct Charge(u64);

impl Charge {
    pub(crate) const NONE: Self = Self(0);

    /// Sets the charge to the current use, in bytes.
    pub(crate) fn set(&mut self, memory: u64, budget: &dyn Budget) {
        if memory > self.0 {
            budget.charge(memory - self.0);
        } else if memory < self.0 {
            budget.release(self.0 - memory);
        }
        self.0 = memory;
    }
}

/// A budget without limit, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Budget for Unlimited {
    fn draw(&self, _bytes: u64) -> bool {
        true
    }
    fn charge(&self, _bytes: u64) {}
    fn release(&self, _bytes: u64) {}
    fn left(&self) -> u64 {
        u64::MAX
    }
    fn total(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Left(u64);

    impl Budget for Left {
        fn draw(&self, _: u64) -> bool {
            true
        }
        fn charge(&self, _: u64) {}
        fn release(&self, _: u64) {}
        fn left(&self) -> u64 {
            self.0
        }
        fn total(&self) -> u64 {
            1600
        }
    }

    #[test]
    fn a_stream_counts_as_moving_for_one_to_two_periods() {
        let start = crate::testing::epoch();
        let at = |periods: u32| start + LATELY * periods;
        let mut moving = Moving::default();
        let [mut first, mut second, nobody] = [Counted::default(); 3];
        moving.moved(start, &mut first, 300);
        moving.moved(start, &mut second, 100);
        assert_eq!(moving.share(&nobody, &Left(1000)), 1000 - 100 - 400, "a part is reserved");
        assert_eq!(moving.share(&first, &Left(1000)), 1000 - 100 - 400 + 225);
        moving.moved(at(1), &mut second, 50);
        assert!(moving.includes(&first) && moving.includes(&second) && !moving.includes(&nobody));
        assert_eq!(moving.share(&nobody, &Left(1000)), 500, "the first may move still");
        moving.moved(at(2), &mut second, 50);
        assert!(!moving.includes(&first), "it has stalled");
        assert_eq!(moving.share(&nobody, &Left(1000)), 850);
        moving.holds(&mut second, 500);
        assert_eq!(moving.share(&nobody, &Left(1000)), 400, "it grew");
        moving.left(&mut second);
        moving.moved(at(3), &mut first, 10);
        assert_eq!(moving.share(&nobody, &Left(1000)), 890, "it is gone");
        moving.moved(at(9), &mut second, 20);
        assert_eq!(moving.share(&nobody, &Left(1000)), 880, "nobody moved for long");
    }
}
