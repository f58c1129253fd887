//! Validates a new address of a peer, which must show that it receives there (RFC 9000 section 9).
//!
//! Packets of the peer that arrive from another address are genuine, but the address may be forged:
//! an attacker on the path can send a copy of a packet from any address. So a challenge is sent to
//! the new address, and everything else to the old one until the response arrives.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::socket::Origin;

/// The largest number of challenges to one address. Then the address is ignored until the peer uses
/// a third address.
const TRIES: u8 = 8;

/// The shortest time between two challenges.
const LEAST: Duration = Duration::from_millis(50);

/// A check of a new address.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) to: Origin,
    token: [u8; 8],
    last: Instant,
    tries: u8,
}

impl Moving {
    /// Starts to check an address.
    pub(crate) const fn new(to: Origin, token: [u8; 8], now: Instant) -> Self {
        Self { to, token, last: now, tries: 1 }
    }

    /// The peer sent from the address again. Returns whether another challenge is due; `round_trip`
    /// is that of the old path.
    pub(crate) fn is_due(&mut self, now: Instant, round_trip: Duration) -> bool {
        let wait = LEAST.max(round_trip + round_trip / 2);
        let is_due = self.tries < TRIES && now.saturating_duration_since(self.last) >= wait;
        if is_due {
            self.tries += 1;
            self.last = now;
        }
        is_due
    }

    pub(crate) const fn token(&self) -> [u8; 8] {
        self.token
    }

    /// Whether this response from this address completes the check.
    pub(crate) fn is_answered(&self, from: SocketAddr, answer: [u8; 8]) -> bool {
        self.to.peer == from && self.token == answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_challenged_a_few_times_and_answers_count_from_there_alone() {
        let now = Instant::now();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut moving = Moving::new(Origin { peer: at(5), local: None }, [1; 8], now);
        let rtt = Duration::from_millis(100);
        assert!(!moving.is_due(now + Duration::from_millis(149), rtt));
        let mut due = 0;
        for step in 1..100 {
            due += u8::from(moving.is_due(now + step * Duration::from_millis(150), rtt));
        }
        assert_eq!(due, TRIES - 1);
        assert!(moving.is_answered(at(5), [1; 8]));
        assert!(!moving.is_answered(at(6), [1; 8]));
        assert!(!moving.is_answered(at(5), [2; 8]));
    }
}
