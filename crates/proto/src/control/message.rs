//! The messages as values, and their kinds on the wire.

use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;

use super::{Homes, IGNORABLE, Invite, Invited, ServiceTerms};
use crate::greeting::Name;
use crate::{FlowId, Open, Priority, ResetCode};

pub(super) const REGISTER: u8 = 1;
pub(super) const REGISTERED: u8 = 2;
/// Only if the feature Flows is negotiated.
pub(super) const FLOW_OPEN: u8 = 3;
pub(super) const FLOW_CLOSE: u8 = 4;
pub(super) const STRAINED: u8 = IGNORABLE | 1;
pub(super) const SIGNAL: u8 = IGNORABLE | 2;
/// Only if the feature Private is negotiated.
pub(super) const INVITE: u8 = IGNORABLE | 3;
pub(super) const INVITED: u8 = IGNORABLE | 4;
pub(super) const STUN: u8 = IGNORABLE | 5;
/// Only if the feature Nodes is negotiated.
pub(super) const NODE: u8 = IGNORABLE | 6;
pub(super) const HOMES: u8 = IGNORABLE | 7;

/// TLV kinds of a message body.
pub(super) mod field {
    pub(in crate::control) const GENERATION: u8 = 1;
    pub(in crate::control) const SERVICE: u8 = 2;
    pub(in crate::control) const RATE: u8 = 1;
    pub(in crate::control) const PORTS: u8 = 1;
    pub(in crate::control) const LEAVING: u8 = 60;
    pub(in crate::control) const STANDBY: u8 = 61;
}

/// TLV kinds of a message about homes, and of a node in it.
pub(super) mod homes {
    pub(in crate::control) const WANTED: u8 = 1;
    pub(in crate::control) const NODE: u8 = 2;
    pub(in crate::control) const NAME: u8 = 1;
    pub(in crate::control) const ZONE: u8 = 2;
    pub(in crate::control) const ADDRESS: u8 = 3;
}

/// TLV kinds of an invitation and its answer.
pub(super) mod invite {
    pub(in crate::control) const REQUEST: u8 = 1;
    pub(in crate::control) const VISITOR: u8 = 2;
    pub(in crate::control) const SERVICE: u8 = 3;
    pub(in crate::control) const ACTION: u8 = 4;
    pub(in crate::control) const SECRET: u8 = 5;
    pub(in crate::control) const REFUSED: u8 = 6;
}

/// TLV kinds of a service, in a request or a result.
pub(super) mod service {
    pub(in crate::control) const NAME: u8 = 1;
    pub(in crate::control) const ADDRESS: u8 = 2;
    pub(in crate::control) const PRIORITY: u8 = 3;
    pub(in crate::control) const FLAGS: u8 = 4;
    pub(in crate::control) const ERROR: u8 = 5;
    pub(in crate::control) const ALLOW_FROM: u8 = 6;
    pub(in crate::control) const DENY_FROM: u8 = 7;
    pub(in crate::control) const HTTP: u8 = 8;
    pub(in crate::control) const FLOWS: u8 = 9;
    pub(in crate::control) const KEEPALIVE: u8 = 10;
    pub(in crate::control) const TIMEOUTS: u8 = 11;
    pub(in crate::control) const VISITORS: u8 = 12;
    pub(in crate::control) const SHARING: u8 = 13;
    pub(in crate::control) const DSCP: u8 = 14;
    pub(in crate::control) const REFUSED: u8 = 60;

    pub(in crate::control) const FLAG_SHARED: u8 = 1;
    pub(in crate::control) const FLAG_RESUME: u8 = 2;
    pub(in crate::control) const FLAG_EPHEMERAL: u8 = 4;
}

/// A message on the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlMessage {
    /// Client to server.
    Register(Register),
    /// Server to client.
    Registered(Registered),
    /// Server to client.
    Strained(Strained),
    /// From either side: a flow begins.
    FlowOpen(FlowOpen),
    /// From either side: a flow has ended.
    FlowClose(FlowClose),
    /// From either side of a link between two clients: signalling to find a direct path. The
    /// content is opaque here, and has at most [`SIGNAL_MAX`](super::SIGNAL_MAX) bytes.
    Signal(Bytes),
    /// Client to server.
    Invite(Invite),
    /// Server to client.
    Invited(Invited),
    /// Server to client.
    Stun(StunPorts),
    /// From either side of a link between two nodes of a cluster. The content is opaque here, and
    /// has at most [`NODE_MAX`](super::NODE_MAX) bytes.
    Node(Bytes),
    /// Server to client.
    Homes(Homes),
}

/// The start of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowOpen {
    /// The id, which the sender chooses.
    pub flow: FlowId,
    /// The target, visitor and priority of the flow.
    pub open: Open,
}

/// The end of a flow, for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowClose {
    /// The id of the flow.
    pub flow: FlowId,
    /// The reason. [`ResetCode::Timeout`]: the flow was idle.
    pub code: ResetCode,
}

/// The carrier has a low rate although the server has more bytes to send. Another path may be
/// faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strained {
    /// The rate of the carrier, in bytes per second.
    pub rate: u64,
}

/// The UDP ports at which the server answers STUN, at the address that the client uses for the
/// server. Preferred ports come first. At most [`STUN_PORTS_MAX`](super::STUN_PORTS_MAX).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StunPorts(pub Vec<u16>);

/// The complete service set of a client. It replaces the previous set; if two links carry different
/// sets at the same time, the higher generation wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// Increases with every change of the set within a client process.
    pub generation: u64,
    /// The services; an empty list withdraws all.
    pub services: Vec<ServiceSpec>,
    /// The client stops and may return: the server remembers its names. An older client does not
    /// send this.
    pub leaving: bool,
    /// The server stands by: another server of the client has the services. Only the server's
    /// reports use it. An older client does not send this, and an older server skips it.
    pub standby: bool,
}

/// A service that a client publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// The name by which an OPEN requests the service.
    pub name: Name,
    /// The requested public addresses: `tcp://:10022`, `http://app.example.com`.
    pub public: Vec<String>,
    /// The terms for its visitors.
    pub terms: ServiceTerms,
}

/// The outcome of a [`Register`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// The generation of the [`Register`].
    pub generation: u64,
    /// A result for each service of the [`Register`], in the same order.
    pub results: Vec<ServiceResult>,
}

/// The outcome for one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceResult {
    /// The name of the service.
    pub name: Name,
    /// The addresses at which visitors reach the service now (`tcp://example.com:10022`), or why it
    /// has none.
    pub outcome: Result<Vec<String>, ServiceError>,
    /// The refused addresses of a service with several requested addresses. An older server sends
    /// none, and an older client skips them.
    pub refused: Vec<RefusedAddress>,
}

impl ServiceResult {
    /// The result of a service whose addresses share one outcome.
    #[must_use]
    pub const fn whole(name: Name, outcome: Result<Vec<String>, ServiceError>) -> Self {
        Self { name, outcome, refused: Vec::new() }
    }

    /// Every reason of a refusal.
    pub fn errors(&self) -> impl Iterator<Item = &ServiceError> {
        self.outcome.as_ref().err().into_iter().chain(self.refused.iter().map(|one| &one.error))
    }
}

/// A refused address; other addresses of its service may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    /// The address as requested by the client.
    pub address: String,
    /// The reason.
    pub error: ServiceError,
}

/// Why a service, or one of its addresses, is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceError {
    /// The machine-readable reason.
    pub code: ServiceErrorCode,
    /// The reason for the user: what, where, and the remedy. One line.
    pub text: String,
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() { self.code.fmt(f) } else { f.write_str(&self.text) }
    }
}

impl std::error::Error for ServiceError {}

/// Codes of [`ServiceError`]. `SPEC.md`, section "Control messages", has the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceErrorCode {
    /// Another process or client listens on the port.
    PortTaken,
    /// The client has no right to the address.
    NotAllowed,
    /// The address is invalid, or its kind is not served here.
    BadAddress,
    /// A limit of services, ports, hosts, descriptors or pending certificates is reached.
    Limit,
    /// Another client publishes under this name or host, and the two do not share it.
    NameTaken,
    /// A defect or a failure of the server; its log has the details.
    Internal,
    /// The server cannot ask now whether another client has the address. It asks again by itself,
    /// and sends another answer.
    Waits,
    /// A code of a newer server.
    Other(u16),
}

impl ServiceErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn raw(self) -> u16 {
        match self {
            Self::PortTaken => 1,
            Self::NotAllowed => 2,
            Self::BadAddress => 3,
            Self::Limit => 4,
            Self::NameTaken => 5,
            Self::Internal => 6,
            Self::Waits => 7,
            Self::Other(n) => n,
        }
    }

    /// Whether the error may be transient, without a change of either configuration.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        match self {
            Self::PortTaken | Self::Limit | Self::Internal | Self::Waits => true,
            Self::NotAllowed | Self::BadAddress | Self::NameTaken | Self::Other(_) => false,
        }
    }

    /// The code with this number; every number is a code.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            1 => Self::PortTaken,
            2 => Self::NotAllowed,
            3 => Self::BadAddress,
            4 => Self::Limit,
            5 => Self::NameTaken,
            6 => Self::Internal,
            7 => Self::Waits,
            n => Self::Other(n),
        }
    }
}

impl fmt::Display for ServiceErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PortTaken => "the port is taken on the server: choose another",
            Self::NotAllowed => "the server does not allow this address to the client",
            Self::BadAddress => "the server cannot serve this address",
            Self::Limit => "a limit of the server is reached",
            Self::NameTaken => "another client publishes this already",
            Self::Internal => "the server failed; its log says more",
            Self::Waits => "the server cannot ask now whether the address is free; it asks again",
            Self::Other(n) => return write!(f, "the server refused with code {n}"),
        })
    }
}

/// The first byte of an encoded network: the IP version.
pub(super) const fn ip_version(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 4 } else { 6 }
}

/// The number of a priority, the same as in an OPEN frame.
pub(super) const fn priority_raw(priority: Priority) -> u8 {
    match priority {
        Priority::Interactive => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

/// The priority of a number. A class of a newer peer is treated as normal.
pub(super) const fn priority_from_raw(raw: u8) -> Priority {
    match raw {
        0 => Priority::Interactive,
        2 => Priority::Bulk,
        _ => Priority::Normal,
    }
}
