//! The receive window of one stream (RFC 9113 section 5.2), without I/O.
//!
//! A window begins small. It grows as long as the consumer keeps up and a window is consumed within
//! three round trips, because then the path, not the consumer, limits the sender. QUIC auto-tuning
//! works alike (quic-go, `internal/flowcontrol`). A window of three times the bandwidth-delay
//! product stops growing. A window shrinks when memory is short.

use std::time::Duration;

use tokio::time::Instant;

/// The default initial window of RFC 9113 section 6.5.2, in bytes. Peers use it before they receive
/// the SETTINGS of the server.
pub(crate) const INITIAL: u32 = 65_535;
/// The maximum window, in bytes: enough for 1 Gbit/s at a round trip of 100 ms.
pub(crate) const MOST: u32 = 16 * 1024 * 1024;
/// The growth factor of one step. Two steps lead from the smallest window to the largest.
const STEP: u64 = 16;
/// A window update is sent once half of the window, or this number of bytes, is consumed.
const PART: u64 = 2 * 1024 * 1024;
/// The path limits a sender whose window is consumed within this number of round trips.
const ROUND_TRIPS: u32 = 3;

/// The window of a stream. All positions are counted from the first byte of the body, with padding.
#[derive(Debug)]
pub(super) struct Window {
    /// The distance of the granted position from the consumed position.
    size: u64,
    /// The smallest size.
    least: u64,
    granted: u64,
    received: u64,
    consumed: u64,
    /// The start times of the previous and the current part of the window. A consumer that
    /// occasionally takes both parts at once is not fast.
    since: [Instant; 2],
}

/// The connection state that a stream window needs.
pub(super) struct Path<'p> {
    pub(super) now: Instant,
    /// The shortest round trip, if one is known.
    pub(super) round_trip: Option<Duration>,
    /// Received bytes that the consumer has not taken.
    pub(super) waiting: u64,
    /// Whether memory for this number of additional bytes is available.
    pub(super) may_grow: &'p dyn Fn(u64) -> bool,
}

impl Window {
    /// A window of `size` bytes for a stream that may already send `granted` bytes.
    pub(super) const fn new(size: u32, granted: u32, now: Instant) -> Self {
        Self {
            size: size as u64,
            least: size as u64,
            granted: granted as u64,
            received: 0,
            consumed: 0,
            since: [now; 2],
        }
    }

    /// Records that the peer has acknowledged a window smaller by `bytes` (RFC 9113 section 6.9.2).
    pub(super) fn shrink(&mut self, bytes: u32) {
        // The position may be below the received position: the window is negative then.
        self.granted = self.granted.saturating_sub(bytes.into());
    }

    /// Records received bytes. Returns false if they exceed the window.
    pub(super) fn receive(&mut self, bytes: u64) -> bool {
        self.received = self.received.saturating_add(bytes);
        self.received <= self.granted
    }

    /// Whether a byte has arrived.
    pub(super) const fn has_begun(&self) -> bool {
        self.received > 0
    }

    /// The bytes that the peer may have sent and that are not consumed: the memory that may be
    /// needed.
    pub(super) fn open(&self) -> u64 {
        self.granted.max(self.received).saturating_sub(self.consumed)
    }

    /// Records consumed bytes. Returns the increment to announce to the peer, if any.
    pub(super) fn consume(&mut self, bytes: u64, path: &Path<'_>) -> Option<u32> {
        self.consumed = self.consumed.saturating_add(bytes);
        let part = (self.size / 2).min(PART);
        if self.granted.saturating_sub(self.consumed) + part > self.size {
            return None;
        }
        let elapsed = path.now.saturating_duration_since(self.since[0]);
        let is_fast = path.round_trip.is_none_or(|trip| elapsed < trip * ROUND_TRIPS);
        // A slow consumer finds the whole window queued, a fast one only the last burst.
        let keeps_up = path.waiting <= self.size / 2;
        let larger = (self.size * STEP).min(MOST.into());
        if is_fast && keeps_up && (path.may_grow)(larger - self.size) {
            self.size = larger;
        } else if self.size > self.least && !(path.may_grow)(0) {
            self.size = (self.size / 2).max(self.least);
        }
        self.since = [self.since[1], path.now];
        let granted = (self.consumed + self.size).max(self.granted);
        let increment = u32::try_from(granted - self.granted).ok().filter(|&bytes| bytes > 0)?;
        self.granted = granted;
        Some(increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    fn path(now: Instant, keeps_up: bool, may_grow: &dyn Fn(u64) -> bool) -> Path<'_> {
        let waiting = if keeps_up { 0 } else { u64::from(INITIAL) };
        Path { now, round_trip: Some(TRIP), waiting, may_grow }
    }

    /// Fills and consumes the window once per `pause`. Returns the largest window of each round.
    fn rounds(pause: Duration, keeps_up: bool, may_grow: &dyn Fn(u64) -> bool) -> Vec<u64> {
        let mut now = Instant::now();
        let mut window = Window::new(INITIAL, INITIAL, now);
        let mut sizes = Vec::new();
        for _ in 0..8 {
            now += pause;
            let open = window.open();
            assert!(window.receive(open));
            for part in [open / 2, open - open / 2] {
                let _ = window.consume(part, &path(now, keeps_up, may_grow));
            }
            sizes.push(window.open());
        }
        sizes
    }

    #[test]
    fn a_window_that_is_consumed_within_a_round_trip_grows_to_the_largest() {
        let sizes = rounds(TRIP, true, &|_| true);
        assert!(sizes[0] >= 4 * u64::from(INITIAL), "{sizes:?}");
        assert!(sizes[7] > u64::from(MOST / 2), "{sizes:?}");
    }

    #[test]
    fn a_window_stays_where_the_consumer_is_slow_or_memory_is_short() {
        for sizes in [
            rounds(TRIP * 10, true, &|_| true),
            rounds(TRIP, false, &|_| true),
            rounds(TRIP, true, &|_| false),
        ] {
            assert!(sizes.iter().all(|&size| size <= INITIAL.into()), "{sizes:?}");
        }
    }

    #[test]
    fn a_grown_window_gives_memory_back_when_memory_is_short() {
        let now = Instant::now();
        let mut window = Window::new(INITIAL, INITIAL, now);
        while window.open() < MOST.into() {
            let open = window.open();
            assert!(window.receive(open));
            window.consume(open, &path(now, true, &|_| true));
        }
        let mut size = window.open();
        while size > INITIAL.into() {
            assert!(window.receive(size));
            for _ in 0..8 {
                window.consume(size / 8, &path(now, true, &|_| false));
            }
            window.consume(size % 8, &path(now, true, &|_| false));
            assert!(window.open() < size, "{} after {size}", window.open());
            size = window.open();
        }
        assert!(size > 0, "the window does not close");
    }

    #[test]
    fn a_peer_may_send_what_was_granted_and_no_more() {
        let now = Instant::now();
        let mut window = Window::new(16_384, INITIAL, now);
        assert!(window.receive(60_000));
        window.shrink(INITIAL - 16_384);
        assert_eq!(window.open(), 60_000, "bytes that arrived stay in memory");
        assert!(!window.receive(1), "the window is negative");
        let mut window = Window::new(INITIAL, INITIAL, now);
        assert!(window.receive(INITIAL.into()));
        let increment = window.consume(INITIAL.into(), &path(now, false, &|_| true));
        assert_eq!(increment, Some(INITIAL));
        assert!(window.receive(INITIAL.into()));
        assert!(!window.receive(1));
    }
}
