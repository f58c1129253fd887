//! The two limits of what a session sends: its rate, and the share that is sent more than once.

use std::time::{Duration, Instant};

/// What may leave at once: timers fire a millisecond late.
const BURST: Duration = Duration::from_millis(2);

/// A rate of bytes per second. A datagram may leave when what left before it has had its time.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: u32,
    /// When all that was sent has had its time.
    free: Instant,
}

impl Rate {
    /// At least a byte per second.
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second: per_second.max(1), free: now }
    }

    /// `None` where a datagram may leave now, else the time when the next one may.
    pub(super) fn wait(&self, now: Instant) -> Option<Instant> {
        (self.free > now + BURST).then(|| self.free - BURST)
    }

    pub(super) fn sent(&mut self, now: Instant, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.free = self.free.max(now) + Duration::from_secs(bytes.into()) / self.per_second;
    }
}

/// The budget in bytes for what is sent beside fresh payload. It may be overdrawn by repeated
/// segments, and is saved up to [`SAVED`].
#[derive(Debug)]
pub(super) struct Extra {
    share: f64,
    left: f64,
}

/// Enough for the parity of a few groups.
const SAVED: f64 = 65_536.0;

impl Extra {
    pub(super) const fn new(share: f64) -> Self {
        Self { share, left: SAVED }
    }

    /// Payload was sent for the first time, and payload was sent again.
    pub(super) fn sent(&mut self, fresh: u64, repeated: u64) {
        let grown = self.left + fresh as f64 * self.share - repeated as f64;
        self.left = grown.clamp(-SAVED, SAVED);
    }

    /// Whether `bytes` of parity may be sent.
    pub(super) fn allows(&self, bytes: usize) -> bool {
        self.left >= bytes as f64
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.left -= bytes as f64;
    }
}
