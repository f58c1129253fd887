//! Measures the rate at which the peer consumes, from its credits, and derives the frame size.
//!
//! A frame holds about one millisecond of the rate. So a bulk stream costs few system calls, and
//! another stream does not wait noticeably behind it.

use crate::Instant;
use std::time::Duration;

/// Frame sizes, payload bytes. Measured with one bulk stream on loopback: 64 KiB 13.9 Gbit/s, 128
/// KiB 14.4, 256 KiB 14.9, 512 KiB 15.7; at 10 Mbit/s 16 KiB keep others waiting for 13 ms.
const LEAST: u64 = 16 << 10;
const START: u64 = 64 << 10;
const MOST: u64 = 512 << 10;

/// More than one stream has something to send: smaller turns, of a quarter of a millisecond or of
/// so many bytes. (16 bulk streams on loopback: a tenth less processor time than with these bytes
/// only.)
const SHARED: usize = 32 << 10;

/// A measurement takes at least this long, so that one burst of credits is not a rate.
const SPAN: Duration = Duration::from_millis(2);
/// After such a pause a new measurement begins: idle time is not slowness.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Rate {
    frame: u64,
    since: Option<Instant>,
    last: Option<Instant>,
    bytes: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { frame: START, since: None, last: None, bytes: 0 }
    }
}

impl Rate {
    /// The peer consumed `bytes` more.
    pub(super) fn sample(&mut self, now: Instant, bytes: u64) {
        let pause = self.last.is_none_or(|last| now.saturating_duration_since(last) > PAUSE);
        self.last = Some(now);
        let Some(since) = self.since.filter(|_| !pause) else {
            self.since = Some(now);
            self.bytes = 0;
            return;
        };
        self.bytes = self.bytes.saturating_add(bytes);
        let span = now.saturating_duration_since(since);
        // Small exchanges say nothing of what the path could carry.
        if span < SPAN || self.bytes < LEAST {
            return;
        }
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        let per_milli = self.bytes.saturating_mul(1000) / micros;
        // Half old, half new: a single hiccup does not throw the size about.
        self.frame = ((self.frame + per_milli.min(2 * MOST)) / 2).clamp(LEAST, MOST);
        self.since = Some(now);
        self.bytes = 0;
    }

    /// Payload bytes of the largest frame when one stream is alone.
    pub(super) fn frame_limit(&self) -> usize {
        crate::offset::memory(self.frame)
    }

    /// The same while others wait.
    pub(super) fn shared_limit(&self) -> usize {
        let alone = self.frame_limit();
        (alone / 4).max(SHARED).min(alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(bytes_per_milli: u64) -> usize {
        rate(bytes_per_milli).frame_limit()
    }

    fn rate(bytes_per_milli: u64) -> Rate {
        let mut rate = Rate::default();
        let mut now = crate::testing::epoch();
        for _ in 0..200 {
            rate.sample(now, bytes_per_milli);
            now += Duration::from_millis(1);
        }
        rate
    }

    #[test]
    fn who_shares_has_smaller_turns() {
        let shared = |bytes_per_milli| rate(bytes_per_milli).shared_limit();
        assert_eq!(shared(1250), 16 << 10, "10 Mbit/s: as if alone");
        assert_eq!(shared(125_000), 32 << 10, "1 Gbit/s");
        assert_eq!(shared(2_000_000), 128 << 10, "16 Gbit/s");
    }

    #[test]
    fn a_frame_is_a_millisecond_of_the_rate_within_bounds() {
        assert_eq!(settled(1250), 16 << 10, "10 Mbit/s");
        assert!((120_000..=130_000).contains(&settled(125_000)), "1 Gbit/s");
        assert_eq!(settled(2_000_000), 512 << 10, "16 Gbit/s");
    }

    #[test]
    fn requests_with_pauses_are_not_a_slow_path() {
        let mut rate = Rate::default();
        let mut now = crate::testing::epoch();
        for _ in 0..50 {
            rate.sample(now, 200);
            now += Duration::from_millis(20);
        }
        assert_eq!(rate.frame_limit(), 64 << 10);
    }
}
