//! Arrears are bytes that quinn's pacer could not send in time because its task did not run.
//!
//! The pacer sends 1.25 windows per round trip in bursts of 1.6 ms and forgets bytes that it could
//! have sent while its task did not run. A busy host may take the cores of a guest away for 20 ms
//! at a time. Such a guest sends a tenth of the allowed bytes, and the lower measured rate makes
//! the window smaller. quinn does not pace a window above 4 GiB, so the adapter reports such a
//! window until the sender has caught up.

use std::time::{Duration, Instant};

/// The longest counted pause. A longer pause has a cause other than a task that did not run.
const MOST: Duration = Duration::from_millis(50);

/// Constants of quinn: windows per round trip, seconds of a burst, packets of the smallest and of
/// the largest burst.
const PACE: f64 = 1.25;
const BURST: f64 = 0.002;
const BURST_PACKETS: [f64; 2] = [10.0, 256.0];

/// A token bucket like the bucket of quinn, with a larger capacity.
#[derive(Clone, Debug)]
pub(super) struct Arrears {
    /// Bytes that the pacer allowed and the sender did not send.
    bytes: f64,
    since: Instant,
    /// The window or a lack of data kept the bytes back, not the pacer.
    is_held: bool,
}

impl Arrears {
    pub(super) const fn new(now: Instant) -> Self {
        Self { bytes: 0.0, since: now, is_held: true }
    }

    /// Packets were sent or acknowledged while the pacer used this window and this round trip.
    pub(super) fn pass(&mut self, now: Instant, window: u64, round_trip: Duration) {
        let passed = now.saturating_duration_since(self.since).min(MOST);
        self.since = now;
        if !self.is_held && !round_trip.is_zero() {
            let rate = PACE * window as f64 / round_trip.as_secs_f64();
            let most = rate * MOST.as_secs_f64();
            self.bytes = (self.bytes + rate * passed.as_secs_f64()).min(most);
        }
    }

    /// Bytes were sent.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.bytes = (self.bytes - bytes as f64).max(0.0);
    }

    /// `is_held`: the window allows no further bytes, or there is no further data. Then there are
    /// no arrears.
    pub(super) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        if is_held {
            self.bytes = 0.0;
        }
    }

    /// The arrears are larger than the burst that the pacer allows by itself.
    pub(super) fn are_due(&self, window: u64, round_trip: Duration, mtu: u64) -> bool {
        let burst = window as f64 * BURST / round_trip.as_secs_f64();
        let [least, most] = BURST_PACKETS.map(|packets| packets * mtu as f64);
        self.bytes > burst.clamp(least, most)
    }
}
