//! One timer for all sessions of a driver: a heap by time.
//!
//! A session has at most one valid entry. The deadline of a busy session changes with each
//! datagram, mostly to a later time. Its entry stays then; when the entry fires, the driver sets
//! the timer to the current deadline of the session. Other entries of the session are skipped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// The heap is rebuilt when it holds this multiple of the number of valid entries.
const WASTE: usize = 4;

/// The times at which the sessions of a driver must be called. A session is identified by a small
/// number.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The valid entry of each slot.
    wanted: Vec<Option<Instant>>,
    count: usize,
}

impl Timers {
    /// Schedules the session at `at` or earlier.
    pub fn set(&mut self, slot: usize, at: Instant) {
        if self.wanted.len() <= slot {
            self.wanted.resize(slot + 1, None);
        }
        let Some(wanted) = self.wanted.get_mut(slot) else { return };
        if wanted.is_some_and(|wanted| wanted <= at) {
            return;
        }
        self.count += usize::from(wanted.is_none());
        *wanted = Some(at);
        self.heap.push(Reverse((at, slot)));
        if self.heap.len() > WASTE * self.count + 64 {
            let wanted = &self.wanted;
            self.heap.retain(|Reverse((at, slot))| wanted.get(*slot) == Some(&Some(*at)));
        }
    }

    /// Cancels the timer of the session.
    pub fn clear(&mut self, slot: usize) {
        if let Some(wanted) = self.wanted.get_mut(slot)
            && wanted.take().is_some()
        {
            self.count -= 1;
        }
    }

    /// The time of the next valid entry.
    pub fn due(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, slot))) = self.heap.peek() {
            if self.wanted.get(*slot) == Some(&Some(*at)) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    /// Removes and returns a session whose timer has expired.
    pub fn pop(&mut self, now: Instant) -> Option<usize> {
        if self.due()? > now {
            return None;
        }
        let Reverse((_, slot)) = self.heap.pop()?;
        self.clear(slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::epoch;

    #[test]
    fn sessions_come_in_the_order_of_their_times_and_once() {
        let now = epoch();
        let at = |millis| now + Duration::from_millis(millis);
        let mut timers = Timers::default();
        timers.set(3, at(30));
        timers.set(1, at(10));
        timers.set(3, at(5));
        timers.set(2, at(20));
        timers.set(1, at(40));
        timers.clear(2);
        assert_eq!(timers.due(), Some(at(5)));
        assert_eq!(timers.pop(at(4)), None);
        let order: Vec<_> = std::iter::from_fn(|| timers.pop(at(100))).collect();
        assert_eq!(order, [3, 1], "the later time of 1 is left to its session");
        assert_eq!(timers.due(), None);
    }

    #[test]
    fn the_heap_does_not_grow_with_the_times_that_were_set() {
        let now = epoch();
        let mut timers = Timers::default();
        for step in (0..100_000).rev() {
            timers.set(0, now + Duration::from_nanos(step));
        }
        assert!(timers.heap.len() <= 100, "{}", timers.heap.len());
        assert_eq!(timers.pop(now), Some(0));
    }
}
