//! The flow interface between `relay` (UDP sockets) and `link` (flows), which do not depend on each
//! other.
//!
//! A flow carries the datagrams of one peer of a UDP socket. As with streams, everything stays on
//! one thread, and the link never calls a [`FlowOutlet`] while it is borrowed itself. A datagram
//! arrives whole or not at all. No call waits: a side that cannot take a datagram drops and counts
//! it.
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
use net::SocketOptions;
use proto::{Open, ResetCode};

use crate::OpenError;

/// The size of the largest datagram in bytes: the payload of an IPv4 packet of 65,535 bytes without
/// the IP and UDP headers.
pub const DATAGRAM_MAX: usize = 65_507;

/// The socket side of a flow.
pub trait FlowOutlet: fmt::Debug {
    /// Takes a datagram of the far end, of at most [`DATAGRAM_MAX`] bytes. It may be empty. The
    /// outlet may batch the datagrams of a turn of the runtime, to send them with few calls.
    fn deliver(&self, datagram: Bytes);

    /// Called when the flow has ended at the far end, or with its link. No more calls follow.
    fn close(&self, code: ResetCode);

    /// As [`Outlet::silent`](crate::Outlet::silent): the peer of the flow should get a flow
    /// elsewhere.
    fn silent(&self) {}

    /// The address of the peer of the socket: of the visitor, or of the target. `None` before the
    /// target is known.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// Sets the options of further datagrams to the peer. An outlet without a socket ignores them.
    fn obey(&self, _options: &SocketOptions) {}

    /// Identifies the counters that this outlet shares with others of its service. Only for
    /// comparison.
    fn counted_in(&self) -> *const () {
        ptr::null()
    }
}

/// The link side of a flow. Dropping it closes the flow with [`ResetCode::Aborted`], unless
/// [`FlowInlet::close`] was called before.
pub trait FlowInlet: fmt::Debug {
    /// Sends datagrams that arrived together, of at most [`DATAGRAM_MAX`] bytes each. The bytes are
    /// copied. Returns the number of dropped datagrams of the flow: these, or older ones that have
    /// waited long for the carrier.
    #[must_use]
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize;

    /// Ends the flow at both ends. Datagrams that wait for the carrier are dropped.
    fn close(&self, code: ResetCode);
}

/// Opens flows, which connect a peer of a UDP socket to a link.
pub trait FlowConnector: fmt::Debug {
    /// Opens a flow without a round trip. A refusal by the far end is reported as
    /// [`FlowOutlet::close`].
    ///
    /// # Errors
    /// [`OpenError`]: the link takes no flows, or its far end does not support flows.
    fn open_flow(
        &self,
        open: Open,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, OpenError>;
}
