//! Addresses that only a right to them alone reaches: this machine, its links, and the services by
//! which a cloud tells its machines their credentials. Without this rule a right to "everything"
//! would hand the server's own services, and often its cloud account, to a client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::Network;

/// The reserved networks of IPv4: this host (RFC 1122 section 3.2.1.3; a dial to 0.0.0.0 reaches
/// loopback), loopback, link-local (RFC 3927) with the metadata services of most clouds, and the
/// metadata services that have addresses elsewhere (Alibaba Cloud, Oracle Cloud, Azure).
const IPV4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    (Ipv4Addr::new(192, 0, 0, 192), 32),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

/// The reserved networks of IPv6: unspecified and loopback, link-local (RFC 4291 section 2.5.6),
/// and metadata services (Amazon, Google).
const IPV6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 127),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
];

/// The prefixes of IPv6 addresses that contain an IPv4 address, and the number of bits before it: a
/// packet to such an address may arrive at the IPv4 address. IPv4-compatible (RFC 4291 section
/// 2.5.5.1), NAT64 (RFC 6052), NAT64 of a local prefix (RFC 8215, with 96 bits before the address)
/// and 6to4 (RFC 3056). An IPv4-mapped address is an IPv4 address everywhere in this crate.
const CARRYING: &[(Ipv6Addr, u32, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 96, 96),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, 96),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, 96),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 16),
];

/// A reserved network, by its place in the tables. Networks that carry an IPv4 address have the
/// place of their prefix as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    V4 { carried_by: Option<usize>, at: usize },
    V6(usize),
}

impl Reserved {
    /// The reserved network that contains the address, if any does.
    pub(crate) fn of(ip: IpAddr) -> Option<Self> {
        let v4 = |ip: u32, carried_by| {
            let at =
                IPV4.iter().position(|(net, bits)| (net.to_bits() ^ ip) >> (32 - bits) == 0)?;
            Some(Self::V4 { carried_by, at })
        };
        let ip = match ip.to_canonical() {
            IpAddr::V4(ip) => return v4(ip.to_bits(), None),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let is_in = |net: &Ipv6Addr, bits: u32| (net.to_bits() ^ ip) >> (128 - bits) == 0;
        if let Some(at) = IPV6.iter().position(|(net, bits)| is_in(net, *bits)) {
            return Some(Self::V6(at));
        }
        let carrying = CARRYING.iter().position(|(net, bits, _)| is_in(net, *bits))?;
        let (_, _, before) = CARRYING.get(carrying)?;
        // The cast keeps the 32 bits of the IPv4 address.
        #[expect(clippy::cast_possible_truncation, reason = "the lower 32 bits are the address")]
        let carried = (ip >> (96 - before)) as u32;
        v4(carried, Some(carrying))
    }

    /// Whether these are addresses of loopback.
    pub(crate) fn is_loopback(ip: IpAddr) -> bool {
        ip.to_canonical().is_loopback()
    }

    /// Whether all addresses of the network are in this reserved network.
    pub(crate) fn contains(self, network: &Network) -> bool {
        // A reserved network is one range, with or without its prefix: both ends tell.
        [network.ip(), last(network)].into_iter().all(|ip| Self::of(ip) == Some(self))
    }
}

/// The last address of a network.
fn last(network: &Network) -> IpAddr {
    let prefix = u32::from(network.prefix());
    match network.ip() {
        IpAddr::V4(ip) => {
            IpAddr::V4((ip.to_bits() | u32::MAX.checked_shr(prefix).unwrap_or(0)).into())
        }
        IpAddr::V6(ip) => {
            IpAddr::V6((ip.to_bits() | u128::MAX.checked_shr(prefix).unwrap_or(0)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_reserved(ip: &str) -> bool {
        Reserved::of(ip.parse().unwrap()).is_some()
    }

    #[test]
    fn loopback_link_local_and_metadata_are_reserved_in_every_notation() {
        for ip in [
            "127.0.0.1",
            "127.255.255.255",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "febf:ffff::",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::169.254.1.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::127.0.0.1",
            "64:ff9b:1:ffff::100.100.100.200",
            "2002:7f00:1::",
            "2002:7f00:1:1:2:3:4:5",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(is_reserved(ip), "{ip}");
        }
        for ip in [
            "1.1.1.1",
            "10.0.0.1",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "100.100.100.199",
            "100.100.100.201",
            "fec0::1",
            "fe7f::1",
            "fd00::1",
            "fd00:ec3::254",
            "2001:db8::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:2::127.0.0.1",
            "2002:808:808::1",
        ] {
            assert!(!is_reserved(ip), "{ip}");
        }
    }

    #[test]
    fn a_network_names_reserved_addresses_only_if_it_has_no_other() {
        let names = |net: &str, prefix, ip: &str| {
            let network = Network::new(net.parse().unwrap(), prefix).unwrap();
            Reserved::of(ip.parse().unwrap()).unwrap().contains(&network)
        };
        for (net, prefix, ip, want) in [
            ("127.0.0.0", 8, "127.0.0.1", true),
            ("127.0.0.1", 32, "127.0.0.1", true),
            ("0.0.0.0", 0, "127.0.0.1", false),
            // From one reserved network to another, with the whole Internet between.
            ("0.0.0.0", 1, "127.0.0.1", false),
            ("126.0.0.0", 7, "127.0.0.1", false),
            ("169.254.169.254", 32, "169.254.169.254", true),
            ("100.100.100.0", 24, "100.100.100.200", false),
            ("::1", 128, "::1", true),
            ("::", 0, "::1", false),
            ("::", 96, "::1", false),
            ("fe80::", 10, "fe80::1", true),
            ("fe80::", 9, "fe80::1", false),
            ("::ffff:127.0.0.0", 104, "127.0.0.1", true),
            ("64:ff9b::", 96, "64:ff9b::127.0.0.1", false),
            ("64:ff9b::127.0.0.0", 104, "64:ff9b::127.0.0.1", true),
            ("127.0.0.0", 8, "64:ff9b::127.0.0.1", false),
            ("2002:7f00::", 24, "2002:7f00:1::9", true),
            ("2002::", 16, "2002:7f00:1::9", false),
        ] {
            assert_eq!(names(net, prefix, ip), want, "{net}/{prefix} {ip}");
        }
    }
}
