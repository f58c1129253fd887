//! Settings of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::interfaces;
use punch::{HOSTS, Pace, refusal};

use crate::candidate::Admission;

/// The receive window of SCTP on a path with delay, bytes: 100 Mbit/s at 300 ms.
const WINDOW: u32 = 4 << 20;

/// The window on the machine itself. A larger one overflows the socket, whose losses cost more than
/// a window ever gains without delay.
const LOOPBACK_WINDOW: u32 = 1 << 20;

/// Settings of the connections of one process.
#[derive(Clone, Debug)]
pub struct WebrtcSettings {
    /// Addresses to receive at. An unspecified address stands for those addresses of its family
    /// that another machine most probably reaches, nine of both families at most: the library has a
    /// socket for each of them.
    pub bind: Vec<IpAddr>,
    /// The first and the last port of the sockets; `None`: any port.
    pub ports: Option<(u16, u16)>,
    /// Servers that tell this end its address (STUN).
    pub stun: Vec<SocketAddr>,
    /// Which addresses of a peer are sent to.
    pub admission: Admission,
    /// The most peers at a time, connected or about to connect.
    pub peers: usize,
    /// The most channels of a connection.
    pub channels: usize,
    /// A connection is closed after this time without a byte.
    pub idle: Duration,
    /// The time from an offer to an open channel.
    pub half_open: Duration,
    /// The pace of the checks at addresses that have not answered. All connections with one peer
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
    /// The addresses of the sockets. Where the system does not tell those of its interfaces, the
    /// library looks for them.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        if !self.bind.iter().any(IpAddr::is_unspecified) {
            return self.bind.clone();
        }
        let takes = |ip: IpAddr| {
            let of_family = |any: &&IpAddr| any.is_unspecified() && any.is_ipv4() == ip.is_ipv4();
            self.bind.iter().any(|any| of_family(&any)) && refusal(SocketAddr::new(ip, 9)).is_none()
        };
        let all = interfaces::by_worth(&self.stun).unwrap_or_default().into_iter();
        // An address that is not verified yet takes no socket.
        let is_usable = |ip: &IpAddr| UdpSocket::bind((*ip, 0)).is_ok();
        let all = all.map(|local| local.ip).filter(|ip| takes(*ip)).filter(is_usable);
        let mut found: Vec<_> = all.take(HOSTS).collect();
        found.extend(self.bind.iter().filter(|ip| !ip.is_unspecified()));
        if found.is_empty() { self.bind.clone() } else { found }
    }

    /// The receive window: by the addresses that this end receives at.
    pub(crate) fn window(&self) -> u32 {
        if self.bind.iter().all(IpAddr::is_loopback) { LOOPBACK_WINDOW } else { WINDOW }
    }

    /// Bytes that the library holds of a channel until the peer has acknowledged them: as many as
    /// the window of a peer has.
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
