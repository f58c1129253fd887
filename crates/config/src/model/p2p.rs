//! How a client looks for direct paths to other clients.

use std::fmt;

use crate::Host;

/// `p2p` of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P2p {
    /// STUN servers beside the tunnel's server.
    pub stun: Vec<StunAddress>,
    /// The first and the last port of the sockets; `None`: any port.
    pub ports: Option<(u16, u16)>,
    /// Whether peers are told the addresses of this machine's interfaces, and private addresses of
    /// peers are tried.
    pub host: bool,
    /// Whether peers are told the addresses that STUN servers see.
    pub reflexive: bool,
}

impl Default for P2p {
    fn default() -> Self {
        Self { stun: Vec::new(), ports: None, host: true, reflexive: true }
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
