//! An IP network: an address and a prefix length (RFC 4632, RFC 4291 section 2.3), and lists of
//! networks.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

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

/// The largest number of networks in a list that a service sends. A list of at most this size is
/// compared network by network.
pub const NETWORKS_MAX: usize = 256;

/// A list of networks. A clone shares the list.
///
/// A list of at most [`NETWORKS_MAX`] networks has them as they were given. A longer list is
/// sorted, without networks that are inside others, so that an address is found by a binary search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(Arc<[Network]>);

impl Networks {
    /// Whether a network of the list contains this address, which is in canonical form.
    #[must_use]
    pub fn contain(&self, ip: IpAddr) -> bool {
        let Self(all) = self;
        if all.len() <= NETWORKS_MAX {
            return all.iter().any(|network| network.contains(ip));
        }
        // No network is inside another, so only the last one that begins at or before the address
        // may contain it.
        let behind = all.partition_point(|network| network.ip <= ip);
        behind.checked_sub(1).and_then(|at| all.get(at)).is_some_and(|network| network.contains(ip))
    }
}

impl From<Vec<Network>> for Networks {
    fn from(mut all: Vec<Network>) -> Self {
        if all.len() > NETWORKS_MAX {
            // Of two networks with the same first address, the larger one has the shorter prefix.
            all.sort_unstable_by_key(|network| (network.ip, network.prefix));
            // Networks are nested or disjoint, and the sort puts a network behind those around it.
            all.dedup_by(|inner, outer| outer.contains(inner.ip));
        }
        Self(all.into())
    }
}

impl<const N: usize> From<[Network; N]> for Networks {
    fn from(all: [Network; N]) -> Self {
        Vec::from(all).into()
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(all: I) -> Self {
        Vec::from_iter(all).into()
    }
}

/// The empty list.
impl Default for Networks {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl Deref for Networks {
    type Target = [Network];

    fn deref(&self) -> &[Network] {
        &self.0
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

    proptest! {
        /// Few bits differ, so that many networks contain each other.
        #[test]
        fn a_long_list_has_the_addresses_of_its_networks(
            all in prop::collection::vec((any::<bool>(), 0_u8..16, 0_u8..16, 8_u8..=32), 0..600),
            asked in prop::collection::vec((any::<bool>(), 0_u8..16, 0_u8..16), 50)
        ) {
            let ip = |is_v4: bool, a: u8, b: u8| if is_v4 {
                IpAddr::from([10, a, 0, b])
            } else {
                IpAddr::from([0x2001, u16::from(a) << 12, u16::from(b), 0, 0, 0, 0, 1])
            };
            let all = all.into_iter().map(|(v, a, b, n)| Network::new(ip(v, a, b), n).unwrap());
            let all: Vec<_> = all.collect();
            let list = Networks::from(all.clone());
            for (v, a, b) in asked {
                let ip = ip(v, a, b);
                prop_assert_eq!(list.contain(ip), all.iter().any(|one| one.contains(ip)));
            }
        }
    }

    #[test]
    fn a_short_list_stays_as_it_is_given_and_a_long_list_has_each_network_once() {
        let given = [network("10.0.0.0", 8), network("10.1.0.0", 16), network("9.0.0.0", 8)];
        assert_eq!(*Networks::from(given), given);
        let long: Networks = given.iter().copied().cycle().take(NETWORKS_MAX + 1).collect();
        assert_eq!(*long, [given[2], given[0]]);
        let all = |n: u32| Network::new(IpAddr::V4((n * 512).into()), 24).unwrap();
        let long: Networks = (0..100_000).rev().map(all).collect();
        assert_eq!(long.len(), 100_000);
        for (ip, is_in) in
            [("0.0.0.9", true), ("0.0.1.0", false), ("3.13.63.0", false), ("::", false)]
        {
            assert_eq!(long.contain(ip.parse().unwrap()), is_in, "{ip}");
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
