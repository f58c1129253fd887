//! The maximum packet payload to a peer, as far as this machine knows.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::IpMtu;

use super::dialling;
use crate::options::SocketOptions;

/// The header length of IPv4 without options (RFC 791), and of IPv6 without extensions (RFC 8200),
/// in bytes.
const IPV4: u16 = 20;
const IPV6: u16 = 40;

/// The length of the UDP header (RFC 768), in bytes.
const UDP: u16 = 8;

/// The unspecified address of the same family, with port 0.
#[must_use]
pub const fn unspecified(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// Creates a socket for a peer, with the options of a dial, bound and not connected.
///
/// # Errors
/// No descriptor or port is left, an option was refused, or the kernel has no IPv6
/// ([`io::ErrorKind::NetworkUnreachable`]).
pub fn dialled(peer: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
    let socket = dialling(peer)?;
    options.at_connect(&socket)?;
    options.bind(&socket, unspecified(peer))?;
    Ok(socket)
}

/// The largest UDP payload for one packet on the route to `peer`. It is limited by the MTU of the
/// interface, or by a smaller MTU that ICMP has reported (ip(7), `IP_MTU`). The MTU of the path may
/// be smaller. Nothing is sent.
///
/// # Errors
/// No route leads to `peer`, or no descriptor is left for a socket.
pub fn payload_of_route(peer: SocketAddr) -> io::Result<u16> {
    // The peer may be an IPv4 peer of a dual-stack socket.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let socket = connected(peer, &SocketOptions::DEFAULT)?;
    let mtu = u16::try_from(getsockopt(&socket, IpMtu)?).unwrap_or(u16::MAX);
    Ok(mtu.saturating_sub(UDP + if peer.is_ipv4() { IPV4 } else { IPV6 }))
}

/// The address of this machine from which a new socket with these options would send to `peer`.
/// Nothing is sent.
///
/// # Errors
/// No route leads to `peer`, an option was refused, or no descriptor is left for a socket.
pub fn local_address(peer: SocketAddr, options: &SocketOptions) -> io::Result<IpAddr> {
    Ok(connected(peer, options)?.local_addr()?.ip())
}

/// A socket that shows the route to `peer`, and sends nothing.
fn connected(peer: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
    let socket = dialled(peer, &SocketOptions { buffers: None, ..options.clone() })?;
    socket.connect(peer)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_takes_what_its_interface_takes() {
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let mtu = text.trim().parse::<u32>().unwrap().min(u32::from(u16::MAX));
        for (peer, heads) in [("127.0.0.1:9", 28), ("[::ffff:127.0.0.1]:9", 28), ("[::1]:9", 48)] {
            let payload = payload_of_route(peer.parse().unwrap());
            // A machine may lack IPv6.
            match payload {
                Err(error) if peer.starts_with("[::1]") => println!("{peer}: {error}"),
                payload => assert_eq!(u32::from(payload.unwrap()), mtu - heads, "{peer}"),
            }
        }
    }

    #[test]
    fn no_route_is_an_error() {
        // Scope 0 of a link-local address specifies no interface.
        assert!(payload_of_route("[fe80::1]:9".parse().unwrap()).is_err());
    }
}
