//! The addresses of all network interfaces of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// How long the lists are cached. Addresses rarely change, and reading the lists takes at
/// least 20 µs.
const FRESH: Duration = Duration::from_secs(1);

/// What the system has reported of its interfaces.
#[derive(Clone)]
struct Interfaces {
    read: Instant,
    addresses: Arc<[IpAddr]>,
    broadcasts: Arc<[Ipv4Addr]>,
}

static KNOWN: Mutex<Option<Interfaces>> = Mutex::new(None);

/// Whether an address belongs to an interface of this machine. True if the system does not report
/// its addresses, because callers must not reach such an address.
#[must_use]
pub fn is_own(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    addresses().map_or(true, |all| all.contains(&ip))
}

/// Whether packets of this machine may have this source address now: the kernel lets a socket have
/// the address. True if the kernel does not say.
#[must_use]
pub fn is_usable(local: SocketAddr) -> bool {
    let mut any_port = local;
    any_port.set_port(0);
    let bound = UdpSocket::bind(any_port);
    !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The addresses of all interfaces, at most one second old.
///
/// # Errors
/// The system does not report its interfaces.
pub fn addresses() -> io::Result<Arc<[IpAddr]>> {
    Ok(interfaces()?.addresses)
}

/// Whether an address is the broadcast address of one of the networks of this machine, as known for
/// at most one second.
#[must_use]
pub fn is_broadcast(ip: IpAddr) -> bool {
    let IpAddr::V4(ip) = ip.to_canonical() else { return false };
    interfaces().is_ok_and(|all| all.broadcasts.contains(&ip))
}

fn interfaces() -> io::Result<Interfaces> {
    // The data is consistent at each point where a panic can happen.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if let Some(all) = &*known
        && now.saturating_duration_since(all.read) < FRESH
    {
        return Ok(all.clone());
    }
    let all = read(now)?;
    *known = Some(all.clone());
    Ok(all)
}

fn read(now: Instant) -> io::Result<Interfaces> {
    let v4 = |address: Option<SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip());
    let (mut addresses, mut broadcasts) = (Vec::new(), Vec::new());
    for interface in getifaddrs()? {
        let own = v4(interface.address);
        let v6 = interface.address.as_ref().and_then(SockaddrStorage::as_sockaddr_in6);
        let ip = own.map(IpAddr::V4).or_else(|| v6.map(|at| IpAddr::V6(at.ip())));
        addresses.extend(ip.map(|ip| ip.to_canonical()));
        // Some programs set the broadcast address of an interface to its own address, or to none.
        let broadcast = v4(interface.broadcast);
        broadcasts.extend(broadcast.filter(|ip| Some(*ip) != own && !ip.is_unspecified()));
    }
    Ok(Interfaces { read: now, addresses: addresses.into(), broadcasts: broadcasts.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_interfaces_are_own_and_no_others() {
        let own = |text: &str| is_own(text.parse().unwrap());
        assert!(own("127.0.0.1") && own("::ffff:127.0.0.1"));
        assert!(!own("192.0.2.1") && !own("2001:db8::1"));
        for ip in &*addresses().unwrap() {
            assert!(is_own(*ip), "{ip}");
        }
    }

    #[test]
    fn an_address_that_no_interface_has_is_not_usable() {
        for (local, is_there) in [
            ("127.0.0.1:443", true),
            // The whole network is of the loopback interface.
            ("127.8.9.10:443", true),
            ("192.0.2.1:443", false),
            ("[2001:db8::1]:443", false),
        ] {
            let local: SocketAddr = local.parse().unwrap();
            // A machine without IPv6 does not say.
            if local.is_ipv4() || UdpSocket::bind("[::1]:0").is_ok() {
                assert_eq!(is_usable(local), is_there, "{local}");
            }
        }
    }
}
