//! The limits of all streams of this process: on a server for all clients together, on a client for
//! all its services and forwards. The gate of a single client, service or forward is nested inside.
//! Except in tests, a process has at most one server and one client.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use net::source::Source;
use proto::Limits;
use relay::{Gate, Visitor};

use crate::descriptors;

static SERVER: LazyLock<Arc<Gate>> = LazyLock::new(|| Gate::new(None));
static CLIENT: LazyLock<Arc<Gate>> = LazyLock::new(|| Gate::new(None));

/// The gate of all clients of a server.
pub fn of_server() -> &'static Arc<Gate> {
    &SERVER
}

/// The gate of all services and forwards of a client.
pub fn of_client() -> &'static Arc<Gate> {
    &CLIENT
}

/// Changes the limits of a server, also for live streams.
pub fn set_server(limits: &Limits) {
    SERVER.set(limits);
}

/// Changes the limits of a client, also for live streams.
pub fn set_client(limits: &Limits) {
    CLIENT.set(limits);
}

/// The source of the visitor of an incoming stream. A trusted reverse proxy is not a source.
pub fn source_of(visitor: &Visitor) -> Option<Source> {
    match visitor {
        Visitor::Unknown | Visitor::At(_) => source(visitor.address()).map(Source::Address),
        Visitor::Of { .. } => visitor.source(),
    }
}

/// The source of a visitor, for per-source limits. A trusted reverse proxy is not a source.
pub fn source(visitor: Option<SocketAddr>) -> Option<IpAddr> {
    visitor.map(|visitor| visitor.ip().to_canonical()).filter(|ip| !descriptors::is_trusted(*ip))
}
