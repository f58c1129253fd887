//! The default route of this machine: its interface, the address of its gateway, and the hardware
//! address of the gateway. A network is recognised by them when a machine comes back to it. The
//! name of a Wi-Fi network is not read: it is not needed, and it tells where a person was.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The flags of a route: it is up (`RTF_UP`), it has a gateway (`RTF_GATEWAY`), it refuses packets
/// (`RTF_REJECT`).
const UP: u32 = 0x1;
const VIA_GATEWAY: u32 = 0x2;
const REJECTS: u32 = 0x200;

/// The largest part of a table of the kernel that is read. A default route is near the top.
const TABLE: u64 = 1 << 20;

/// The buffer of one read of neighbours, and the largest number of reads.
const READ: usize = 32 << 10;
const READS: usize = 64;

/// The default route of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gateway {
    /// The name of the interface.
    pub interface: String,
    /// The gateway and its hardware address; `None`: the interface leads to one peer, as that of a
    /// VPN or of a modem does.
    pub router: Option<Router>,
}

/// The next hop of a default route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Router {
    /// The IP address.
    pub address: IpAddr,
    /// The hardware address as text: `02:fc:00:00:00:05`.
    pub hardware: String,
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        match &self.router {
            Some(Router { address, hardware }) => write!(f, ", gateway {address} ({hardware})"),
            None => f.write_str(", no gateway"),
        }
    }
}

/// The default route: that of IPv4, else that of IPv6. `None`: there is none, or the hardware
/// address of its gateway is not known yet, because nothing was sent to the gateway.
#[must_use]
pub fn gateway() -> Option<Gateway> {
    let routes = read("/proc/self/net/route");
    if let Some(route) = default_v4(&routes) {
        let neighbours = read("/proc/self/net/arp");
        return route.known(|address| hardware_v4(&neighbours, address, &route.interface));
    }
    let route = default_v6(&read("/proc/self/net/ipv6_route"))?;
    let neighbours = neighbours_v6().unwrap_or_default();
    route.known(|address| {
        let found = neighbours.iter().find(|(known, _)| *known == address);
        found.map(|(_, hardware)| hardware.clone())
    })
}

/// The text of a table of the kernel; empty if it cannot be read.
fn read(path: &str) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(TABLE).read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

/// A default route whose gateway has no hardware address yet.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    interface: String,
    via: Option<IpAddr>,
}

impl Route {
    fn known(&self, hardware: impl Fn(IpAddr) -> Option<String>) -> Option<Gateway> {
        let router = match self.via {
            Some(address) => Some(Router { address, hardware: hardware(address)? }),
            None => None,
        };
        Some(Gateway { interface: self.interface.clone(), router })
    }
}

/// The default route with the least metric in `/proc/net/route`.
fn default_v4(table: &str) -> Option<Route> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [interface, destination, gateway, flags, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let flags = hex(flags)?;
        if hex(destination)? != 0 || hex(mask)? != 0 || flags & UP == 0 || flags & REJECTS != 0 {
            return None;
        }
        // The kernel prints the bytes of the address as one number of this machine.
        let address = Ipv4Addr::from(hex(gateway)?.to_ne_bytes());
        let via = (flags & VIA_GATEWAY != 0).then_some(IpAddr::V4(address));
        Some((metric.parse::<u32>().ok()?, Route { interface: interface.to_owned(), via }))
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, route)| route)
}

/// The default route with the least metric in `/proc/net/ipv6_route`.
fn default_v6(table: &str) -> Option<Route> {
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [destination, length, _, _, gateway, metric, _, _, flags, interface] = fields[..]
        else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_default = u128::from_str_radix(destination, 16).ok()? == 0 && length == "00";
        if !is_default || flags & UP == 0 || flags & REJECTS != 0 || interface == "lo" {
            return None;
        }
        let address = Ipv6Addr::from(u128::from_str_radix(gateway, 16).ok()?);
        let via = (flags & VIA_GATEWAY != 0).then_some(IpAddr::V6(address));
        let metric = u32::from_str_radix(metric, 16).ok()?;
        Some((metric, Route { interface: interface.to_owned(), via }))
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, route)| route)
}

/// The hardware address of a neighbour in `/proc/net/arp`.
fn hardware_v4(table: &str, address: IpAddr, interface: &str) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [ip, _, _, hardware, _, device] = fields[..] else { return None };
        let is_it = ip.parse() == Ok(address) && device == interface;
        (is_it && is_set(hardware)).then(|| hardware.to_owned())
    })
}

/// Whether a hardware address is known: an unanswered question has zeros.
fn is_set(hardware: &str) -> bool {
    hardware.bytes().any(|byte| byte != b'0' && byte != b':')
}

/// The IPv6 neighbours that the kernel knows (rtnetlink(7), `RTM_GETNEIGH`).
fn neighbours_v6() -> io::Result<Vec<(IpAddr, String)>> {
    // Protocol 0 is `NETLINK_ROUTE`.
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&netlink, &neigh::question(), SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; READ]);
    for _ in 0..READS {
        // The kernel answers within the call, so nothing waits.
        let (bytes, _) = recv(&netlink, &mut buffer[..], RecvFlags::DONTWAIT)?;
        let answer = buffer.get(..bytes).unwrap_or_default();
        if neigh::answer(answer, &mut found).is_break() {
            break;
        }
    }
    Ok(found)
}

/// The messages about neighbours: `struct ndmsg` of `linux/neighbour.h` after a netlink header.
mod neigh {
    use std::net::{IpAddr, Ipv6Addr};
    use std::ops::ControlFlow;

    /// The lengths of a netlink header and of `struct ndmsg`.
    const HEAD: usize = 16;
    const NEIGHBOUR: usize = 12;
    /// `RTM_NEWNEIGH`, `RTM_GETNEIGH`.
    const NEW: u16 = 28;
    const GET: u16 = 30;
    /// `NLM_F_REQUEST | NLM_F_DUMP`.
    const REQUEST: u16 = 0x1 | 0x300;
    const AF_INET6: u8 = 10;
    /// The attributes with the IP address and the hardware address.
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;

    /// The request for all IPv6 neighbours.
    pub(super) fn question() -> [u8; HEAD + NEIGHBOUR] {
        let mut bytes = [0; HEAD + NEIGHBOUR];
        let length = u32::try_from(HEAD + NEIGHBOUR).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&GET.to_ne_bytes());
        bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
        bytes[HEAD] = AF_INET6;
        bytes
    }

    /// Adds the neighbours of a read. Breaks at the end of the list.
    pub(super) fn answer(mut bytes: &[u8], to: &mut Vec<(IpAddr, String)>) -> ControlFlow<()> {
        while let Some(length) = number(bytes, 0) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let Some(message) = bytes.get(..length).filter(|message| message.len() >= HEAD) else {
                return ControlFlow::Break(());
            };
            // Any other type is the end of the list, or an error.
            if message.get(4..6) != Some(&NEW.to_ne_bytes()) {
                return ControlFlow::Break(());
            }
            to.extend(neighbour(message.get(HEAD + NEIGHBOUR..).unwrap_or_default()));
            bytes = bytes.get(aligned(length)..).unwrap_or_default();
        }
        ControlFlow::Continue(())
    }

    fn neighbour(mut attributes: &[u8]) -> Option<(IpAddr, String)> {
        let (mut address, mut hardware) = (None, None);
        while let Some(head) = attributes.first_chunk::<4>() {
            let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let value = attributes.get(4..length)?;
            match u16::from_ne_bytes([head[2], head[3]]) {
                NDA_DST => address = <[u8; 16]>::try_from(value).ok(),
                NDA_LLADDR => hardware = Some(value),
                _ => {}
            }
            attributes = attributes.get(aligned(length)..).unwrap_or_default();
        }
        let hardware = hardware.filter(|bytes| bytes.iter().any(|byte| *byte != 0))?;
        let text = hardware.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
        Some((IpAddr::V6(Ipv6Addr::from(address?)), text))
    }

    fn number(bytes: &[u8], at: usize) -> Option<u32> {
        bytes.get(at..at + 4)?.first_chunk::<4>().map(|four| u32::from_ne_bytes(*four))
    }

    /// Messages and attributes begin at multiples of four bytes.
    const fn aligned(length: usize) -> usize {
        length.saturating_add(3) & !3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t010200C1\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const ARP: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
192.0.2.1        0x1         0x2         02:fc:00:00:00:05     *        wlan0
193.0.2.1        0x1         0x0         00:00:00:00:00:00     *        eth0
";

    fn found(route: &Route, arp: &str) -> Option<Gateway> {
        route.known(|address| hardware_v4(arp, address, &route.interface))
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_default_route_with_the_least_metric_is_the_network() {
        let route = default_v4(ROUTES).unwrap();
        assert_eq!(route, Route { interface: "eth0".into(), via: "193.0.2.1".parse().ok() });
        assert_eq!(found(&route, ARP), None, "the gateway has not answered yet");
        let wireless = ROUTES.replace("\t600\t", "\t50\t");
        let network = found(&default_v4(&wireless).unwrap(), ARP).unwrap();
        assert_eq!(network.to_string(), "wlan0, gateway 192.0.2.1 (02:fc:00:00:00:05)");
        let other = found(&default_v4(&wireless).unwrap(), &ARP.replace(":05", ":06")).unwrap();
        assert_ne!(network, other, "another router with the same address");
        assert_eq!(default_v4("Iface\n"), None);
        let refused = ROUTES.replace("0003", "0203");
        assert_eq!(default_v4(&refused), None);
    }

    #[test]
    fn a_route_without_a_gateway_is_recognised_by_its_interface() {
        let table = "Iface\nppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n";
        let network = found(&default_v4(table).unwrap(), "").unwrap();
        assert_eq!(network, Gateway { interface: "ppp0".into(), router: None });
        assert_eq!(network.to_string(), "ppp0, no gateway");
    }

    #[test]
    fn the_default_route_of_ipv6_is_read() {
        let none = "0".repeat(32);
        let table = format!(
            "fd000000000000000000000000000000 40 {none} 00 {none} 00000100 00000001 00000000 \
             00000001     eth0\n{none} 00 {none} 00 fd000000000000000000000000000001 00000400 \
             00000003 00000000 00000003     eth0\n{none} 00 {none} 00 {none} ffffffff 00000001 \
             00000000 00200200       lo\n"
        );
        let route = default_v6(&table).unwrap();
        assert_eq!(route, Route { interface: "eth0".into(), via: "fd00::1".parse().ok() });
    }

    #[test]
    fn neighbours_are_read_from_the_answer_of_the_kernel() {
        let mut message = Vec::new();
        let mut put = |part: &[u8]| message.extend_from_slice(part);
        put(&(16u32 + 12 + 20 + 12).to_ne_bytes());
        put(&28u16.to_ne_bytes());
        put(&[0; 10 + 12]);
        put(&20u16.to_ne_bytes());
        put(&1u16.to_ne_bytes());
        put(&"fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        put(&10u16.to_ne_bytes());
        put(&2u16.to_ne_bytes());
        put(&[2, 0xfc, 0, 0, 0, 5, 0, 0]);
        let mut found = Vec::new();
        assert!(neigh::answer(&message, &mut found).is_continue());
        assert_eq!(found, [("fd00::1".parse().unwrap(), "02:fc:00:00:00:05".to_owned())]);
        // A message that is cut ends the list.
        for length in 0..message.len() {
            let _ = neigh::answer(&message[..length], &mut found);
        }
        assert_eq!(found.len(), 1);
        let _ = neighbours_v6();
        let _ = gateway();
    }
}
