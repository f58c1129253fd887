//! The addresses of all network interfaces of this machine.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;

/// How long the list of addresses is cached. Addresses rarely change, and reading the list takes at
/// least 20 µs.
const FRESH: Duration = Duration::from_secs(1);

/// The cached addresses, with the time of the read.
static KNOWN: Mutex<Option<(Instant, Arc<[IpAddr]>)>> = Mutex::new(None);

/// Whether an address belongs to an interface of this machine. True if the system does not report
/// its addresses, because callers must not reach such an address.
#[must_use]
pub fn is_own(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    addresses().map_or(true, |all| all.contains(&ip))
}

/// The addresses of all interfaces, at most one second old.
///
/// # Errors
/// The system does not report its interfaces.
pub fn addresses() -> io::Result<Arc<[IpAddr]>> {
    // The data is consistent at each point where a panic can happen.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if let Some((at, all)) = &*known
        && now.saturating_duration_since(*at) < FRESH
    {
        return Ok(Arc::clone(all));
    }
    let all: Arc<[IpAddr]> = read()?.into();
    *known = Some((now, Arc::clone(&all)));
    Ok(all)
}

/// Whether an address is the broadcast address of one of the networks of this machine.
#[must_use]
pub fn is_broadcast(ip: IpAddr) -> bool {
    let IpAddr::V4(ip) = ip.to_canonical() else { return false };
    let Ok(all) = getifaddrs() else { return false };
    let v4 = |address: Option<nix::sys::socket::SockaddrStorage>| {
        address.and_then(|at| at.as_sockaddr_in().map(|at| at.ip()))
    };
    // Some programs set the broadcast address of an interface to its own address, or to none.
    all.filter(|one| v4(one.address) != Some(ip) && !ip.is_unspecified())
        .any(|one| v4(one.broadcast) == Some(ip))
}

fn read() -> io::Result<Vec<IpAddr>> {
    let of_interface = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))
    };
    Ok(getifaddrs()?.filter_map(of_interface).map(|ip| ip.to_canonical()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_interfaces_are_own_and_no_others() {
        let own = |text: &str| is_own(text.parse().unwrap());
        assert!(own("127.0.0.1") && own("::ffff:127.0.0.1"));
        assert!(!own("192.0.2.1") && !own("2001:db8::1"));
        for ip in read().unwrap() {
            assert!(is_own(ip), "{ip}");
        }
    }
}
