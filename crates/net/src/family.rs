//! Machines without IPv6. The rule for every socket of this program: `[::]` means every address of
//! the machine, so it becomes `0.0.0.0` if the kernel has no IPv6 (`ipv6.disable=1`, or a unit with
//! `RestrictAddressFamilies=AF_INET`). A specific IPv6 address is an error there, and an IPv6
//! address of a target is unreachable.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

/// The error text for a specific IPv6 address.
const NONE: &str = "the kernel of this machine has no IPv6";

/// The address that a listener at `address` binds.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`]: the address is a specific IPv6 address, and the kernel has no
/// IPv6.
pub fn bindable(address: SocketAddr) -> io::Result<SocketAddr> {
    bindable_if(address, has_ipv6)
}

fn bindable_if(address: SocketAddr, has_ipv6: impl FnOnce() -> bool) -> io::Result<SocketAddr> {
    match address {
        SocketAddr::V6(v6) if !has_ipv6() => {
            if v6.ip().is_unspecified() {
                return Ok((Ipv4Addr::UNSPECIFIED, v6.port()).into());
            }
            Err(io::Error::new(io::ErrorKind::Unsupported, NONE))
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => Ok(address),
    }
}

/// Whether the kernel supports IPv6 sockets. A lack of descriptors does not count as a lack of
/// IPv6.
fn has_ipv6() -> bool {
    let probe = Socket::new(Domain::IPV6, Type::DGRAM, None);
    !probe.is_err_and(|error| is_no_family(&error))
}

/// The error of a socket for a peer's address, with a text if the kernel lacks the family.
pub(crate) fn unreachable(error: io::Error) -> io::Error {
    if is_no_family(&error) {
        return io::Error::new(io::ErrorKind::NetworkUnreachable, NONE);
    }
    error
}

fn is_no_family(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn every_address_is_that_of_ipv4_where_there_is_no_ipv6() {
        let without = |text| bindable_if(at(text), || false);
        assert_eq!(without("[::]:7000").unwrap(), at("0.0.0.0:7000"));
        assert_eq!(without("127.0.0.1:7000").unwrap(), at("127.0.0.1:7000"));
        for named in ["[::1]:7000", "[2001:db8::1]:0"] {
            let error = without(named).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("no IPv6"), "{error}");
        }
        for any in ["[::]:7000", "[::1]:7000", "0.0.0.0:7000"] {
            assert_eq!(bindable_if(at(any), || true).unwrap(), at(any));
        }
    }

    #[test]
    fn a_peer_of_a_family_that_the_kernel_lacks_is_unreachable() {
        let error = unreachable(Errno::AFNOSUPPORT.into());
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
        assert!(error.to_string().contains("no IPv6"), "{error}");
        let other = unreachable(Errno::MFILE.into());
        assert_eq!(Errno::from_io_error(&other), Some(Errno::MFILE));
    }
}
