//! Aggregated acknowledgements: a radio link or a busy machine holds acknowledgements back and
//! releases many at once. The bytes in flight must last until the next lump, or the path falls
//! idle.
//!
//! This follows "Data and ACK aggregation" of the draft: a lump is the number of acknowledged bytes
//! beyond the number that the best rate explains.

use std::time::Instant;

use super::samples::Best;

/// The upper limit of a lump, in seconds of the best rate, as in Linux's `tcp_bbr`.
const MOST: f64 = 0.1;

/// The largest lump of the last rounds.
#[derive(Clone, Debug)]
pub(super) struct Lumps {
    since: Instant,
    /// Bytes that were acknowledged since the start of the lump.
    bytes: u64,
    best: Best,
}

impl Lumps {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0, best: Best::default() }
    }

    /// `bytes` bytes were acknowledged at once. `rate` is the best rate in bytes per second.
    pub(super) fn acknowledged(&mut self, now: Instant, bytes: u64, rate: f64, round: u64) {
        let mut expected = rate * now.saturating_duration_since(self.since).as_secs_f64();
        if self.bytes as f64 <= expected {
            (self.since, self.bytes, expected) = (now, 0, 0.0);
        }
        self.bytes += bytes;
        self.best.add(round, self.bytes as f64 - expected);
    }

    /// The largest lump in bytes. `rate` is the present best rate, which may be much lower than at
    /// the time of the lump.
    pub(super) fn largest(&self, rate: f64) -> f64 {
        self.best.get().min(rate * MOST)
    }
}
