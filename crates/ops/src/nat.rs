//! The result of `tunnel nat`: the NATs and firewalls between a client and other clients. Field
//! names are an interface (`--json`): fields are added, and none is removed.

use serde::{Deserialize, Serialize};

use crate::SendFuture;

/// The NATs and firewalls between a client and other clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatReport {
    /// The name of the server.
    pub peer: String,
    /// Whether UDP passes.
    pub udp: Udp,
    /// The STUN servers that were queried.
    pub servers: Vec<StunServer>,
    /// The IPv4 network; absent when no server was queried over IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Network>,
    /// The IPv6 network; absent when no server was queried over IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Network>,
    /// Whether the router maps a port; absent where the configuration forbids the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterPort>,
    /// The addresses of this machine that peers are told to try.
    pub candidates: Vec<String>,
    /// The expected path for each kind of peer.
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

/// A port mapping that was requested from the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterPort {
    /// The protocol of the mapping: `PCP`, `NAT-PMP`, `UPnP`; `null`: no mapping.
    pub protocol: Option<String>,
    /// The outer address of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer: Option<String>,
    /// The reason why there is no mapping.
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
    /// The address of this machine that the server sees; `null` without an answer.
    pub outer: Option<String>,
    /// The reason for a missing answer, where this machine knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The network properties for one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// How the NAT assigns addresses.
    pub mapping: Mapping,
    /// Which datagrams arrive.
    pub filtering: Filtering,
}

/// How a NAT assigns an address to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// Fewer than two answers arrived.
    Unknown,
    /// No NAT.
    None,
    /// The same address towards all destinations.
    Same,
    /// A different address or port for each destination.
    PerDestination,
}

impl Mapping {
    /// A readable explanation.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Unknown => "unknown: it takes the answers of two ports or servers",
            Self::None => "none: the server sees this machine's own address",
            Self::Same => "the same outer address towards all (plain NAT)",
            Self::PerDestination => "another outer address per destination (symmetric NAT)",
        }
    }
}

/// The sources whose datagrams a NAT or a firewall admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filtering {
    /// Unknown: the server could not answer from its other port, or its answer did not arrive.
    Unknown,
    /// Datagrams from ports to which nothing was sent are admitted as well.
    Open,
    /// Only datagrams from addresses and ports to which something was sent.
    AddressAndPort,
}

impl Filtering {
    /// A readable explanation.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Unknown => "unknown: no answer came from the other port of a server",
            Self::Open => "datagrams of other ports arrive (open)",
            Self::AddressAndPort => "only datagrams of ports that were sent to arrive",
        }
    }
}

/// The expected path to a kind of peer.
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
    /// Without NAT and filter, or behind a NAT that admits all sources.
    Open,
    /// The same outer port towards all destinations, and a filter.
    Plain,
    /// A different outer port for each destination, and a filter.
    Symmetric,
    /// UDP does not pass.
    Blocked,
}

impl Peer {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Open, Self::Plain, Self::Symmetric, Self::Blocked];

    /// A readable explanation.
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
    /// Depends on unknown properties.
    Unclear,
}

impl Path {
    /// A readable word.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relayed => "relayed by the server",
            Self::Unclear => "direct or relayed",
        }
    }
}

/// Finds out the network properties of a client.
pub trait NatProbe: Send + Sync {
    /// Queries the STUN servers and the router, for at most 3 s.
    ///
    /// # Errors
    /// There is no server to query, or this machine has no socket for it; a readable line.
    fn probe(&self) -> SendFuture<'_, anyhow::Result<NatReport>>;
}
