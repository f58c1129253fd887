//! The classification of an interface by its reachability for a peer: by the kind of its driver
//! and, if there is none, by its name.

use std::collections::HashMap;

use super::message::Interface;

/// The reachability of an interface for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// A network card, a radio, or an interface on top of one.
    Network,
    /// An end of a veth pair, like the only interface of a container, and any unknown interface.
    Plain,
    /// A tunnel or a VPN.
    Tunnel,
    /// A bridge or a veth pair to containers and virtual machines of this machine.
    Virtual,
    /// An interface whose addresses reach only this machine.
    Inner,
}

/// Driver kinds (`IFLA_INFO_KIND`) on top of network cards, or of network cards.
const NETWORKS: [&str; 14] = [
    "bond", "bonding", "dsa", "hsr", "ipvlan", "ipvtap", "macsec", "macvlan", "macvtap", "rmnet",
    "team", "vlan", "wwan", "mhi_net",
];

/// Kinds of tunnels.
const TUNNELS: [&str; 22] = [
    "amneziawg",
    "bareudp",
    "erspan",
    "fou",
    "gre",
    "gretap",
    "gtp",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ip6_vti",
    "ipip",
    "l2tpeth",
    "ovpn",
    "ovpn-dco",
    "ppp",
    "sit",
    "tun",
    "vti",
    "wireguard",
    "xfrm",
];

/// Driver kinds that connect containers or virtual machines, across machines or within this
/// machine.
const VIRTUAL: [&str; 4] = ["bridge", "geneve", "openvswitch", "vxlan"];

/// Driver kinds without a network behind them.
const INNER: [&str; 8] =
    ["dummy", "ifb", "netdevsim", "nlmon", "vcan", "vrf", "vsockmon", "lowpan"];

/// Name prefixes of interfaces of containers and virtual machines.
const OF_CONTAINERS: [&str; 37] = [
    "antrea",
    "azv",
    "br_netavark",
    "cali",
    "cbr",
    "cilium",
    "cni",
    "docker",
    "flannel",
    "fwbr",
    "fwln",
    "fwpr",
    "incusbr",
    "kube-",
    "lxc",
    "lxd",
    "mpbr",
    "mpqemubr",
    "nerdctl",
    "nodelocaldns",
    "ovs-",
    "podman",
    "tap",
    "vb-",
    "vboxnet",
    "ve-",
    "vethernet",
    "veth",
    "virbr",
    "vmnet",
    "vnet",
    "vxlan",
    "vz-",
    "waydroid",
    "weave",
    "dummy",
    "ifb",
];

/// Name prefixes of tunnels.
const OF_TUNNELS: [&str; 28] = [
    "amn",
    "awg",
    "cloudflarewarp",
    "cscotun",
    "forti",
    "gpd",
    "gre",
    "ham",
    "ip6tnl",
    "ipsec",
    "mullvad",
    "nebula",
    "netbird",
    "nordlynx",
    "nordtun",
    "outline",
    "ovpn",
    "ppp",
    "proton",
    "sit",
    "tailscale",
    "tun",
    "utun",
    "vpn",
    "vti",
    "wg",
    "wt",
    "zt",
];

/// The kinds of all interfaces, by index.
pub(super) fn kinds(all: &HashMap<u32, Interface>) -> HashMap<u32, Reach> {
    let mut kinds: HashMap<u32, Reach> =
        all.iter().map(|(index, one)| (*index, alone(one))).collect();
    // A bridge has the kind of its best port. The name of a container bridge takes precedence over
    // a veth port of any name, but not over a network card.
    for (port, one) in all {
        let Some((master, bridge)) = one.master.and_then(|at| Some((at, all.get(&at)?))) else {
            continue;
        };
        let is_bridge = bridge.kind.as_deref().is_some_and(|kind| VIRTUAL.contains(&kind));
        let of_port = kinds.get(port).copied().unwrap_or(Reach::Virtual);
        let is_better = match of_port {
            Reach::Network => true,
            Reach::Plain => !is_of_containers(&bridge.name),
            Reach::Tunnel | Reach::Virtual | Reach::Inner => false,
        };
        if is_bridge && is_better {
            kinds.entry(master).and_modify(|known| *known = (*known).min(of_port));
        }
    }
    kinds
}

/// The kind of an interface, ignoring its ports.
fn alone(one: &Interface) -> Reach {
    let is_of = |kinds: &[&str]| one.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
    if one.is_loopback || is_of(&INNER) {
        Reach::Inner
    } else if is_of(&VIRTUAL) || is_of_containers(&one.name) {
        Reach::Virtual
    } else if is_of(&TUNNELS) || begins(&one.name, &OF_TUNNELS) {
        Reach::Tunnel
    } else if is_of(&NETWORKS) {
        Reach::Network
    } else {
        match one.kind {
            // Drivers of network cards report no kind.
            None if !one.is_between_two => Reach::Network,
            None => Reach::Tunnel,
            Some(_) => Reach::Plain,
        }
    }
}

fn is_of_containers(name: &str) -> bool {
    // A Docker network: `br-` and the first twelve hexadecimal digits of its id.
    let is_of_docker = name
        .strip_prefix("br-")
        .is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_of_docker || begins(name, &OF_CONTAINERS)
}

fn begins(name: &str, all: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    all.iter().any(|begin| name.starts_with(begin))
}
