//! What an OPEN frame asks for.

use std::net::SocketAddr;

use crate::Measure;

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

/// Where the far side is to connect the stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A service that the far side published, by name.
    Service(String),
    /// A target that the far side is to dial on our behalf: `tcp://host:port`, or `unix:///path`
    /// (`unix://@name`) as [`crate::UnixAddr`] reads it.
    Forward(String),
    /// A measurement: the far side itself is the target.
    Measure(Measure),
}

/// The content of an OPEN frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Where to.
    pub target: Target,
    /// The visitor's address, for logs and limits of the far side; `None` when it has none:
    /// whoever comes over a Unix socket.
    pub visitor: Option<SocketAddr>,
    /// The stream's class in both directions.
    pub priority: Priority,
}
