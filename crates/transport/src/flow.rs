//! The flow contract: `relay` (UDP sockets) and `link` (flows) meet here and do not know each
//! other.
//!
//! A flow carries the datagrams of one peer of a UDP socket. As with streams, everything stays on
//! one thread, and the link never calls a [`FlowOutlet`] while it is borrowed itself. A datagram
//! arrives whole or not at all. No call waits: whoever cannot take a datagram drops it and counts
//! the drop.
//!
//! ```text
//!   UDP socket --read--> relay --FlowInlet::send--> link --> carrier
//!   UDP socket <--write-- FlowOutlet::deliver <---- link <-- carrier
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::ptr;
use std::rc::Rc;

use bytes::Bytes;
use proto::{Dscp, Open, ResetCode};

use crate::OpenError;

/// Bytes of the largest datagram: what fits into an IPv4 packet of 65,535 bytes behind its head and
/// that of UDP.
pub const DATAGRAM_MAX: usize = 65_507;

/// The socket side of a flow.
pub trait FlowOutlet: fmt::Debug {
    /// Takes a datagram of the far end, of at most [`DATAGRAM_MAX`] bytes. It may be empty. The
    /// outlet may gather the datagrams of a turn of the runtime, to send them by few calls.
    fn deliver(&self, datagram: Bytes);

    /// The flow has ended at the far end, or with its link. No further call follows.
    fn close(&self, code: ResetCode);

    /// As [`Outlet::silent`](crate::Outlet::silent): the peer of the flow had better get a flow
    /// elsewhere.
    fn silent(&self) {}

    /// The address of the peer of the socket: of the visitor, or of the target. `None` before the
    /// target is known.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// The datagrams to the peer have this code point from now on. An outlet without a socket has
    /// none.
    fn mark(&self, _dscp: Dscp) {}

    /// Identifies the counters that this outlet shares with others of its service. Only for
    /// comparison.
    fn counted_in(&self) -> *const () {
        ptr::null()
    }
}

/// The link side of a flow. Dropping it closes the flow with [`ResetCode::Aborted`], unless
/// [`FlowInlet::close`] was called before.
pub trait FlowInlet: fmt::Debug {
    /// Sends datagrams that came together, of at most [`DATAGRAM_MAX`] bytes each. The bytes are
    /// copied. Returns the number of datagrams of the flow that were dropped: of those that have
    /// waited for the carrier for long, or of these.
    #[must_use]
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize;

    /// Ends the flow at both ends. Datagrams that wait for the carrier are dropped.
    fn close(&self, code: ResetCode);
}

/// Opens flows: connects a peer of a UDP socket to a link.
pub trait FlowConnector: fmt::Debug {
    /// Opens a flow without a round trip. A refusal by the far end arrives as
    /// [`FlowOutlet::close`].
    ///
    /// # Errors
    /// [`OpenError`]: the link takes no flows, or its far end knows none.
    fn open_flow(
        &self,
        open: Open,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, OpenError>;
}
