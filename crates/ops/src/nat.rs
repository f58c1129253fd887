//! The result of `tunnel nat`: what stands between a client and other clients. Field names are an
//! interface (`--json`): fields are added, and none is removed.

use serde::{Deserialize, Serialize};

use crate::SendFuture;

/// What stands between a client and other clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatReport {
    /// The name of the server.
    pub peer: String,
    /// Whether UDP passes.
    pub udp: Udp,
    /// The STUN servers that were asked.
    pub servers: Vec<StunServer>,
    /// The network of IPv4; absent when no server was asked over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Network>,
    /// The network of IPv6; absent when no server was asked over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Network>,
    /// Whether the router opens a port; absent where the configuration does not permit to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterPort>,
    /// The addresses of this machine at which peers are told to try it.
    pub candidates: Vec<String>,
    /// What is to be expected with each kind of peer.
    pub peers: Vec<Expected>,
}

impl NatReport {
    /// Whether a server has answered over this address family, `IPv4` or `IPv6`.
    pub fn answers_over(&self, family: &str) -> bool {
        let is_v6 = family == "IPv6";
        let of_family = |server: &&StunServer| server.address.starts_with('[') == is_v6;
        self.servers.iter().filter(of_family).any(|server| server.outer.is_some())
    }
}

/// A port that the router was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterPort {
    /// By which protocol the router opened it: `PCP`, `NAT-PMP`, `UPnP`; `null`: it did not.
    pub protocol: Option<String>,
    /// The outer address of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer: Option<String>,
    /// Why there is no port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether UDP passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Udp {
    /// A server has answered.
    Passes,
    /// No server answered.
    Blocked,
}

/// A STUN server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StunServer {
    /// Its address.
    pub address: String,
    /// The address of this machine that it sees; `null` without an answer.
    pub outer: Option<String>,
    /// Why there is no answer, where this machine knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What is known of the network over one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The addresses that the NAT gives.
    pub mapping: Mapping,
    /// The datagrams that arrive.
    pub filtering: Filtering,
}

/// Which address a NAT gives to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// Fewer than two answers.
    Unknown,
    /// No NAT.
    None,
    /// One address towards all destinations.
    Same,
    /// Another address or port per destination.
    PerDestination,
}

impl Mapping {
    /// The words for a person.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Unknown => "unknown: it takes the answers of two ports or servers",
            Self::None => "none: the server sees this machine's own address",
            Self::Same => "the same outer address towards all (plain NAT)",
            Self::PerDestination => "another outer address per destination (symmetric NAT)",
        }
    }
}

/// Whose datagrams a NAT or a firewall admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filtering {
    /// The server could not answer from its other port, or the answer could not arrive.
    Unknown,
    /// Those of ports that were not sent to, too.
    Open,
    /// Those of addresses and ports that were sent to.
    AddressAndPort,
}

impl Filtering {
    /// The words for a person.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Unknown => "unknown: no answer came from the other port of a server",
            Self::Open => "datagrams of other ports arrive (open)",
            Self::AddressAndPort => "only datagrams of ports that were sent to arrive",
        }
    }
}

/// What is to be expected with a kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The kind of peer.
    pub peer: Peer,
    /// The path.
    pub path: Path,
}

/// A kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// Without NAT and filter, or behind a NAT that admits everybody.
    Open,
    /// The same outer port towards all, and a filter.
    Plain,
    /// Another outer port per destination, and a filter.
    Symmetric,
    /// UDP does not pass.
    Blocked,
}

impl Peer {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Open, Self::Plain, Self::Symmetric, Self::Blocked];

    /// The words for a person.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Open => "open: no NAT, or a NAT that admits everybody",
            Self::Plain => "plain NAT, as of most homes",
            Self::Symmetric => "symmetric NAT",
            Self::Blocked => "UDP blocked",
        }
    }
}

/// The path between two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// From client to client.
    Direct,
    /// Through the server.
    Relayed,
    /// What is not known decides.
    Unclear,
}

impl Path {
    /// The word for a person.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relayed => "relayed by the server",
            Self::Unclear => "direct or relayed",
        }
    }
}

/// What a client can find out of its network.
pub trait NatProbe: Send + Sync {
    /// Asks the STUN servers and the router, for 3 s at most.
    ///
    /// # Errors
    /// There is no server to ask, or this machine has no socket for it; a line for a person.
    fn probe(&self) -> SendFuture<'_, anyhow::Result<NatReport>>;
}
