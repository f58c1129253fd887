//! Addresses that are not ordinary destinations: this machine, its link, the metadata services of
//! clouds, and multicast groups. A dial on behalf of somebody else reaches them only where a rule
//! names them, because the far end of such an address trusts the machine that dials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Network;

/// Why an address is not an ordinary destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// `0.0.0.0/8`, `::`. Linux connects to this machine instead.
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// `169.254.0.0/16`, `fe80::/10` (RFC 3927, RFC 4291 section 2.5.6).
    LinkLocal,
    /// The address of a cloud's metadata service, which serves secrets of the machine.
    Metadata,
    /// `224.0.0.0/4`, `ff00::/8`.
    Multicast,
    /// `255.255.255.255`.
    Broadcast,
}

/// Addresses at which a cloud provider serves a machine's secrets, or serves that machine alone,
/// according to the providers' documentation. Any program on the machine reaches them without a
/// password. Link-local addresses that are not listed are special as well.
const METADATA: [IpAddr; 18] = [
    // AWS, Azure, Google, Oracle, DigitalOcean, Hetzner, IBM, Huawei, Vultr, Linode, OpenStack.
    v4(169, 254, 169, 254),
    // AWS: tasks of ECS, Pod Identity of EKS.
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    // Tencent.
    v4(169, 254, 0, 23),
    // Scaleway.
    v4(169, 254, 42, 42),
    // Alibaba.
    v4(100, 100, 100, 200),
    // Volcano Engine.
    v4(100, 96, 0, 96),
    // The host agent of Azure.
    v4(168, 63, 129, 16),
    // Oracle Cloud Classic.
    v4(192, 0, 0, 192),
    // AWS over IPv6: metadata, Pod Identity of EKS, the name server and the clock of a VPC.
    v6([0xfd00, 0xec2, 0], [0, 0x254]),
    v6([0xfd00, 0xec2, 0], [0, 0x23]),
    v6([0xfd00, 0xec2, 0], [0, 0x253]),
    v6([0xfd00, 0xec2, 0], [0, 0x123]),
    // Google.
    v6([0xfd20, 0xce, 0], [0, 0x254]),
    // Scaleway.
    v6([0xfd00, 0x42, 0], [0, 0x42]),
    // Oracle.
    v6([0xfd00, 0xc1, 0], [0xa9fe, 0xa9fe]),
    // Linode.
    v6([0xfd00, 0xa9fe, 0xa9fe], [0, 1]),
    // OpenStack.
    v6([0xfe80, 0, 0], [0xa9fe, 0xa9fe]),
];

const fn v6([a, b, c]: [u16; 3], [g, h]: [u16; 2]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, g, h))
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

impl Special {
    /// Why `ip` is not an ordinary destination; `None`: it is ordinary. An IPv6 address that
    /// carries an IPv4 address to which the network may translate it (IPv4-mapped, IPv4-compatible,
    /// 6to4, NAT64) is as special as that address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Option<Self> {
        if METADATA.contains(&ip) {
            return Some(Self::Metadata);
        }
        match ip {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) => Self::of_v6(ip),
        }
    }

    /// The address itself, and the IPv4 addresses that it carries.
    pub fn forms(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
        let carried = match ip {
            IpAddr::V4(_) => [None; 3],
            IpAddr::V6(ip) => carried(ip),
        };
        std::iter::once(ip).chain(carried.into_iter().flatten().map(IpAddr::V4))
    }

    fn of_v4(ip: Ipv4Addr) -> Option<Self> {
        if ip.octets()[0] == 0 {
            Some(Self::Unspecified)
        } else if ip.is_loopback() {
            Some(Self::Loopback)
        } else if ip.is_link_local() {
            Some(Self::LinkLocal)
        } else if ip.is_multicast() {
            Some(Self::Multicast)
        } else {
            ip.is_broadcast().then_some(Self::Broadcast)
        }
    }

    fn of_v6(ip: Ipv6Addr) -> Option<Self> {
        if ip.is_unspecified() {
            Some(Self::Unspecified)
        } else if ip.is_loopback() {
            Some(Self::Loopback)
        } else if ip.is_unicast_link_local() {
            Some(Self::LinkLocal)
        } else if ip.is_multicast() {
            Some(Self::Multicast)
        } else {
            carried(ip).into_iter().flatten().find_map(|ip| Self::of(IpAddr::V4(ip)))
        }
    }
}

/// The IPv4 addresses that an IPv6 address may carry.
fn carried(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let bits = ip.to_bits();
    // Truncation takes the 32 bits that end at `shift`.
    let at = |shift: u32| Some(Ipv4Addr::from_bits((bits >> shift) as u32));
    match ip.segments() {
        // IPv4-compatible, IPv4-mapped (RFC 4291 section 2.5.5) and IPv4-translated (RFC 2765).
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            [at(0), None, None]
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [at(80), None, None],
        // NAT64 (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => [at(0), None, None],
        // NAT64 of a site (RFC 8215), whose prefix has 48, 64 or 96 bits. Bits 64 to 71 are zero
        // (RFC 6052 section 2.2). Where the address is in one of the three positions, the other
        // positions are zero.
        [0x64, 0xff9b, 1, high, ..] => {
            let split = (u32::from(high) << 16) | (bits >> 40) as u32 & 0xffff;
            [Some(Ipv4Addr::from_bits(split)), at(24), at(0)]
                .map(|ip| ip.filter(|ip| ip.octets()[0] != 0))
        }
        _ => [None; 3],
    }
}

impl Network {
    /// Whether the network names this address: it contains the address and, if the address is not
    /// an ordinary destination ([`Special`]), only addresses of the same kind. So `10.0.0.0/8`
    /// names all its addresses, `127.0.0.0/8` names `127.0.0.1`, and `0.0.0.0/0` does not. The
    /// address is in canonical form.
    #[must_use]
    pub fn names(&self, ip: IpAddr) -> bool {
        self.contains(ip)
            && Special::of(ip).is_none_or(|kind| {
                // The ranges of a kind are aligned, so a network with both ends in one range lies
                // inside it.
                let is_same = |ip| Special::of(ip) == Some(kind);
                is_same(self.ip()) && is_same(self.last())
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn special_addresses_are_known_in_every_form() {
        let table = [
            ("0.0.0.0", Some(Special::Unspecified)),
            ("0.1.2.3", Some(Special::Unspecified)),
            ("127.0.0.1", Some(Special::Loopback)),
            ("127.255.255.254", Some(Special::Loopback)),
            ("169.254.0.1", Some(Special::LinkLocal)),
            ("169.254.169.254", Some(Special::Metadata)),
            ("100.100.100.200", Some(Special::Metadata)),
            ("224.0.0.1", Some(Special::Multicast)),
            ("239.255.255.255", Some(Special::Multicast)),
            ("255.255.255.255", Some(Special::Broadcast)),
            ("::", Some(Special::Unspecified)),
            ("::1", Some(Special::Loopback)),
            ("fe80::1", Some(Special::LinkLocal)),
            ("febf::1", Some(Special::LinkLocal)),
            ("169.254.170.23", Some(Special::Metadata)),
            ("100.96.0.96", Some(Special::Metadata)),
            ("168.63.129.16", Some(Special::Metadata)),
            ("fd00:ec2::254", Some(Special::Metadata)),
            ("fd00:ec2::23", Some(Special::Metadata)),
            ("fd00:ec2::253", Some(Special::Metadata)),
            ("fd20:ce::254", Some(Special::Metadata)),
            ("fd00:42::42", Some(Special::Metadata)),
            ("fd00:c1::a9fe:a9fe", Some(Special::Metadata)),
            ("fd00:a9fe:a9fe::1", Some(Special::Metadata)),
            ("fe80::a9fe:a9fe", Some(Special::Metadata)),
            ("2002:a9fe:aa17::1", Some(Special::Metadata)),
            ("ff02::1", Some(Special::Multicast)),
            // Mapped, compatible, translated.
            ("::ffff:127.0.0.1", Some(Special::Loopback)),
            ("::ffff:169.254.169.254", Some(Special::Metadata)),
            ("::127.0.0.1", Some(Special::Loopback)),
            ("::ffff:0:127.0.0.1", Some(Special::Loopback)),
            // 6to4.
            ("2002:7f00:1::", Some(Special::Loopback)),
            ("2002:a9fe:a9fe::5", Some(Special::Metadata)),
            // NAT64.
            ("64:ff9b::127.0.0.1", Some(Special::Loopback)),
            ("64:ff9b::169.254.169.254", Some(Special::Metadata)),
            ("64:ff9b:1::127.0.0.1", Some(Special::Loopback)),
            ("64:ff9b:1:7f00:0:100::", Some(Special::Loopback)),
            ("64:ff9b:1:808:7f:0:100:0", Some(Special::Loopback)),
            // Ordinary.
            ("1.1.1.1", None),
            ("10.0.0.1", None),
            ("100.64.0.1", None),
            ("192.168.1.1", None),
            ("128.0.0.1", None),
            ("169.253.0.1", None),
            ("223.255.255.255", None),
            ("2001:db8::1", None),
            ("fd00::1", None),
            ("fec0::1", None),
            ("2002:102:304::1", None),
            ("64:ff9b::1.2.3.4", None),
            ("64:ff9b:1::1.2.3.4", None),
            ("64:ff9b:1:102:3:400::", None),
            ("::ffff:10.0.0.1", None),
        ];
        for (ip, kind) in table {
            assert_eq!(Special::of(ip.parse().unwrap()), kind, "{ip}");
        }
    }

    #[test]
    fn a_network_names_special_addresses_only_if_it_has_no_others() {
        let table = [
            ("10.0.0.0", 8, "10.1.2.3", true),
            ("10.0.0.0", 8, "11.1.2.3", false),
            ("0.0.0.0", 0, "1.1.1.1", true),
            ("0.0.0.0", 0, "127.0.0.1", false),
            ("0.0.0.0", 0, "0.0.0.0", false),
            ("64.0.0.0", 2, "127.0.0.1", false),
            ("127.0.0.0", 8, "127.0.0.1", true),
            ("127.0.0.1", 32, "127.0.0.1", true),
            ("169.254.0.0", 16, "169.254.1.1", true),
            ("169.254.0.0", 16, "169.254.169.254", false),
            ("169.254.169.254", 32, "169.254.169.254", true),
            ("::", 0, "::1", false),
            ("::1", 128, "::1", true),
            ("fe80::", 10, "fe80::1", true),
            ("fc00::", 7, "fd00:ec2::254", false),
            ("fd00:ec2::254", 128, "fd00:ec2::254", true),
            ("::", 0, "64:ff9b::7f00:1", false),
            ("64:ff9b::7f00:0", 104, "64:ff9b::7f00:1", true),
        ];
        for (net, prefix, ip, names) in table {
            let network = Network::new(net.parse().unwrap(), prefix).unwrap();
            assert_eq!(network.names(ip.parse().unwrap()), names, "{net}/{prefix} {ip}");
        }
    }

    proptest! {
        #[test]
        fn a_carried_address_is_as_special_as_itself(ip: Ipv4Addr) {
            let bits = u128::from(ip.to_bits());
            let kind = Special::of(IpAddr::V4(ip));
            // `::` and `::1` have a meaning of their own.
            if bits > 1 {
                for form in [
                    bits,
                    0xffff << 32 | bits,
                    0x2002 << 112 | bits << 80,
                    0x64_ff9b << 96 | bits,
                ] {
                    prop_assert_eq!(Special::of(Ipv6Addr::from_bits(form).into()), kind);
                }
            }
        }

        #[test]
        fn an_address_alone_always_names_itself(ip: IpAddr) {
            let ip = ip.to_canonical();
            let width = if ip.is_ipv4() { 32 } else { 128 };
            prop_assert!(Network::new(ip, width).unwrap().names(ip));
        }
    }
}
