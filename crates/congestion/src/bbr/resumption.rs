//! A start that uses the measurements of an earlier connection over the same path. This is temporal
//! sharing (RFC 9040), in the phases of careful resume (draft-ietf-tsvwg-careful-resume).
//!
//! ```text
//!   Fresh --first flight came back, as then--> Jumped --its bytes came back--> Over
//!     \--path is another-------------------------\--much of them was lost------^
//! ```
//!
//! * **Fresh** is a usual start. Its first flight shows whether the path is unchanged: the least
//!   round trip is within [`ALIKE`] of the earlier least round trip, and nearly no packet is lost.
//! * **Jumped**: [`SHARE`] of the earlier capacity is kept in flight, paced over a round trip. The
//!   controller still uses only rates that it has measured itself.
//! * **Over** begins once a flight of half of that size was acknowledged. The window is again the
//!   window of a start at the measured rate. A path that has become slow loses at most the bytes of
//!   one jump.

use std::time::Duration;

use super::{Bbr, Mode, STARTUP_GAIN};
use crate::FIRST_FLIGHT;

/// The measurements of a connection about its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The best recent delivery rate, bytes per second.
    pub rate: f64,
    /// The least round trip.
    pub round_trip: Duration,
    /// The share of packets that was lost, from 0 to 1.
    pub loss: f64,
}

/// A path whose round-trip time differs by more than this factor is a different path.
const ALIKE: u32 = 2;

/// The share of the earlier capacity that is sent before the path has shown that the capacity is
/// unchanged. The draft allows half of the earlier window, and the window is here 1.2 times the
/// capacity.
const SHARE: f64 = 0.6;

/// If a larger share of the jump is lost, the path carries less than before.
const REFUSED: f64 = 0.3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumption {
    Fresh,
    Jumped {
        /// The first packet of the jump.
        first: u64,
        /// The last packet of the round trip that follows the acknowledgement of `first`.
        last: Option<u64>,
        /// Half of the window was in flight. If the application or the receiver's credit limited
        /// the flight, it has shown nothing about the path.
        is_used: bool,
    },
    Over,
}

impl Bbr {
    /// Whether this connection starts, its first round trip is over, and it has more to send than
    /// its window allows. Then [`Bbr::resume`] may shorten the start.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.resumption == Resumption::Fresh
            && matches!(self.mode, Mode::Startup)
            && self.round > 0
            && !self.is_limited
    }

    /// Uses the measurements of an earlier connection over this path if the path seems to be the
    /// same. Returns whether they are used. The first call decides.
    pub fn resume(&mut self, past: Measured) -> bool {
        let now = self.round_trips.least();
        let is_alike = now <= past.round_trip * ALIKE && past.round_trip <= now * ALIKE;
        // A single packet, or the usual loss of the path.
        let lost = self.mtu as f64 + 2.0 * past.loss * (self.acked + self.lost) as f64;
        let jump = (past.rate * now.min(past.round_trip).as_secs_f64() * SHARE) as u64;
        self.resumption = Resumption::Over;
        if !is_alike || self.lost as f64 > lost || jump <= self.window {
            return false;
        }
        self.window = jump;
        let first = self.last_sent + 1;
        self.resumption = Resumption::Jumped { first, last: None, is_used: false };
        true
    }

    /// The measurements of this connection about its path. They exist once the start has found the
    /// limit, and are returned while the path is the limit.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        let (rate, round_trip) = (self.best.get(), self.round_trips.least());
        let is_known = !matches!(self.mode, Mode::Startup) && !self.is_limited && rate > 0.0;
        is_known.then_some(Measured { rate, round_trip, loss: self.loss })
    }

    /// A batch of acknowledgements up to this packet has ended.
    pub(super) fn validate(&mut self, acked: u64) {
        let Resumption::Jumped { first, last, is_used } = self.resumption else { return };
        let is_used = is_used || self.in_flight >= self.window / 2;
        let last = match last {
            None if acked < first => None,
            Some(last) if acked <= last => Some(last),
            Some(_) if is_used => {
                self.resumption = Resumption::Over;
                return self.fall_back(STARTUP_GAIN);
            }
            None | Some(_) => Some(self.last_sent),
        };
        self.resumption = Resumption::Jumped { first, last, is_used };
    }

    /// Whether much of the jump was lost.
    pub(super) fn is_refused(&self) -> bool {
        let all = self.round_lost + self.round_acked;
        matches!(self.resumption, Resumption::Jumped { last: Some(_), .. })
            && self.round_lost as f64 > REFUSED * all as f64
            && self.round_lost >= FIRST_FLIGHT / 2 * self.mtu
    }

    /// The path carries less than before, so the start goes on from the measured rate.
    pub(super) fn retreat(&mut self) {
        self.resumption = Resumption::Over;
        self.fall_back(1.0);
    }

    fn fall_back(&mut self, gain: f64) {
        if matches!(self.mode, Mode::Startup) {
            let least = FIRST_FLIGHT * self.mtu;
            self.window = self.window.min(self.fitting(gain)).max(least);
        }
    }
}
