//! Measures the rate at which the peer consumes, from its credits, and derives the frame size.
//!
//! A frame holds about one millisecond of the rate. So a bulk stream costs few system calls, and
//! another stream does not wait noticeably behind it.

use crate::Instant;
use std::time::Duration;

/// Frame sizes, in payload bytes. Measured with one bulk stream on loopback: 64 KiB 13.9 Gbit/s,
/// 128 KiB 14.4, 256 KiB 14.9, 512 KiB 15.7; at 10 Mbit/s 16 KiB delay other streams by 13 ms.
const LEAST: u64 = 16 << 10;
const START: u64 = 64 << 10;
const MOST: u64 = 512 << 10;

/// Minimum frame limit while several streams are ready, in bytes; the limit is a quarter of a
/// millisecond of the rate. (16 bulk streams on loopback: a tenth less processor time than with
/// this minimum alone.)
const SHARED: usize = 32 << 10;

/// Minimum duration of a measurement, so that one burst of credits does not count as a rate.
const SPAN: Duration = Duration::from_millis(2);
/// The pause after which a new measurement begins: idle time does not lower the rate.
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
    /// Records that the peer consumed `bytes` more bytes.
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
        // Small exchanges do not show the capacity of the path.
        if span < SPAN || self.bytes < LEAST {
            return;
        }
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        let per_milli = self.bytes.saturating_mul(1000) / micros;
        // The mean of old and new: a single outlier does not change the size much.
        self.frame = ((self.frame + per_milli.min(2 * MOST)) / 2).clamp(LEAST, MOST);
        self.since = Some(now);
        self.bytes = 0;
    }

    /// Maximum payload of a frame if only one stream is ready, in bytes.
    pub(super) fn frame_limit(&self) -> usize {
        crate::offset::memory(self.frame)
    }

    /// The same while other streams are ready.
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
