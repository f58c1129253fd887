//! The value that the stages pass on, and what listeners and visitors tell them.

use std::net::SocketAddr;
use std::sync::Arc;

use net::SocketOptions;
use relay::{Announced, HeaderError, Held, Holder, Socket};

/// A visitor on its way from the accept to its destination.
#[derive(Debug)]
pub struct ArrivingVisitor {
    pub socket: Socket,
    /// The address of the visitor: of the socket's peer, or the address that a load balancer has
    /// announced. `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The header of a load balancer, once it has arrived.
    pub announced: Option<Announced>,
    /// The memory that is charged for the visitor.
    pub held: Option<Held>,
    pub(super) is_expected: bool,
}

impl ArrivingVisitor {
    /// A visitor that was just accepted. `peer` is the address of its socket's peer.
    pub const fn new(socket: Socket, peer: Option<SocketAddr>) -> Self {
        Self { socket, peer, announced: None, held: None, is_expected: false }
    }

    /// Whether a stage waits for bytes of the visitor.
    pub const fn waits(&self) -> bool {
        self.is_expected
    }
}

/// What a listener says about its visitors.
pub trait AcceptRules {
    /// Whether connections from this address begin with a header of the PROXY protocol.
    fn are_announced(&self, peer: Option<SocketAddr>) -> bool;

    /// The holder of the descriptors of visitors whose destination is not decided; `None`: they
    /// count for nobody.
    fn holder<T>(&self, ask: impl FnOnce(Option<&Arc<Holder>>) -> T) -> T;

    /// Whether a visitor gets a descriptor although the holder has used up its share.
    fn gives_way(&self, _holder: &Holder) -> bool {
        false
    }

    /// The memory of a visitor whose destination is not decided.
    ///
    /// # Errors
    /// The budget is exhausted.
    fn hold(&self, _peer: Option<SocketAddr>) -> Result<Option<Held>, NotAccepted> {
        Ok(None)
    }
}

/// Why a visitor was refused before its destination was known.
#[derive(Debug)]
pub enum NotAccepted {
    /// No descriptor is left.
    Seat,
    /// The memory budget is exhausted.
    Memory,
    /// No complete header of the load balancer arrived in time.
    Header(HeaderError),
    /// The visitor with this announced address has used up its share of the descriptors.
    Full(Option<SocketAddr>),
}

/// A visitor, a flow or a request whose backend is picked.
pub trait Guest {
    /// What the limit counts, in the log.
    const COUNTED: Option<&'static str> = None;

    /// The address to whose share of the limits it counts.
    fn peer(&self) -> Option<SocketAddr>;

    /// Takes the options of the service. A request has no socket of its own.
    fn obey(&self, _options: &SocketOptions) {}
}

/// A request, or a connection whose socket is below a layer.
impl Guest for Option<SocketAddr> {
    fn peer(&self) -> Option<SocketAddr> {
        *self
    }
}
