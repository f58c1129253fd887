//! The rate limit counts all bytes of datagrams, so that it holds on the wire.

use std::time::{Duration, Instant};

/// The burst after a pause, as a time at the rate, because timers fire late.
const BURST: Duration = Duration::from_millis(4);

/// A token bucket that fills at the rate. A datagram is sent while the bucket is not empty, and the
/// level may become negative by less than a datagram.
#[derive(Debug)]
pub(super) struct Rate {
    /// Bytes per second.
    rate: f64,
    bytes: f64,
    filled: Instant,
    /// When the next datagram may be sent. Set while none may be sent.
    held: Option<Instant>,
}

impl Rate {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        let rate = rate.max(1) as f64;
        Self { rate, bytes: rate * BURST.as_secs_f64(), filled: now, held: None }
    }

    /// Whether a datagram may be sent.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.bytes = (self.bytes + passed * self.rate).min(self.rate * BURST.as_secs_f64());
        self.filled = self.filled.max(now);
        self.held = (self.bytes < 0.0).then(|| {
            // A wait that rounds to zero would be a timer that is always due.
            now + Duration::from_secs_f64(-self.bytes / self.rate).max(Duration::from_micros(1))
        });
        self.held.is_none()
    }

    /// When a datagram may be sent again. `None` while it may be sent at once.
    pub(super) const fn held(&self) -> Option<Instant> {
        self.held
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes -= bytes as f64;
    }
}
