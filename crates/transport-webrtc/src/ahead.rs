//! The limit of unacknowledged bytes of a channel. SCTP accepts all bytes that it is given, and
//! queued bytes delay everything that the tunnel sends next: a full window takes 11 s on a path of
//! 3 Mbit/s.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A channel may have as many unacknowledged bytes as were delivered in this time. It is longer
/// than the round trip of any path, because the bound would reduce the rate otherwise.
const HORIZON: Duration = Duration::from_secs(1);

/// The time between two marks.
const STEP: Duration = Duration::from_millis(100);

/// After a start, or on a path that was idle, a channel may have this number of unacknowledged
/// bytes.
const LEAST: usize = 256 << 10;

/// The bound of one channel.
#[derive(Debug)]
pub(crate) struct Ahead {
    window: usize,
    /// Pairs of a time and the number of bytes acknowledged by then: the first mark is the newest
    /// one that is at least as old as the horizon.
    marks: VecDeque<(Instant, u64)>,
}

impl Ahead {
    /// The bound is never more than `window` bytes.
    pub(crate) const fn new(window: usize) -> Self {
        Self { window, marks: VecDeque::new() }
    }

    /// The number of bytes that may wait for an acknowledgement, when `acknowledged` bytes were
    /// acknowledged since the start.
    pub(crate) fn allowed(&mut self, now: Instant, acknowledged: u64) -> usize {
        if self.marks.back().is_none_or(|(at, _)| now.duration_since(*at) >= STEP) {
            self.marks.push_back((now, acknowledged));
        }
        while self.marks.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= HORIZON) {
            self.marks.pop_front();
        }
        let before = self.marks.front().map_or(0, |(_, bytes)| *bytes);
        let delivered = usize::try_from(acknowledged.saturating_sub(before));
        delivered.unwrap_or(usize::MAX).clamp(LEAST.min(self.window), self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 4 << 20;

    /// The bound after `seconds` at `rate` bytes a second.
    fn after(ahead: &mut Ahead, begin: Instant, seconds: u32, rate: u64) -> usize {
        let mut allowed = 0;
        for tick in 0..seconds * 100 {
            let now = begin + Duration::from_millis(10) * tick;
            allowed = ahead.allowed(now, rate * u64::from(tick) / 100);
        }
        allowed
    }

    #[test]
    fn a_slow_path_has_about_a_second_in_front() {
        let begin = Instant::now();
        let allowed = after(&mut Ahead::new(WINDOW), begin, 10, 400_000);
        assert!((400_000..=480_000).contains(&allowed), "{allowed}");
        assert_eq!(after(&mut Ahead::new(WINDOW), begin, 10, 10_000), LEAST);
    }

    #[test]
    fn a_fast_path_has_its_window() {
        let begin = Instant::now();
        assert_eq!(after(&mut Ahead::new(WINDOW), begin, 3, 20_000_000), WINDOW);
        assert_eq!(after(&mut Ahead::new(1 << 20), begin, 3, 20_000_000), 1 << 20);
        assert_eq!(Ahead::new(1_000).allowed(begin, 0), 1_000);
    }

    #[test]
    fn the_bound_follows_a_start() {
        let begin = Instant::now();
        let mut ahead = Ahead::new(WINDOW);
        let mut acknowledged = 0;
        // A round trip of 100 ms that brings all that was sent.
        let bounds: Vec<_> = (0..5_u32)
            .map(|round| {
                let allowed =
                    ahead.allowed(begin + Duration::from_millis(100) * round, acknowledged);
                acknowledged += allowed as u64;
                allowed >> 10
            })
            .collect();
        assert_eq!(bounds, [256, 256, 512, 1_024, 2_048]);
    }
}
