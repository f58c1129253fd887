//! Limits the bytes of a peer that may wait unread on a carrier with lanes. These are bytes after
//! gaps, because a reader takes all bytes that arrive in order. Granted credit cannot be revoked.
//! So credit is charged to the memory budget before it is granted, and the charge is released as
//! the peer uses the credit.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use proto::Budget;

/// The number of bytes that each carrier may leave unread without a charge to the budget, like the
/// implicit windows of streams. A transport allows the same number to an unauthenticated peer.
pub(super) const LEAST: u64 = 64 << 10;

/// The largest window in bytes: one second at 250 Mbit/s, or two round trips of 100 ms at 1 Gbit/s.
const MOST: u64 = 32 << 20;

/// A carrier holds at most 1/4 of the bytes that it leaves free in the upper half of the budget. So
/// carriers alone never exhaust that half, whatever their number, and the next carrier finds free
/// bytes.
const PART: u64 = 4;

/// A window is doubled when 1/4 of it was read within a few round trips. That is earlier than for
/// the window of a stream, so that the carrier does not delay a stream.
const USED: u64 = 4;

/// The numbers of round trips that count as few and as many. A round trip counts as at least
/// [`TURN`], a turn of the other side.
const SHORT: u32 = 4;
const LONG: u32 = 16;
const TURN: Duration = Duration::from_micros(250);

/// A window that is not used for this time and for [`LONG`] is halved.
const QUIET: Duration = Duration::from_secs(1);

/// A peer that has not used its window for this time may lose its carrier when memory is short, ...
const IDLE: Duration = Duration::from_secs(10);

/// ... if the window is larger than this size.
const HOARD: u64 = 256 << 10;

/// The window of a carrier, and the part of the budget that it holds.
pub(super) struct Unread {
    budget: Rc<dyn Budget>,
    window: Cell<u64>,
    /// Credit granted beyond the window while the window was larger. Read bytes reduce it.
    debt: Cell<u64>,
    /// When the current measurement of the window began; `read` counts the bytes since then.
    since: Cell<Option<Instant>>,
    read: Cell<u64>,
    /// The time at which the window was last used.
    used: Cell<Option<Instant>>,
}

impl Unread {
    /// Begins with half of `former`, the window of the link's last carrier, if the budget allows
    /// it: the path has carried this much, and each doubling takes a round trip.
    pub(super) fn new(budget: Rc<dyn Budget>, former: u64) -> Self {
        let unread = Self::least(budget);
        while unread.window.get() < former / 2 {
            let window = unread.larger();
            if unread.window.replace(window) == window {
                break;
            }
        }
        unread
    }

    /// The window that the peer may use from the start.
    pub(super) const fn window(&self) -> u64 {
        self.window.get()
    }

    fn least(budget: Rc<dyn Budget>) -> Self {
        Self {
            budget,
            window: Cell::new(LEAST),
            debt: Cell::default(),
            since: Cell::default(),
            read: Cell::default(),
            used: Cell::default(),
        }
    }

    /// Records that `bytes` bytes were read. Returns the new window if it changes.
    pub(super) fn has_read(
        &self,
        bytes: u64,
        now: Instant,
        round_trip: Option<Duration>,
    ) -> Option<u64> {
        let paid = self.debt.get().min(bytes);
        self.debt.set(self.debt.get() - paid);
        self.budget.release(paid);
        self.read.set(self.read.get() + bytes);
        let Some(since) = self.since.get() else {
            self.begin(now);
            return None;
        };
        let window = self.window.get();
        let took = now.saturating_duration_since(since);
        let is_used = self.read.get() >= window / USED;
        let trips = |count| round_trip.map(|rtt| rtt.saturating_mul(count).max(TURN * count));
        let long = trips(LONG).unwrap_or(QUIET);
        if is_used {
            self.used.set(Some(now));
        }
        let next = if took > (if is_used { long } else { long.max(QUIET) }) {
            (window / 2).max(LEAST)
        } else if !is_used {
            return None;
        } else if trips(SHORT).is_some_and(|short| took <= short) {
            self.larger()
        } else {
            window
        };
        self.begin(now);
        self.window.set(next);
        self.debt.set(self.debt.get() + window.saturating_sub(next));
        (next != window).then_some(next)
    }

    /// Whether the carrier has granted a large credit that the peer has not used for a long time.
    pub(super) fn is_hoarding(&self, now: Instant) -> bool {
        let used = self.used.get().map(|used| now.saturating_duration_since(used));
        self.drawn() > HOARD && used.is_none_or(|used| used > IDLE)
    }

    /// Doubles the window if the budget allows it.
    fn larger(&self) -> u64 {
        let window = self.window.get();
        let more = window.min(MOST - window);
        let upper = self.budget.left().saturating_sub(self.budget.total() / 2);
        let is_fair = self.drawn() + more <= upper / PART;
        if is_fair && self.budget.draw(more) { window + more } else { window }
    }

    fn drawn(&self) -> u64 {
        self.window.get() - LEAST + self.debt.get()
    }

    fn begin(&self, now: Instant) {
        self.since.set(Some(now));
        self.read.set(0);
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.budget.release(self.drawn());
    }
}

impl fmt::Debug for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unread({} + {})", self.window.get(), self.debt.get())
    }
}

#[cfg(test)]
mod tests {
    use testkit::pair::Purse;

    use super::*;

    const MIB: u64 = 1 << 20;
    const TRIP: Duration = Duration::from_millis(100);

    struct Carrier {
        unread: Unread,
        now: Instant,
        window: u64,
    }

    impl Carrier {
        fn with(purse: &Purse) -> Self {
            Self::after(purse, 0)
        }

        /// The window after a carrier with the window `former`.
        fn after(purse: &Purse, former: u64) -> Self {
            let unread = Unread::new(Rc::new(purse.clone()), former);
            let window = unread.window();
            Self { unread, now: Instant::now(), window }
        }

        /// Reads in pieces of 16 KiB, evenly over the time.
        fn read(&mut self, bytes: u64, over: Duration) {
            let pieces = bytes.div_ceil(16 << 10).max(1);
            for _ in 0..pieces {
                self.now += over / u32::try_from(pieces).unwrap();
                let next = self.unread.has_read(bytes / pieces, self.now, Some(TRIP));
                self.window = next.unwrap_or(self.window);
            }
        }

        /// Reads as from a sender that doubles its rate with each round trip, up to this number of
        /// bytes per round trip.
        fn start(&mut self, most: u64) {
            let mut flight = 32 << 10;
            while flight < most {
                flight *= 2;
                self.read(flight, TRIP);
                assert!(self.window >= 2 * flight, "{} for {flight}", self.window);
            }
        }
    }

    #[test]
    fn a_sender_that_doubles_with_every_round_trip_is_never_held_up() {
        let purse = Purse::new(1 << 30);
        let mut carrier = Carrier::with(&purse);
        carrier.start(16 * MIB);
        assert_eq!(carrier.window, MOST);
        carrier.read(64 * MIB, TRIP);
        assert_eq!((carrier.window, purse.used()), (MOST, MOST - LEAST));
        drop(carrier);
        assert_eq!(purse.used(), 0);
    }

    #[test]
    fn many_carriers_that_want_all_leave_half_of_the_budget() {
        let purse = Purse::new(64 * MIB);
        let mut carriers: Vec<_> = (0..50).map(|_| Carrier::with(&purse)).collect();
        for _ in 0..20 {
            carriers.iter_mut().for_each(|carrier| carrier.read(4 * MIB, TRIP));
        }
        assert!(purse.used() <= 32 * MIB, "{}", purse.used());
        assert!(purse.used() >= 16 * MIB, "and use the other: {}", purse.used());
        assert!(carriers[0].window <= 8 * MIB, "{}", carriers[0].window);
        drop(carriers);
        assert_eq!(purse.used(), 0);
    }

    #[test]
    fn what_is_promised_is_given_back_only_as_it_is_used() {
        let purse = Purse::new(1 << 30);
        let mut carrier = Carrier::with(&purse);
        carrier.start(4 * MIB);
        let promised = purse.used();
        assert!(promised >= 8 * MIB - LEAST, "{promised}");
        // After a minute without a byte and then a few bytes, the window is small, but the granted
        // credit is not.
        carrier.now += Duration::from_secs(60);
        (0..20).for_each(|_| carrier.read(10, QUIET * 2));
        assert_eq!(carrier.window, LEAST);
        // The first read made the window smaller, and the other reads reduced the granted credit.
        assert_eq!(purse.used(), promised - 190);
        carrier.read(MIB, QUIET * 60);
        assert_eq!(purse.used(), promised - 190 - MIB);
        carrier.read(promised, QUIET * 600);
        assert_eq!((carrier.window, purse.used()), (LEAST, 0));
    }

    #[test]
    fn a_carrier_begins_with_half_of_what_the_last_one_needed() {
        let purse = Purse::new(64 * MIB);
        assert_eq!(Carrier::after(&purse, LEAST).window, LEAST);
        let carrier = Carrier::after(&purse, 4 * MIB);
        assert_eq!((carrier.window, purse.used()), (2 * MIB, 2 * MIB - LEAST));
        // The largest window that a carrier gets from this budget.
        let carriers: Vec<_> = (0..50).map(|_| Carrier::after(&purse, MOST)).collect();
        assert!(carriers[0].window <= 8 * MIB, "{}", carriers[0].window);
        assert!(purse.used() <= 32 * MIB, "{}", purse.used());
        drop((carrier, carriers));
        assert_eq!(purse.used(), 0);
    }

    #[test]
    fn who_uses_a_window_does_not_hoard_it() {
        let purse = Purse::new(1 << 30);
        let mut carrier = Carrier::with(&purse);
        assert!(!carrier.unread.is_hoarding(carrier.now), "there is nothing to be had of it");
        carrier.start(4 * MIB);
        assert!(!carrier.unread.is_hoarding(carrier.now));
        carrier.read(10, IDLE * 2);
        assert!(carrier.unread.is_hoarding(carrier.now));
        carrier.start(4 * MIB);
        assert!(!carrier.unread.is_hoarding(carrier.now));
    }
}
