//! The stream interface between `relay` (sockets) and `link` (streams), which do not depend on each
//! other.
//!
//! Everything here stays on one thread. A stream has two sides: the link uses an [`Outlet`] (the
//! socket side, which takes bytes inline from the carrier's reader), the pump uses an [`Inlet`]
//! (the link side, which takes bytes read from the socket).
//!
//! ```text
//!   socket --read--> pump --Inlet::send--> link --> carrier
//!   socket <--write-- Outlet::deliver <---- link <-- carrier
//! ```
//!
//! The bytes of a bulk stream may be passed as pages in a system pipe ([`net::pages`]), if both
//! sides support it: [`Inlet::pages`], [`Outlet::takes_pages`].
//!
//! The link never calls an `Outlet` while it is borrowed itself, so an outlet may call back into
//! its inlet from any method.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::ptr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use net::pages::Pages;
use proto::{Open, ResetCode, Stall};

/// The socket side of a stream.
pub trait Outlet: fmt::Debug {
    /// Takes the next bytes of the stream, in order: all of `pieces`, which fit one gathered write
    /// (`net::gather::MOST`). Returns the number of bytes that the socket took at once. The rest is
    /// queued in the outlet, bounded by the credit of the link. The outlet calls
    /// [`Inlet::consumed`] when it has written or discarded the rest.
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize;

    /// Ends the direction of the peer: half-closes the socket once the queue is written.
    fn finish(&self);

    /// Aborts the direction of the peer: resets the socket and discards the queue.
    fn reset(&self, code: ResetCode);

    /// Called when the peer accepts no more bytes from this end. The other direction continues.
    fn stop(&self, code: ResetCode);

    /// Called when [`Inlet::room`] has become positive after it was zero.
    fn room(&self);

    /// Called when the peer of the link is lost or does not answer in time: a visitor that is not
    /// served yet should be served elsewhere.
    fn silent(&self) {}

    /// Whether the outlet currently prefers pages to bytes.
    ///
    /// Another thread may change the result at any time, for example by setting a rate. So the
    /// caller checks once, before it fills a pipe, and delivers the pipe to the same outlet even if
    /// the result has changed.
    fn takes_pages(&self) -> bool {
        false
    }

    /// As [`Outlet::deliver`], for pages: the outlet takes all of them, regardless of
    /// [`Outlet::takes_pages`]. Bytes and pages keep their order. By default the outlet gets a copy
    /// of the bytes.
    fn deliver_pages(&self, pages: Pages) -> usize {
        deliver_copy(self, pages)
    }

    /// The address to which the socket is connected; `None` during the dial, and for a socket
    /// without an address.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// Identifies the counters that this outlet shares with others of its service. Only for
    /// comparison.
    fn counted_in(&self) -> *const () {
        ptr::null()
    }
}

/// Delivers a copy of the bytes in `pages`. Returns the number that [`Outlet::deliver`] returns.
pub fn deliver_copy<T: Outlet + ?Sized>(outlet: &T, pages: Pages) -> usize {
    let (size, mut bytes) = (pages.len(), BytesMut::new());
    if pages.copy_out(&mut bytes).is_err() {
        // This does not occur, because the system loses no bytes of a pipe.
        outlet.reset(ResetCode::Internal);
        return size;
    }
    outlet.deliver(&mut VecDeque::from([bytes.freeze()]))
}

/// The link side of a stream. Dropping it before the end of both directions aborts the stream.
pub trait Inlet: fmt::Debug {
    /// The number of payload bytes that the next [`Inlet::send`] may carry, limited by credit,
    /// share of the retransmission memory and frame limit. At 0 the caller waits for
    /// [`Outlet::room`] and watches the socket for errors.
    fn room(&self) -> usize;

    /// Sends a payload. `frame` starts with [`proto::HEAD_ROOM`] bytes that the link overwrites.
    /// The payload follows and has at least one and at most [`Inlet::room`] bytes. Afterwards
    /// `frame` is empty and may have capacity for another payload.
    fn send(&self, frame: &mut BytesMut);

    /// Returns the inlet for pages instead of bytes; `None`: the stream currently takes only bytes.
    fn pages(&self) -> Option<&dyn PageInlet> {
        None
    }

    /// Ends the sending direction after all sent bytes.
    fn finish(&self);

    /// Aborts the sending direction and discards unsent bytes.
    fn reset(&self, code: ResetCode);

    /// Requests the peer to stop sending. The link discards bytes that still arrive.
    fn stop(&self, code: ResetCode);

    /// Refuses a stream of the peer before its first byte. Both directions end.
    fn refuse(&self, code: ResetCode) {
        self.reset(code);
        self.stop(code);
    }

    /// Whether the far side has not yet taken all sent bytes, which [`Inlet::reset`] would discard.
    fn is_untaken(&self) -> bool {
        false
    }

    /// Why there is no room, for measurements; `None` if there is room or the reason is unknown.
    fn stall(&self) -> Option<Stall> {
        None
    }

    /// Reports that `bytes` have left the queue of the outlet, so that the peer may send as many
    /// more.
    fn consumed(&self, bytes: usize);
}

/// The link side of a stream whose bytes may be sent as pages.
pub trait PageInlet {
    /// The number of bytes that the next [`PageInlet::send_pages`] may carry. At 0 the caller waits
    /// as for an [`Inlet::room`] of 0.
    fn page_room(&self) -> usize;

    /// As [`Inlet::send`]: sends a payload of at least one and at most [`PageInlet::page_room`]
    /// bytes. Bytes and pages keep their order. All bytes are sent, even if [`Inlet::pages`] would
    /// now return `None`.
    fn send_pages(&self, pages: Pages);
}

/// Opens streams, which connect accepted sockets to a link.
pub trait Connector: fmt::Debug {
    /// Opens a stream without a round trip: OPEN travels with the first bytes. A refusal by the far
    /// side arrives as [`Outlet::reset`].
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError>;
}

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The link has ended or is going away.
    #[error("the link is closed")]
    Closed,
    /// The far end is too old to carry flows.
    #[error("the other side is too old for UDP; update it")]
    TooOld,
    /// A limit of flows or memory is reached, of the link or of the source of the visitor.
    #[error("the link, or the source of the visitor, has as much as it may have")]
    Limit,
}
