//! The rate limit: all bytes of datagrams count, so that it holds on the wire.

use std::time::{Duration, Instant};

/// What leaves at once after a pause: so much time at the rate, since timers fire late.
const BURST: Duration = Duration::from_millis(4);

/// A bucket that fills at the rate. A datagram leaves while something is in it, and may empty it
/// beyond the bottom: the debt is less than a datagram.
#[derive(Debug)]
pub(super) struct Rate {
    /// Bytes per second.
    rate: f64,
    bytes: f64,
    filled: Instant,
    /// When something may leave again; set while it may not.
    held: Option<Instant>,
}

impl Rate {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        let rate = rate.max(1) as f64;
        Self { rate, bytes: rate * BURST.as_secs_f64(), filled: now, held: None }
    }

    /// Whether a datagram may leave.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.bytes = (self.bytes + passed * self.rate).min(self.rate * BURST.as_secs_f64());
        self.filled = self.filled.max(now);
        self.held = (self.bytes < 0.0).then(|| {
            // A wait that rounds to nothing would be a timer that is always due.
            now + Duration::from_secs_f64(-self.bytes / self.rate).max(Duration::from_micros(1))
        });
        self.held.is_none()
    }

    /// When a datagram may leave again; `None` while it may.
    pub(super) const fn held(&self) -> Option<Instant> {
        self.held
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes -= bytes as f64;
    }
}
