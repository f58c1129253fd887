//! The tickets that clients have presented, so that no ticket works twice (RFC 8446 section 8.1).

use std::collections::{HashSet, VecDeque};

use aws_lc_rs::aead::NONCE_LEN;

/// The number of remembered tickets, which take at most 2 MB. rustls refuses 0-RTT when the
/// ticket's age is wrong by a minute. So a replay gets through only within a minute and after
/// 65,536 resumptions, and then 0-RTT data is harmless anyway.
const REMEMBERED: usize = 65_536;

/// The nonces of the presented tickets. Nonces are unique, and a ticket with an altered nonce does
/// not open.
#[derive(Debug, Default)]
pub(super) struct Used {
    known: HashSet<[u8; NONCE_LEN]>,
    /// The nonces, oldest first.
    order: VecDeque<[u8; NONCE_LEN]>,
}

impl Used {
    /// Whether `nonce` is new. The call records it.
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
