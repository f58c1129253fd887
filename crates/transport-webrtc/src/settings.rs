//! Settings of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punch::Pace;

use crate::candidate::Admission;

/// The receive window of SCTP on a path with delay, bytes: 100 Mbit/s at 300 ms.
const WINDOW: u32 = 4 << 20;

/// The window on the machine itself. A larger one overflows the socket, whose losses cost more than
/// a window ever gains without delay.
const LOOPBACK_WINDOW: u32 = 1 << 20;

/// Settings of the connections of one process.
#[derive(Clone, Debug)]
pub struct WebrtcSettings {
    /// Addresses to receive at. An unspecified address stands for all interfaces of its family but
    /// the loopback interface.
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
