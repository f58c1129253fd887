//! Filters the candidates of a peer. The peer is not trusted: it must not use this machine to reach
//! a service that only this machine can reach, or to flood a third machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Why an address is refused as a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// `127.0.0.0/8`, `::1`.
    #[error("a loopback address")]
    Loopback,
    /// `169.254.0.0/16`, `fe80::/10`.
    #[error("a link-local address")]
    LinkLocal,
    /// One datagram would reach several machines.
    #[error("a multicast or broadcast address")]
    Multicast,
    /// `0.0.0.0/8`, `::`, and reserved ranges.
    #[error("no address of a machine")]
    Unspecified,
    /// The metadata service of a cloud, which serves secrets of the machine.
    #[error("the metadata service of a cloud")]
    Metadata,
    /// An IPv6 address with an embedded IPv4 address, which the peer can announce directly.
    #[error("an IPv4 address in the form of IPv6")]
    Embedded,
    /// Port 0.
    #[error("port 0")]
    Port,
}

/// The metadata services outside of the link-local ranges: Alibaba, Azure, Oracle, Google, Oracle,
/// Scaleway.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// Returns why an address of a peer is refused as a destination; `None` if it is not. Private
/// addresses are not refused here ([`is_private`]).
#[must_use]
pub fn refusal(address: SocketAddr) -> Option<Refused> {
    if address.port() == 0 {
        return Some(Refused::Port);
    }
    let ip = address.ip();
    if METADATA.contains(&ip) {
        return Some(Refused::Metadata);
    }
    match ip {
        IpAddr::V4(ip) => of_v4(ip),
        IpAddr::V6(ip) => of_v6(ip),
    }
}

const fn of_v4(ip: Ipv4Addr) -> Option<Refused> {
    let [first, ..] = ip.octets();
    Some(match first {
        127 => Refused::Loopback,
        0 => Refused::Unspecified,
        224..240 => Refused::Multicast,
        240.. if ip.is_broadcast() => Refused::Multicast,
        240.. => Refused::Unspecified,
        _ if ip.is_link_local() => Refused::LinkLocal,
        _ => return None,
    })
}

const fn of_v6(ip: Ipv6Addr) -> Option<Refused> {
    let [a, b, ..] = ip.segments();
    Some(if ip.is_loopback() {
        Refused::Loopback
    } else if ip.is_unspecified() {
        Refused::Unspecified
    } else if a & 0xff00 == 0xff00 {
        Refused::Multicast
    // fe80::/10, and fec0::/10, the deprecated site-local addresses.
    } else if a & 0xff80 == 0xfe80 {
        Refused::LinkLocal
    // fd00:ec2::/32: the instance services of AWS (metadata 254, name server 253, pods 23).
    } else if a == 0xfd00 && b == 0xec2 {
        Refused::Metadata
    // ::/96 and ::ffff:0:0/96, 64:ff9b::/96 with 64:ff9b:1::/48 (NAT64), 2002::/16 (6to4),
    // 2001::/32 (Teredo).
    } else if (a == 0 && b == 0)
        || (a == 0x64 && b == 0xff9b)
        || a == 0x2002
        || (a == 0x2001 && b == 0)
    {
        Refused::Embedded
    } else {
        return None;
    })
}

/// Whether an address belongs to a private network: RFC 1918, RFC 6598 (providers), RFC 4193
/// (IPv6).
#[must_use]
pub const fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || (a == 100 && b & 0xc0 == 64)
        }
        IpAddr::V6(ip) => ip.segments()[0] & 0xfe00 == 0xfc00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Option<Refused> {
        refusal(address.parse().unwrap())
    }

    #[test]
    fn addresses_that_a_stranger_must_not_name_are_refused() {
        for (address, why) in [
            ("127.0.0.1:7000", Refused::Loopback),
            ("127.255.255.255:7000", Refused::Loopback),
            ("[::1]:7000", Refused::Loopback),
            ("169.254.169.254:80", Refused::LinkLocal),
            ("[fe80::1]:7000", Refused::LinkLocal),
            ("[fec0::1]:7000", Refused::LinkLocal),
            ("224.0.0.251:5353", Refused::Multicast),
            ("255.255.255.255:7000", Refused::Multicast),
            ("[ff02::fb]:5353", Refused::Multicast),
            ("0.0.0.0:7000", Refused::Unspecified),
            ("0.1.2.3:7000", Refused::Unspecified),
            ("240.0.0.1:7000", Refused::Unspecified),
            ("[::]:7000", Refused::Unspecified),
            ("100.100.100.200:80", Refused::Metadata),
            ("168.63.129.16:80", Refused::Metadata),
            ("192.0.0.192:80", Refused::Metadata),
            ("[fd00:ec2::254]:80", Refused::Metadata),
            ("[fd00:ec2::23]:80", Refused::Metadata),
            ("[fd20:ce::254]:80", Refused::Metadata),
            ("[fd00:c1::a9fe:a9fe]:80", Refused::Metadata),
            ("[fd00:42::42]:80", Refused::Metadata),
            ("[::ffff:127.0.0.1]:7000", Refused::Embedded),
            ("[::ffff:169.254.169.254]:80", Refused::Embedded),
            ("[::127.0.0.1]:7000", Refused::Embedded),
            ("[64:ff9b::a9fe:a9fe]:80", Refused::Embedded),
            ("[64:ff9b:1::a9fe:a9fe]:80", Refused::Embedded),
            ("[2002:a9fe:a9fe::1]:80", Refused::Embedded),
            ("[2001:0:1::1]:80", Refused::Embedded),
            ("192.0.2.1:0", Refused::Port),
        ] {
            assert_eq!(of(address), Some(why), "{address}");
        }
    }

    #[test]
    fn addresses_of_machines_are_not_refused() {
        for address in [
            "192.0.2.1:1",
            "10.0.0.1:65535",
            "[2001:db8::1]:7000",
            "[fd12::1]:7000",
            "[fd00:42::1]:1",
        ] {
            assert_eq!(of(address), None, "{address}");
        }
    }

    #[test]
    fn private_networks_are_told_from_public_ones() {
        let private = |ip: &str| is_private(ip.parse().unwrap());
        for ip in ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.127.255.255"] {
            assert!(private(ip), "{ip}");
        }
        assert!(private("fd12::1") && private("fc00::1"));
        for ip in ["192.0.2.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2001:db8::1"] {
            assert!(!private(ip), "{ip}");
        }
    }
}
