//! The addresses of this machine, ranked by how probably another machine can reach them.
//!
//! A machine may have more addresses than can be announced to a peer: ten Docker bridges, 200 veth
//! interfaces on a Kubernetes node, a VPN. The kernel lists them in the order of their creation,
//! which is no ranking. So the kernel is queried by rtnetlink(7) for the kind of each interface,
//! the flags of each address, and the routes with a gateway:
//!
//! ```text
//!   1. the address from which this machine sends to a server
//!   2. interfaces with a gateway to the internet; a VPN ranks below all networks
//!   3. network cards, radio, and interfaces on top of them: VLANs, bonds, bridges with such a port
//!   4. veth interfaces whose name is not one of a container
//!   5. tunnels and VPNs
//!   6. bridges and interfaces of containers and virtual machines
//!   7. addresses that reach only this machine: loopback, dummy
//! ```
//!
//! The third and later addresses of an interface are ranked after the first two of all others; the
//! addresses of an interface without a carrier and deprecated addresses are ranked last.
//!
//! `/sys` is not used: it shows the interfaces of the network namespace in which it was mounted. If
//! the kernel does not reply, the names of the interfaces decide (getifaddrs(3)).

mod kind;
mod message;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::options::SocketOptions;
use crate::udp::local_address;
use kind::{Reach, kinds};
use message::{Address, AnswerPart, Interface};

/// How long the interfaces are cached. Several links may search for a path at the same time.
const FRESH: Duration = Duration::from_secs(1);

/// The buffer size of one read: the kernel returns at most 32 KiB at once.
const READ: usize = 32 << 10;

/// The maximum number of reads per list: 5,000 interfaces without statistics take 120.
const READS: usize = 1_000;

/// The maximum number of returned addresses. Only a few are announced to a peer.
const MOST: usize = 512;

/// The maximum number of interfaces whose gateway is queried.
const ASKED: usize = 256;

/// Public addresses to determine which gateway leads to the internet: two DNS root servers. Nothing
/// is sent to them.
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
];

/// An address of this machine, with the network of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address.
    pub ip: IpAddr,
    /// An address of the network; on a point-to-point interface the address of the far end.
    pub network: IpAddr,
    /// The prefix length of the network, in bits.
    pub prefix: u8,
}

/// The cached interfaces, with the time of the read.
static KNOWN: Mutex<Option<(Instant, Arc<[OwnAddress]>)>> = Mutex::new(None);

/// The addresses of this machine, best first, at most one second old. The addresses from which this
/// machine sends to `servers` come first.
///
/// # Errors
/// The system does not report its interfaces.
pub fn by_worth(servers: &[SocketAddr]) -> io::Result<Vec<OwnAddress>> {
    let all = known()?;
    let mut sorted: Vec<OwnAddress> = Vec::with_capacity(all.len());
    let outside = OUTSIDE.map(|ip| SocketAddr::new(ip, 53));
    for server in servers.iter().chain(&outside) {
        let Ok(ip) = local_address(*server, &SocketOptions::DEFAULT) else { continue };
        let ip = ip.to_canonical();
        let is_new = |local: &&OwnAddress| local.ip == ip && !sorted.iter().any(|one| one.ip == ip);
        sorted.extend(all.iter().find(is_new).copied());
    }
    let routed = sorted.len();
    for local in all.iter() {
        if !sorted[..routed].iter().any(|one| one.ip == local.ip) {
            sorted.push(*local);
        }
    }
    Ok(sorted)
}

fn known() -> io::Result<Arc<[OwnAddress]>> {
    // The data is consistent at each point where a panic can happen.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if let Some((at, all)) = &*known
        && now.saturating_duration_since(*at) < FRESH
    {
        return Ok(Arc::clone(all));
    }
    let all: Arc<[OwnAddress]> = read()?.into();
    *known = Some((now, Arc::clone(&all)));
    Ok(all)
}

fn read() -> io::Result<Vec<OwnAddress>> {
    match Kernel::open().and_then(|mut kernel| kernel.read()) {
        Ok(found) if !found.addresses.is_empty() => Ok(sorted(&found)),
        answer => {
            if let Err(error) = answer {
                tracing::debug!(%error, "the kernel does not tell the kinds of interfaces");
            }
            named().map(|found| sorted(&found))
        }
    }
}

/// The interfaces, addresses and gateways of this machine.
#[derive(Debug, Default)]
struct LinkTable {
    interfaces: HashMap<u32, Interface>,
    addresses: Vec<Address>,
    /// The interfaces with a gateway to the internet, and whether it is for IPv4.
    gateways: Vec<(u32, bool)>,
}

/// Returns the addresses, best first.
fn sorted(found: &LinkTable) -> Vec<OwnAddress> {
    let kinds = kinds(&found.interfaces);
    let mut turns: HashMap<(u32, bool, bool), usize> = HashMap::new();
    let mut order: HashMap<IpAddr, (_, OwnAddress)> = HashMap::new();
    // Deprecated addresses do not count against the others.
    let (old, usable): (Vec<&Address>, Vec<_>) = found.addresses.iter().partition(|one| one.is_old);
    for (nth, address) in usable.into_iter().chain(old).enumerate() {
        let ip = address.ip.to_canonical();
        let kind = kinds.get(&address.interface).copied().unwrap_or(Reach::Plain);
        let is_live =
            found.interfaces.get(&address.interface).is_none_or(|interface| interface.is_live);
        let is_gateway = found.gateways.contains(&(address.interface, ip.is_ipv4()));
        let of_turn = (address.interface, ip.is_ipv4(), is_local(ip));
        let turn = turns.entry(of_turn).or_default();
        let worth = (!is_live || address.is_old, *turn / 2, rank(kind, is_gateway), *turn, nth);
        *turn += 1;
        let Address { network, prefix, .. } = *address;
        let local = OwnAddress { ip, network: network.to_canonical(), prefix };
        let known = order.entry(ip).or_insert((worth, local));
        if worth < known.0 {
            *known = (worth, local);
        }
    }
    let mut all: Vec<_> = order.into_values().collect();
    all.sort_unstable_by_key(|(worth, _)| *worth);
    all.truncate(MOST);
    all.into_iter().map(|(_, local)| local).collect()
}

/// The rank of an interface; lower is better.
const fn rank(kind: Reach, is_gateway: bool) -> u8 {
    match (kind, is_gateway) {
        (Reach::Network | Reach::Plain | Reach::Virtual, true) => 0,
        (Reach::Network, false) => 1,
        (Reach::Plain, false) => 2,
        (Reach::Tunnel, true) => 3,
        (Reach::Tunnel, false) => 4,
        (Reach::Virtual, false) => 5,
        (Reach::Inner, _) => 6,
    }
}

/// Whether an IPv6 address is local: unique local or link-local.
const fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// A netlink socket to the kernel.
struct Kernel {
    netlink: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Kernel {
    fn open() -> io::Result<Self> {
        let (raw, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        // The protocol 0 is NETLINK_ROUTE.
        let netlink = socket_with(AddressFamily::NETLINK, raw, flags, None)?;
        Ok(Self { netlink, sequence: 0, buffer: vec![0; READ] })
    }

    fn read(&mut self) -> io::Result<LinkTable> {
        let mut found = LinkTable::default();
        self.ask(&message::interfaces(), |part| {
            if let AnswerPart::Interface(index, interface) = part {
                found.interfaces.insert(index, interface);
            }
        })?;
        self.ask(&message::addresses(), |part| {
            if let AnswerPart::Address(address) = part {
                found.addresses.push(address);
            }
        })?;
        let mut asked: Vec<(u32, bool)> = Vec::new();
        for address in &found.addresses {
            let one = (address.interface, address.ip.is_ipv4());
            let is_one = !is_local(address.ip) && !address.ip.is_loopback();
            if is_one && asked.len() < ASKED && !asked.contains(&one) {
                asked.push(one);
            }
        }
        for (interface, is_v4) in asked {
            let [v4, v6] = OUTSIDE;
            let mut has_gateway = false;
            let to = if is_v4 { v4 } else { v6 };
            // A missing route is a valid reply.
            let asked = self.ask(&message::route(to, interface), |part| {
                has_gateway |= part == AnswerPart::Gateway(interface);
            });
            if asked.is_ok() && has_gateway {
                found.gateways.push((interface, is_v4));
            }
        }
        Ok(found)
    }

    /// Sends a request and passes the parts of its reply to `take`. The kernel replies within the
    /// send and receive calls, so the code does not block.
    fn ask(
        &mut self,
        request: &message::KernelRequest,
        mut take: impl FnMut(AnswerPart),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.netlink, &request.bytes(self.sequence), SendFlags::empty())?;
        for _ in 0..READS {
            let (bytes, _) = recv(&self.netlink, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
            for part in message::parts(&self.buffer[..bytes], self.sequence) {
                match part {
                    AnswerPart::End => return Ok(()),
                    AnswerPart::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    part @ (AnswerPart::Interface(..)
                    | AnswerPart::Address(_)
                    | AnswerPart::Gateway(_)
                    | AnswerPart::Other) => {
                        take(part);
                        if !request.is_list() {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Err(Errno::PROTO.into())
    }
}

/// The data of getifaddrs(3): names and flags. Deprecated addresses cannot be recognized.
fn named() -> io::Result<LinkTable> {
    let mut found = LinkTable::default();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    for one in getifaddrs()? {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let interface = *numbers.entry(one.interface_name.clone()).or_insert(next);
        let has = |flag| one.flags.contains(flag);
        found.interfaces.entry(interface).or_insert_with(|| Interface {
            name: one.interface_name.clone(),
            kind: None,
            master: None,
            is_live: has(InterfaceFlags::IFF_UP) && has(InterfaceFlags::IFF_RUNNING),
            is_loopback: has(InterfaceFlags::IFF_LOOPBACK),
            is_between_two: has(InterfaceFlags::IFF_POINTOPOINT),
        });
        let ip_of = |address: &nix::sys::socket::SockaddrStorage| {
            let v4 = address.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))
        };
        let Some(ip) = one.address.as_ref().and_then(ip_of) else { continue };
        let prefix = match one.netmask.as_ref().and_then(ip_of) {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
            None => u32::from(u8::MAX),
        };
        let prefix = u8::try_from(prefix).unwrap_or(u8::MAX);
        found.addresses.push(Address { ip, network: ip, prefix, interface, is_old: false });
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
