//! Where `relay` (sockets) and `link` (streams) meet, without knowing each other.
//!
//! Everything here lives on one thread. A stream has two faces: the link sees an [`Outlet`] (the
//! socket side, which takes bytes inline from the carrier's reader), the pump sees an [`Inlet`]
//! (the link side, which takes bytes read from the socket).
//!
//! ```text
//!   socket --read--> pump --Inlet::send--> link --> carrier
//!   socket <--write-- Outlet::deliver <---- link <-- carrier
//! ```
//!
//! The link never calls an `Outlet` while it is borrowed itself, so an outlet may call back into
//! its inlet from any method.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::ptr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::{Open, ResetCode, Stall};

/// The socket side of a stream.
pub trait Outlet: fmt::Debug {
    /// Takes the next bytes of the stream, in order: all of `pieces`, which came together and fit
    /// one gathered write (`net::gather::MOST`). Returns how many bytes it handed to the socket
    /// at once. The rest stays in the outlet's own queue - bounded by the credit the link gave - and
    /// is reported by [`Inlet::consumed`] when it was written (or thrown away).
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize;

    /// The peer sends no more: half-close once the queue is written.
    fn finish(&self);

    /// The peer aborted its direction: the socket is to be reset, queued bytes are worthless.
    fn reset(&self, code: ResetCode);

    /// The peer wants no more bytes from us. The other direction goes on.
    fn stop(&self, code: ResetCode);

    /// [`Inlet::room`] became positive after it had been zero.
    fn room(&self);

    /// Whom its socket is connected to; `None` while it is being dialled, and where there is no
    /// address.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// What it counts in, and others of its service with it. To be compared, for nothing else.
    fn counted_in(&self) -> *const () {
        ptr::null()
    }
}

/// The link side of a stream. Dropping it before both directions ended aborts the stream.
pub trait Inlet: fmt::Debug {
    /// How many payload bytes the next [`Inlet::send`] may bring: what credit, replay share and
    /// frame limit allow. 0: wait for [`Outlet::room`], and watch the socket for errors meanwhile.
    fn room(&self) -> usize;

    /// Sends a payload. `frame` starts with [`proto::HEAD_ROOM`] bytes that the link overwrites;
    /// the payload behind them is at least one and at most [`Inlet::room`] bytes. Afterwards
    /// `frame` is empty and may have capacity left to be used again.
    fn send(&self, frame: &mut BytesMut);

    /// Ends our direction cleanly after what was sent.
    fn finish(&self);

    /// Aborts our direction; what is unsent is thrown away.
    fn reset(&self, code: ResetCode);

    /// Tells the peer that we want no more bytes; what still arrives is thrown away by the link.
    fn stop(&self, code: ResetCode);

    /// Refuses a stream that the peer opened, in place of its first byte: both directions end.
    fn refuse(&self, code: ResetCode) {
        self.reset(code);
        self.stop(code);
    }

    /// Why there is no room, for measurements; `None` when there is some, or when that is not known.
    fn stall(&self) -> Option<Stall> {
        None
    }

    /// So many bytes of the outlet's queue left it: the peer may send as many more.
    fn consumed(&self, bytes: usize);
}

/// Opens streams; the way from an accepted socket into a link.
pub trait Connector: fmt::Debug {
    /// Opens a stream at once (optimistically: OPEN travels with the first bytes). A refusal by
    /// the far side comes as [`Outlet::reset`].
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError>;
}

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The link has ended or is going away.
    #[error("the link is closed")]
    Closed,
}
