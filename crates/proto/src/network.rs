//! An IP network: an address and a prefix length (RFC 4632, RFC 4291 section 2.3).

use std::fmt;
use std::net::IpAddr;

/// A network in canonical form: the bits after the prefix are zero, and an IPv4-mapped network
/// (`::ffff:10.0.0.0/104`) is an IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    ip: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of this address and prefix length. `None` if the prefix is longer than the
    /// address.
    #[must_use]
    pub fn new(ip: IpAddr, prefix: u8) -> Option<Self> {
        if prefix > width(ip) {
            return None;
        }
        let canonical = ip.to_canonical();
        let (ip, prefix) = if canonical.is_ipv4() && ip.is_ipv6() && prefix >= 96 {
            (canonical, prefix - 96)
        } else {
            (ip, prefix)
        };
        let behind = u32::from(width(ip) - prefix);
        let ip = match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V4((ip.to_bits() & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V6((ip.to_bits() & mask).into())
            }
        };
        Some(Self { ip, prefix })
    }

    /// Whether the network contains all addresses of its family.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.prefix == 0
    }

    /// The first address of the network.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The last address of the network.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        let behind = u32::from(width(self.ip) - self.prefix);
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V4((ip.to_bits() | !mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V6((ip.to_bits() | !mask).into())
            }
        }
    }

    /// The number of leading bits that all addresses of the network share.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the network contains this address, which is in canonical form. A network contains
    /// addresses of its own family only.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let behind = u32::from(width(self.ip) - self.prefix);
        match (ip, self.ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(behind).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(behind).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

const fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// `10.0.0.0/8`; a single address has no prefix: `192.0.2.1`.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == width(self.ip) {
            self.ip.fmt(f)
        } else {
            write!(f, "{}/{}", self.ip, self.prefix)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(ip: &str, prefix: u8) -> Network {
        Network::new(ip.parse().unwrap(), prefix).unwrap()
    }

    proptest! {
        #[test]
        fn the_addresses_of_a_network_are_those_that_share_its_prefix(
            a: IpAddr, b: IpAddr, prefix in 0_u8..=32
        ) {
            let (a, b) = (a.to_canonical(), b.to_canonical());
            let net = Network::new(a, prefix).unwrap();
            prop_assert!(net.contains(a) && net.contains(net.ip()) && net.contains(net.last()));
            let same = a.is_ipv4() == b.is_ipv4() && Network::new(b, prefix) == Some(net);
            prop_assert_eq!(net.contains(b), same);
        }
    }

    #[test]
    fn a_network_is_canonical_and_has_no_longer_prefix_than_its_address() {
        assert_eq!(network("10.1.2.3", 8).to_string(), "10.0.0.0/8");
        assert_eq!(network("10.1.2.3", 32).to_string(), "10.1.2.3");
        assert_eq!(network("2001:db8::1", 32).to_string(), "2001:db8::/32");
        assert_eq!(network("::ffff:10.1.2.3", 104), network("10.0.0.0", 8));
        assert_eq!(network("0.0.0.0", 0).to_string(), "0.0.0.0/0");
        assert!(!network("::", 0).contains("10.0.0.1".parse().unwrap()));
        assert_eq!(Network::new("10.0.0.0".parse().unwrap(), 33), None);
        assert_eq!(Network::new("::".parse().unwrap(), 129), None);
    }
}
