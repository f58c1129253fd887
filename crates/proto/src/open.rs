//! The content of an OPEN frame.

use std::net::SocketAddr;

use crate::Measure;
use crate::greeting::Name;

/// Priority class of a service: a higher class is sent first, streams within a class take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Before all others: shells, games.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// When nothing else waits: backups.
    Bulk,
}

/// The target to which the far end connects the stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A service that the far end published; its name.
    Service(String),
    /// A target that the far end dials: `tcp://host:port`, `udp://host:port` (a flow), or `unix:///path`
    /// (`unix://@name`) as [`crate::UnixAddr`] reads it.
    Forward(String),
    /// As [`Target::Forward`], and the far end tells when it has connected the target: its first
    /// byte is a 0 that the target did not send. A far end without
    /// [`Features::FLOWS`](crate::greeting::Features::FLOWS) refuses it.
    Reported(String),
    /// As [`Target::Service`], of a service with several targets. The far end tells which of them it
    /// has connected: its first 8 bytes are the mark of the target, which the target did not send.
    /// Only a client whose service says so ([`Sticky::Target`](crate::Sticky::Target)) can read it.
    Marked {
        /// The name of the service.
        service: String,
        /// The mark of the target that the visitor should get, if it serves; `0`: any.
        mark: u64,
    },
    /// A measurement: the far end itself is the target.
    Measure(Measure),
    /// A private service. The stream carries a link between two clients, which the server joins. A
    /// far end without [`Features::PRIVATE`](crate::greeting::Features::PRIVATE) cannot read it.
    Private {
        /// The other client: the client that has the service on the way to the server, the visitor
        /// on the way to the client that has the service.
        client: Name,
        /// The name of the service.
        service: Name,
    },
}

/// The content of an OPEN frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The target of the stream.
    pub target: Target,
    /// The visitor's address, for logs and limits of the far end. `None` for visitors over a Unix
    /// socket, which have no address.
    pub visitor: Option<SocketAddr>,
    /// The stream's class in both directions.
    pub priority: Priority,
}
