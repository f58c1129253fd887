//! The proof that the peer is behind our own outer address: a check that we sent there was answered
//! from there. The peer elsewhere sees no such check, and our NAT takes no datagram from outside
//! that comes from its own address.

use std::net::SocketAddr;

use crate::stun::{self, Id};

/// Checks to our own outer address that are remembered: more than an attempt sends to one address.
const SENT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Around {
    sent: Vec<(SocketAddr, Id)>,
    is_proven: bool,
}

impl Around {
    /// A message of STUN leaves to our own outer address.
    pub(super) fn sent(&mut self, to: SocketAddr, message: &[u8]) {
        if let Some(id) = stun::id(message)
            && stun::is_request(message)
            && self.sent.len() < SENT
        {
            self.sent.push((to, id));
        }
    }

    /// This answer came from `from`, with the right password.
    pub(super) fn answered(&mut self, from: SocketAddr, answer: &[u8]) {
        self.is_proven |= stun::id(answer).is_some_and(|id| self.sent.contains(&(from, id)));
    }

    pub(super) const fn is_proven(&self) -> bool {
        self.is_proven
    }
}
