//! The packets that have arrived, and when they are acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Sn;
use crate::own::wire::{Ack, PacketNumber, RANGES, REBUILT, Ranges};

/// The number of acknowledgements that report a rebuilt segment, unless `una` passes it before.
const TOLD: u8 = 3;

/// Maximum number of rebuilt segments that wait to be reported. The peer retransmits other
/// segments.
const REBUILT_MOST: usize = 1_024;

/// The number of ranges whose memory an idle session keeps.
const LEAST: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Received {
    /// Inclusive ranges of packet numbers, the newest last.
    ranges: VecDeque<(u64, u64)>,
    /// The time at which the largest number arrived.
    at: Option<Instant>,
    /// The number of packets since the last acknowledgement that must be acknowledged.
    pending: u32,
    due: Option<Instant>,
    rebuilt: VecDeque<(Sn, u8)>,
    /// Memory for an acknowledgement that is being built.
    reported: Vec<i32>,
    /// The number of packets that arrived with a congestion mark, and the number of
    /// acknowledgements that still report it.
    congested: (u32, u8),
}

impl Received {
    /// Records the first arrival of a packet. `wants`: the packet must be acknowledged within
    /// `delay`.
    pub(super) fn arrived(
        &mut self,
        now: Instant,
        number: PacketNumber,
        wants: bool,
        delay: Duration,
    ) {
        let number = number.0;
        let last = self.ranges.back().map(|(_, last)| *last);
        let follows = last.is_none_or(|last| last.checked_add(1) == Some(number));
        if last.is_none_or(|last| number > last) {
            self.at = Some(now);
        }
        self.insert(number);
        if wants {
            self.pending += 1;
            let waits = follows && self.pending < 2;
            self.due_by(if waits { now + delay } else { now });
        }
    }

    fn insert(&mut self, number: u64) {
        let above = self.ranges.iter().rev().take_while(|(first, _)| *first > number).count();
        let slot = self.ranges.len() - above;
        let joins_below = slot.checked_sub(1).and_then(|below| self.ranges.get(below));
        let joins_below = joins_below.is_some_and(|(_, last)| last + 1 >= number);
        let joins_above = self.ranges.get(slot).is_some_and(|(first, _)| *first == number + 1);
        match (joins_below, joins_above) {
            (true, true) => {
                if let Some((_, last)) = self.ranges.remove(slot) {
                    self.ranges[slot - 1].1 = last;
                }
            }
            (true, false) => {
                let range = &mut self.ranges[slot - 1];
                range.1 = range.1.max(number);
            }
            (false, true) => self.ranges[slot].0 = number,
            (false, false) => self.ranges.insert(slot, (number, number)),
        }
        if self.ranges.len() > RANGES {
            self.ranges.pop_front();
        }
    }

    /// Records the arrival of a packet with a congestion mark.
    pub(super) fn congested(&mut self, now: Instant) {
        self.congested = (self.congested.0.wrapping_add(1), TOLD);
        self.due_by(now);
    }

    /// Records that a segment was rebuilt.
    pub(super) fn rebuilt(&mut self, now: Instant, sn: Sn) {
        if self.rebuilt.len() < REBUILT_MOST {
            self.rebuilt.push_back((sn, TOLD));
        }
        self.due_by(now);
    }

    /// Sets a deadline for the next acknowledgement.
    pub(super) fn due_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The current acknowledgement. `None` if no packet has arrived so far.
    pub(super) fn acknowledge(&mut self, now: Instant, una: Sn, window: u16) -> Option<Ack> {
        self.due = None;
        let (_, largest) = *self.ranges.back()?;
        self.pending = 0;
        let mut arrived = Ranges::default();
        let mut above = largest + 1;
        for &(first, last) in self.ranges.iter().rev() {
            let part = |count: u64| u32::try_from(count).ok();
            let Some((gap, length)) = part(above - last - 1).zip(part(last - first + 1)) else {
                break;
            };
            arrived.push(gap, length);
            above = first;
        }
        let (count, left) = self.congested;
        let congested = (left > 0).then_some(count);
        self.congested.1 = left.saturating_sub(1);
        let waited = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        Some(Ack {
            largest: PacketNumber(largest).low(),
            delay: Ack::units(waited),
            una,
            window,
            arrived,
            rebuilt: self.tell(una),
            congested,
        })
    }

    fn tell(&mut self, una: Sn) -> Ranges<REBUILT> {
        let mut ranges = Ranges::default();
        self.rebuilt.retain(|(sn, left)| !sn.is_before(una) && *left > 0);
        self.reported.clear();
        self.reported.extend(self.rebuilt.iter().map(|(sn, _)| sn.since(una)));
        self.reported.sort_unstable();
        self.reported.dedup();
        let count = self.reported.chunk_by(|a, b| a + 1 == *b).count();
        // If not all runs fit, the newest runs are reported.
        let skipped = count.saturating_sub(REBUILT);
        let mut end = 0;
        for run in self.reported.chunk_by(|a, b| a + 1 == *b).skip(skipped) {
            let first = run.first().and_then(|first| u32::try_from(*first).ok()).unwrap_or(end);
            let length = u32::try_from(run.len()).unwrap_or(u32::MAX);
            ranges.push(first.saturating_sub(end), length);
            end = first + length;
        }
        self.rebuilt.iter_mut().for_each(|(_, left)| *left -= 1);
        ranges
    }

    /// Releases memory. `una` covers the segments that were not reported.
    pub(super) fn rest(&mut self) {
        self.rebuilt = VecDeque::new();
        self.reported = Vec::new();
        self.ranges.shrink_to(LEAST);
    }
}
