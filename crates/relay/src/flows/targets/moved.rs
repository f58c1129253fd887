//! A socket to a target on its way from a flow of a visitor to the next flow of the same visitor,
//! which may be on another worker.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use net::udp::DetachedSocket;

use crate::flows::ports::Port;
use crate::flows::table::BoundSlots;
use crate::{Permit, TargetAddr};

/// A socket to a target, with the rights that it needs. A drop closes the socket.
pub struct MovedSocket {
    pub(super) socket: DetachedSocket,
    pub(super) address: TargetAddr,
    pub(super) target: SocketAddr,
    pub(super) local: Option<IpAddr>,
    pub(super) port: Port,
    /// The slots of the flow in the bounds: a flow that moves counts once.
    pub(super) slots: BoundSlots,
    pub(super) permit: Option<Permit>,
    /// Untried addresses of the target, the next address last.
    pub(super) others: Vec<SocketAddr>,
    pub(super) is_answered: bool,
}

impl MovedSocket {
    /// Whether the flow was admitted and its permit is still held. The next flow then needs no
    /// other permit.
    #[must_use]
    pub const fn has_permit(&self) -> bool {
        self.permit.is_some()
    }
}

impl fmt::Debug for MovedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedSocket").field("address", &self.address).finish_non_exhaustive()
    }
}
