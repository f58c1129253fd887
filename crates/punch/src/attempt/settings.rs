//! The settings of an attempt.

use std::net::{IpAddr, SocketAddr};

use crate::{Kinds, Refused, refusal};

/// Fills bytes with random numbers of cryptographic quality.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// The role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The visitor chooses the pair (controlling, RFC 8445 section 6.1.1).
    Visitor,
    /// The publisher of the service.
    Publisher,
}

/// The settings of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The kinds of candidates that are announced to the peer.
    pub kinds: Kinds,
    /// Whether the socket sends to IPv4 addresses.
    pub ipv4: bool,
    /// Whether the socket sends to IPv6 addresses.
    pub ipv6: bool,
    /// Whether loopback addresses may be candidates: for tests on one machine.
    pub loopback: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { kinds: Kinds::default(), ipv4: true, ipv6: true, loopback: false }
    }
}

impl Settings {
    /// Returns why an address of a peer is refused as a destination; `None` if it is not.
    #[must_use]
    pub fn refusal(&self, address: SocketAddr) -> Option<Refused> {
        let is_tested = self.loopback && address.ip().is_loopback();
        refusal(address).filter(|_| !is_tested || address.port() == 0)
    }

    /// Whether the socket sends to this address.
    pub(super) const fn takes(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        }
    }
}
