//! The interfaces of link-local addresses (RFC 4007). A zone is a name or an index in the
//! configuration and is looked up for each dial and each bind: an interface that was removed and
//! re-created has the same name and another index.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::net::if_::{if_nameindex, if_nametoindex};

/// The socket address of a link-local address on an interface of this machine.
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`]: this machine currently has no such interface.
pub fn socket_addr(ip: Ipv6Addr, zone: &str, port: u16) -> io::Result<SocketAddr> {
    Ok(SocketAddrV6::new(ip, port, 0, index(zone)?).into())
}

/// The index of an interface. An interface whose name is a number takes precedence over the index.
fn index(zone: &str) -> io::Result<u32> {
    if let Ok(index) = if_nametoindex(zone) {
        return Ok(index);
    }
    let number = zone.parse().ok().filter(|number| is_there(*number));
    number.ok_or_else(|| {
        let text = format!("this machine has no interface {zone}");
        io::Error::new(io::ErrorKind::AddrNotAvailable, text)
    })
}

fn is_there(number: u32) -> bool {
    if_nameindex().is_ok_and(|all| all.iter().any(|one| one.index() == number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_name_and_by_its_number_and_no_other_is() {
        let ip: Ipv6Addr = "fe80::1".parse().unwrap();
        let found = |zone: &str| socket_addr(ip, zone, 7).map_err(|error| error.kind());
        let number = if_nametoindex("lo").unwrap();
        let wanted = SocketAddr::from(SocketAddrV6::new(ip, 7, 0, number));
        assert_eq!(found("lo"), Ok(wanted));
        assert_eq!(found(&number.to_string()), Ok(wanted));
        for absent in ["absent0", "0", "4000000000", "-1"] {
            assert_eq!(found(absent), Err(io::ErrorKind::AddrNotAvailable), "{absent}");
        }
    }
}
