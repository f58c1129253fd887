//! The socket of a trial, and the addresses at which it can be reached from inner networks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

use net::interfaces;
use punch::OwnAddress;

use super::PunchSettings;

/// The number of ports of a range that are tried. A range in which that many ports are taken counts
/// as exhausted.
const TRIES: u16 = 64;

/// Binds the socket of a trial, to both address families if the kernel supports both.
pub(super) fn bind(settings: &PunchSettings) -> io::Result<UdpSocket> {
    let any = if settings.loopback { Ipv4Addr::LOCALHOST.into() } else { every_address() };
    let Some(ports) = settings.ports.clone() else {
        return UdpSocket::bind(SocketAddr::new(any, 0));
    };
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in tried(&ports)? {
        match UdpSocket::bind(SocketAddr::new(any, port)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    let (first, end) = (ports.start(), ports.end());
    let text = format!("no port of `p2p.ports` {first}-{end} is free: {last}");
    Err(io::Error::new(last.kind(), text))
}

/// `[::]`, which covers IPv4 as well, or `0.0.0.0` on a machine without IPv6.
fn every_address() -> IpAddr {
    let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    net::bindable(both).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

/// Ports of a range, starting at a random one.
fn tried(ports: &RangeInclusive<u16>) -> io::Result<impl Iterator<Item = u16>> {
    let (first, end) = (u32::from(*ports.start()), u32::from(*ports.end()));
    let count = (end + 1).saturating_sub(first).max(1);
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let begin = u32::from_be_bytes(random) % count;
    let tries = count.min(TRIES.into());
    Ok((0..tries).filter_map(move |n| u16::try_from(first + (begin + n) % count).ok()))
}

/// The addresses at which a socket with this port can be reached, best first: those from which this
/// machine sends to `servers`, then the others by their usefulness for a peer.
pub(super) fn hosts(
    socket: &UdpSocket,
    settings: &PunchSettings,
    servers: &[SocketAddr],
) -> io::Result<Vec<OwnAddress>> {
    let bound = socket.local_addr()?;
    if settings.loopback {
        return Ok(vec![bound.into()]);
    }
    let fits = |ip: IpAddr| bound.is_ipv6() || ip.is_ipv4();
    let all = interfaces::by_worth(servers)?.into_iter().filter(|local| fits(local.ip));
    let all = all.map(|interfaces::OwnAddress { ip, network, prefix }| OwnAddress {
        address: SocketAddr::new(ip, bound.port()),
        network,
        prefix,
    });
    // Addresses that a peer must not name are not revealed to a peer either.
    Ok(all.filter(|host| punch::refusal(host.address).is_none()).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_are_of_the_range_and_each_is_tried_once() {
        let tried: Vec<_> = tried(&(65_500..=65_535)).unwrap().collect();
        assert_eq!(tried.len(), 36);
        assert_eq!(BTreeSet::from_iter(tried), BTreeSet::from_iter(65_500..=65_535));
        let many: Vec<_> = super::tried(&(1_024..=65_535)).unwrap().collect();
        assert_eq!(many.len(), usize::from(TRIES));
    }

    #[test]
    fn an_exhausted_range_names_the_setting() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let settings = PunchSettings {
            quic: crate::QuicSettings::default(),
            buffers: net::udp::WANTED,
            kinds: punch::Kinds::default(),
            ports: Some(port..=port),
            loopback: true,
        };
        let error = bind(&settings).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("`p2p.ports`"), "{error}");
    }
}
