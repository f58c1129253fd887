//! The proof that the peer is behind our own external address: a check that we sent to that address
//! was answered from there. A peer elsewhere receives no such check, and our NAT accepts no
//! datagram from outside with its own address as source.

use std::net::SocketAddr;

use crate::stun::{self, Id};

/// Maximum number of remembered checks to our own external address: more than an attempt sends to
/// one address.
const SENT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Around {
    sent: Vec<(SocketAddr, Id)>,
    is_proven: bool,
}

impl Around {
    /// Records a STUN message to our own external address.
    pub(super) fn sent(&mut self, to: SocketAddr, message: &[u8]) {
        if let Some(id) = stun::id(message)
            && stun::is_request(message)
            && self.sent.len() < SENT
        {
            self.sent.push((to, id));
        }
    }

    /// Records a response from `from` with the correct password.
    pub(super) fn answered(&mut self, from: SocketAddr, answer: &[u8]) {
        self.is_proven |= stun::id(answer).is_some_and(|id| self.sent.contains(&(from, id)));
    }

    pub(super) const fn is_proven(&self) -> bool {
        self.is_proven
    }
}
