//! Candidates: the addresses at which a client may be reachable.

use std::fmt;
use std::net::SocketAddr;

/// The origin of an address, in order of preference, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An address of an interface of the machine.
    Host,
    /// A port that the router mapped at our request (PCP, NAT-PMP, UPnP).
    Mapped,
    /// The address that a STUN server sees.
    Reflexive,
    /// An address that neither end knew before a check arrived from it.
    Discovered,
}

impl Kind {
    /// The preference of RFC 8445 section 5.1.2.2. A mapped port counts as a server-reflexive
    /// address, and is preferred to others: the router does not filter it.
    const fn preference(self) -> u32 {
        match self {
            Self::Host => 126,
            Self::Mapped => 101,
            Self::Reflexive => 100,
            Self::Discovered => 110,
        }
    }

    /// The name in configuration and status.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Mapped => "mapped",
            Self::Reflexive => "reflexive",
            Self::Discovered => "discovered",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An address at which a client may be reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The origin of the address.
    pub kind: Kind,
    /// The address; never an IPv4-mapped IPv6 address.
    pub address: SocketAddr,
    /// The priority (RFC 8445 section 5.1.2.1), from 1 to 2^31 - 1.
    pub priority: u32,
}

impl Candidate {
    /// The candidate with the priority of the `index`th address of its kind. IPv6 comes before
    /// IPv4, because it usually has no NAT.
    #[must_use]
    pub fn new(kind: Kind, address: SocketAddr, index: usize) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let index = u32::try_from(index).unwrap_or(u32::MAX).min(0x7fff);
        let local = if address.is_ipv6() { 0xffff } else { 0x7fff } - index;
        // One component, whose number is 1.
        Self { kind, address, priority: kind.preference() << 24 | local << 8 | 255 }
    }
}

/// The kinds of candidates that a client announces to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Addresses of interfaces, which reveal the internal network to the peer. The client then also
    /// sends to private addresses of the peer.
    pub host: bool,
    /// Ports that the router mapped.
    pub mapped: bool,
    /// Addresses that STUN servers see.
    pub reflexive: bool,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { host: true, mapped: true, reflexive: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_better_kind_a_newer_protocol_and_an_earlier_address_come_first() {
        let of = |kind, address: &str, index| {
            Candidate::new(kind, address.parse().unwrap(), index).priority
        };
        let sorted = [
            of(Kind::Host, "[2001:db8::1]:9", 0),
            of(Kind::Host, "192.0.2.1:9", 0),
            of(Kind::Host, "192.0.2.1:9", 1),
            of(Kind::Mapped, "192.0.2.1:9", 0),
            of(Kind::Reflexive, "192.0.2.1:9", 0),
            of(Kind::Reflexive, "192.0.2.1:9", usize::MAX),
        ];
        assert!(sorted.is_sorted_by(|better, worse| better > worse), "{sorted:?}");
        assert!(sorted.iter().all(|one| (1..1 << 31).contains(one)));
    }

    #[test]
    fn an_address_of_ipv4_has_one_form() {
        let mapped = Candidate::new(Kind::Host, "[::ffff:192.0.2.1]:9".parse().unwrap(), 0);
        assert_eq!(mapped.address, "192.0.2.1:9".parse().unwrap());
    }
}
