//! The inputs and outputs of a mapper.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use super::{Denied, Protocol, upnp};

/// A port of the router that is mapped to our socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The external address of the router, with the port.
    pub outer: SocketAddr,
    /// The protocol that mapped the port.
    pub protocol: Protocol,
}

/// The port of the router that is the destination or the source of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Port 5351 of PCP and NAT-PMP.
    Mapping,
    /// Port 1900 of SSDP, the search of UPnP. Some routers respond from another port.
    Search,
}

/// An HTTP request, over a separate connection. A newer request replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the request, for [`super::Mapper::handle_response`].
    pub id: u32,
    /// A port of the router.
    pub to: SocketAddrV4,
    /// The encoded request.
    pub bytes: Vec<u8>,
}

/// The socket to which a port must be mapped, and the parameters of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address of the router.
    pub router: Ipv4Addr,
    /// The address of this machine towards the router, with the port of the socket.
    pub own: SocketAddrV4,
    /// The protocol that worked before.
    pub first: Option<Protocol>,
}

/// The outcome in a response.
#[derive(Debug)]
pub(super) enum Answer {
    Granted(Granted),
    Denied(Denied),
    /// The router does not support this protocol.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) outer: SocketAddr,
    pub(super) seconds: u32,
}

/// The lease of a mapped port.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) mapped: Mapped,
    pub(super) until: Instant,
    /// The service that mapped it, by UPnP.
    pub(super) service: Option<upnp::Service>,
}
