//! What a mapper is told, and what it tells.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use super::{Denied, Protocol, upnp};

/// A port of the router that leads to our socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The address of the router, with the port.
    pub outer: SocketAddr,
    /// By which protocol it was asked.
    pub protocol: Protocol,
}

/// The port of the router to which a datagram goes, or from which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Port 5351 of PCP and NAT-PMP.
    Mapping,
    /// Port 1900 of SSDP, the search of UPnP. Some routers answer from another port.
    Search,
}

/// A request of HTTP, over a connection of its own. A newer request takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the request, for [`super::Mapper::handle_response`].
    pub id: u32,
    /// A port of the router.
    pub to: SocketAddrV4,
    /// What is sent.
    pub bytes: Vec<u8>,
}

/// The socket that a port shall lead to, and what the router is to be asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address of the router.
    pub router: Ipv4Addr,
    /// The address of this machine towards the router, with the port of the socket.
    pub own: SocketAddrV4,
    /// The protocol that worked before.
    pub first: Option<Protocol>,
}

/// What an answer says.
#[derive(Debug)]
pub(super) enum Answer {
    Granted(Granted),
    Denied(Denied),
    /// The router does not speak this protocol.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) outer: SocketAddr,
    pub(super) seconds: u32,
}

/// A port that is ours.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) mapped: Mapped,
    pub(super) until: Instant,
    /// The service that mapped it, by UPnP.
    pub(super) service: Option<upnp::Service>,
}
