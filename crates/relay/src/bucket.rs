//! A byte rate that any number of streams and workers share without a lock: the state is a single
//! number.
//!
//! The bucket is the generic cell rate algorithm (ITU-T I.371) over bytes. `due` is the time at
//! which all bytes taken so far have been sent at the rate. A stream takes a portion: `due`
//! advances by the duration of the portion, and the portion may move at the former `due`. So
//! waiting streams form a queue, each wakes once and at its own time, and no stream waits for a
//! stream of another bucket.
//!
//! ```text
//!    now          due
//!     |            |--- portion of A ---|--- portion of B ---|
//!     |<-- A waits-->                    due of C
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Resolution of times, in parts of a nanosecond: one byte at 1 GiB/s takes 60 parts, and 64 bits
/// last for 9 years.
pub(crate) const PARTS: u64 = 64;

/// One second, in [`PARTS`] of a nanosecond.
const SECOND: u64 = 1_000_000_000 * PARTS;

/// The burst after a pause, as time at the rate: 2.5 % of 2 s.
const BURST: u64 = SECOND / 20;

/// The size of a portion, as time at the rate: the interval at which a waiting stream wakes.
const PORTION: u64 = SECOND / 50;

/// Portions become smaller when streams wait for longer than this, so that each of them moves bytes
/// from time to time.
const LONG_WAIT: u64 = SECOND / 4;

/// The largest portion, in bytes: what a pump moves before other tasks run.
const PORTION_MAX: u64 = 256 << 10;

/// The state of one byte rate.
#[derive(Debug)]
pub(crate) struct Bucket {
    started: Instant,
    /// The time at which all taken bytes are due, since `started`.
    due: AtomicU64,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), due: AtomicU64::new(0) }
    }

    /// Forgets the bytes that were taken at an earlier rate. A waiting portion keeps its time.
    pub(crate) fn forget(&self) {
        self.due.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        nanos.saturating_mul(PARTS)
    }

    #[cfg(test)]
    pub(crate) fn restart(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    /// The largest portion at `rate`.
    pub(crate) fn portion(&self, rate: u64) -> u64 {
        let waiting = self.due.load(Ordering::Relaxed).saturating_sub(self.now());
        let time = if waiting > LONG_WAIT { PORTION / 8 } else { PORTION };
        bytes_in(time, rate).clamp(1, PORTION_MAX)
    }

    /// Takes `bytes` at `rate`. Returns how long they must wait.
    pub(crate) fn take(&self, bytes: u64, rate: u64) -> u64 {
        let (now, cost) = (self.now(), time_of(bytes, rate));
        let next = |due: u64| Some(due.max(now.saturating_sub(BURST)).saturating_add(cost));
        let before = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.map_or(0, |due| due.saturating_sub(now))
    }

    /// Refunds bytes that were taken at `rate` and not used.
    pub(crate) fn refund(&self, bytes: u64, rate: u64) {
        let cost = time_of(bytes, rate);
        let next = |due: u64| Some(due.saturating_sub(cost));
        let _ = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Whether bytes may move at once.
    pub(crate) fn is_open(&self) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due == 0 || due <= self.now()
    }
}

/// The time that the bytes take at this rate, rounded to the nearest part.
fn time_of(bytes: u64, rate: u64) -> u64 {
    // A 64-bit division suffices for 280 MB at a time.
    match bytes.checked_mul(SECOND).and_then(|parts| parts.checked_add(rate / 2)) {
        Some(parts) => parts / rate.max(1),
        None => u64::MAX / 2,
    }
}

/// The number of bytes that the rate allows in this time.
fn bytes_in(time: u64, rate: u64) -> u64 {
    let bytes = u128::from(time) * u128::from(rate) / u128::from(SECOND);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
