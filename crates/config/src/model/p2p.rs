//! How a client finds direct paths to other clients.

use std::fmt;

use crate::{Host, Span};

/// `p2p` of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P2p {
    /// STUN servers besides the tunnel's server.
    pub stun: Vec<StunAddress>,
    /// The first and the last local port of the sockets; `None`: any port.
    pub ports: Option<(u16, u16)>,
    /// Whether peers learn the addresses of this machine's interfaces, and private addresses of
    /// peers are tried.
    pub host: bool,
    /// Whether the client requests a port mapping from the router if no path is found without one.
    pub mapped: bool,
    /// Whether peers learn the addresses that STUN servers report.
    pub reflexive: bool,
    /// The limits of data channels.
    pub webrtc: P2pWebrtc,
}

/// `p2p.webrtc` of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P2pWebrtc {
    /// The largest number of peers at a time, connected or connecting.
    pub peers: u32,
    /// The idle timeout of a connection.
    pub idle: Span,
}

/// `p2p.webrtc` of a server: programs visit private services over WebRTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerWebrtc {
    /// The path of offers at the listeners of `wss://` and `ws://`.
    pub path: String,
}

impl Default for P2p {
    fn default() -> Self {
        let webrtc = P2pWebrtc::default();
        Self { stun: Vec::new(), ports: None, host: true, mapped: true, reflexive: true, webrtc }
    }
}

impl Default for P2pWebrtc {
    fn default() -> Self {
        Self { peers: 30, idle: Span::from_millis(300_000) }
    }
}

impl P2p {
    /// Whether no direct path is tried because peers learn no address.
    #[must_use]
    pub const fn is_relayed(&self) -> bool {
        !self.host && !self.mapped && !self.reflexive
    }
}

/// A STUN server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StunAddress {
    /// Name or address.
    pub host: Host,
    /// At least 1.
    pub port: u16,
}

impl fmt::Display for StunAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
