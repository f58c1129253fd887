//! Tickets that were shown, so that none works twice (RFC 8446 section 8.1).

use std::collections::{HashSet, VecDeque};

use aws_lc_rs::aead::NONCE_LEN;

/// How many are remembered, 2 MB when all are there. 0-RTT with a ticket whose age is wrong by a
/// minute is refused by rustls: a replay within that minute, after 65,536 resumptions, gets through
/// to what makes it harmless anyway.
const REMEMBERED: usize = 65_536;

/// The nonces of tickets; they differ, and nobody can alter one in a ticket that opens.
#[derive(Debug, Default)]
pub(super) struct Used {
    known: HashSet<[u8; NONCE_LEN]>,
    /// Oldest first.
    order: VecDeque<[u8; NONCE_LEN]>,
}

impl Used {
    /// Whether this one is new; from now on it is not.
    pub(super) fn first(&mut self, nonce: [u8; NONCE_LEN]) -> bool {
        if !self.known.insert(nonce) {
            return false;
        }
        self.order.push_back(nonce);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(number: usize) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce
    }

    #[test]
    fn the_newest_are_known_and_there_is_an_end_to_it() {
        let mut used = Used::default();
        assert!((0..=REMEMBERED).all(|number| used.first(nonce(number))));
        assert_eq!(used.known.len(), REMEMBERED);
        assert!((1..=REMEMBERED).all(|number| !used.first(nonce(number))));
        assert!(used.first(nonce(0)), "the oldest was forgotten");
    }
}
