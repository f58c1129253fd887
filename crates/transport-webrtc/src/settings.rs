//! Settings of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::interfaces;
use punch::{HOSTS, Pace, refusal};

use crate::candidate::Admission;

/// The SCTP receive window on a path with delay, in bytes: 100 Mbit/s at 300 ms.
const WINDOW: u32 = 4 << 20;

/// The window over loopback. A larger window overflows the socket, and the losses cost more than a
/// window gains without delay.
const LOOPBACK_WINDOW: u32 = 1 << 20;

/// Settings of the connections of one process.
#[derive(Clone, Debug)]
pub struct WebrtcSettings {
    /// The local addresses. An unspecified address stands for the addresses of its family that
    /// another machine most probably reaches, at most nine of both families: the library has a
    /// socket for each of them.
    pub bind: Vec<IpAddr>,
    /// The first and the last port of the sockets; `None`: any port.
    pub ports: Option<(u16, u16)>,
    /// The STUN servers.
    pub stun: Vec<SocketAddr>,
    /// The addresses of a peer to which this end may send.
    pub admission: Admission,
    /// The maximum number of peers that are connected or about to connect.
    pub peers: usize,
    /// The maximum number of channels of a connection.
    pub channels: usize,
    /// A connection is closed after this time without a byte.
    pub idle: Duration,
    /// The timeout from an offer to an open channel.
    pub half_open: Duration,
    /// The pace of the checks to addresses that have not answered. All connections with one peer
    /// share it.
    pub pace: Arc<Mutex<Pace>>,
}

impl Default for WebrtcSettings {
    fn default() -> Self {
        Self {
            bind: vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            ports: None,
            stun: Vec::new(),
            admission: Admission::default(),
            peers: 30,
            channels: 256,
            idle: Duration::from_secs(300),
            half_open: Duration::from_secs(30),
            pace: Arc::default(),
        }
    }
}

impl WebrtcSettings {
    /// The addresses of the sockets. If the system does not report the addresses of its interfaces,
    /// the library searches for them.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        if !self.bind.iter().any(IpAddr::is_unspecified) {
            return self.bind.clone();
        }
        let takes = |ip: IpAddr| {
            let of_family = |any: &&IpAddr| any.is_unspecified() && any.is_ipv4() == ip.is_ipv4();
            self.bind.iter().any(|any| of_family(&any)) && refusal(SocketAddr::new(ip, 9)).is_none()
        };
        let all = interfaces::by_worth(&self.stun).unwrap_or_default().into_iter();
        // A socket cannot be bound to an address that is not verified yet.
        let is_usable = |ip: &IpAddr| UdpSocket::bind((*ip, 0)).is_ok();
        let all = all.map(|local| local.ip).filter(|ip| takes(*ip)).filter(is_usable);
        let mut found: Vec<_> = all.take(HOSTS).collect();
        found.extend(self.bind.iter().filter(|ip| !ip.is_unspecified()));
        if found.is_empty() { self.bind.clone() } else { found }
    }

    /// The receive window, which depends on the local addresses.
    pub(crate) fn window(&self) -> u32 {
        if self.bind.iter().all(IpAddr::is_loopback) { LOOPBACK_WINDOW } else { WINDOW }
    }

    /// The maximum number of unacknowledged bytes of a channel that the library holds: the window
    /// of a peer.
    pub(crate) fn outstanding(&self) -> usize {
        usize::try_from(self.window()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_stands_for_few_addresses_of_interfaces() {
        let all = WebrtcSettings::default().addresses();
        assert!(!all.is_empty() && all.len() <= HOSTS.max(2), "{all:?}");
        // A machine without any has the unspecified ones.
        let is_of_interface = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback();
        assert!(all.iter().all(is_of_interface) || all.iter().all(IpAddr::is_unspecified));
        let v4 = WebrtcSettings { bind: vec![Ipv4Addr::UNSPECIFIED.into()], ..Default::default() };
        assert!(v4.addresses().iter().all(IpAddr::is_ipv4));
        let named = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        let named = WebrtcSettings { bind: named, ..WebrtcSettings::default() };
        assert_eq!(named.addresses(), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    }
}
