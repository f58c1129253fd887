//! A stream: two independent directions, and the rule for when it may be forgotten.
//!
//! ```text
//!   our direction (send.rs)                    the peer's direction (recv.rs)
//!   Open --finish--> Fin ---ack--+             Open --FIN----> Finished
//!     \                \         v               \
//!      +--reset/STOP--> Reset -> Acked            +--RESET---> Reset
//! ```
//! A side forgets a stream when its own direction is `Acked` and the peer's direction has ended.
//! Then the peer needs only the acknowledgement of its end, which is repeated for forgotten ids
//! (protocol decision 5). A stream whose bytes the application has not consumed is kept until they
//! are consumed.

mod frame;
mod frames;
mod recv;
mod send;
mod store;

use bytes::Bytes;

pub(crate) use frames::Popped;
pub(crate) use recv::{Due, LONG, Pace, Recv};
pub(crate) use send::Send;
pub(crate) use store::Store;

use crate::budget::{Charge, Moving, Reported};
use crate::frame::Entry;
use crate::offset::Offset;
use crate::{Budget, Priority, StreamId};

/// Initial credit of both sides, before any CREDIT.
pub(crate) const IMPLICIT_WINDOW: u64 = 16 << 10;

/// Fixed credit of the control stream: the largest set of services fits.
pub(crate) const CONTROL_WINDOW: u64 = 2 << 20;

/// Memory of a stream in addition to its bytes, charged to the budget: the state of both
/// directions, its table entries, a socket with its registration, and the tasks that serve it.
/// Measured with 18,000 visitors: less than 2 KiB of resident memory each.
const STREAM_MEMORY: u64 = 2 << 10;

/// The kinds of queues that contain a stream, as a set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Membership(u8);

impl Membership {
    pub(crate) const PAYLOAD: Self = Self(1);
    pub(crate) const SIGNAL: Self = Self(2);
    pub(crate) const SWEEP: Self = Self(4);
    pub(crate) const LISTED: Self = Self(8);

    pub(crate) const fn contains(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }

    /// Returns `false` if the mark was already set.
    pub(crate) fn insert(&mut self, mark: Self) -> bool {
        let is_new = !self.contains(mark);
        self.0 |= mark.0;
        is_new
    }

    pub(crate) fn remove(&mut self, mark: Self) {
        self.0 &= !mark.0;
    }
}

/// The streams of a link that moved recently.
#[derive(Debug, Default)]
pub(crate) struct MovingBoth {
    /// The memory of frames retained for replay.
    pub(crate) sending: Moving,
    /// The memory of granted windows.
    pub(crate) receiving: Moving,
}

/// One stream of a link.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) send: Send,
    pub(crate) recv: Recv,
    pub(crate) priority: Priority,
    /// Our OPEN, until the peer is known to have seen it.
    pub(crate) open: Option<Bytes>,
    /// The queues of the link that contain the stream.
    pub(crate) queues: Membership,
    charge: Charge,
    /// The memory of this stream as reported to the visitor's source.
    pub(crate) reported: Option<Reported>,
}

impl Stream {
    pub(crate) fn new(id: StreamId, priority: Priority, implicit: u64) -> Self {
        Self {
            id,
            send: Send::new(implicit),
            recv: Recv::new(implicit),
            priority,
            open: None,
            queues: Membership::default(),
            charge: Charge::NONE,
            reported: None,
        }
    }

    /// Whether the budget has room for one more stream.
    pub(crate) fn is_affordable(budget: &dyn Budget) -> bool {
        budget.left() >= STREAM_MEMORY
    }

    /// Updates the charge for the memory of the stream. Must be called after each change of it;
    /// windows draw from the budget themselves before they grant.
    pub(crate) fn account(&mut self, budget: &dyn Budget) {
        let memory = STREAM_MEMORY + self.send.memory() + self.recv.memory();
        self.charge.set(memory, budget);
        if let Some(reported) = &mut self.reported {
            reported.set(memory + self.recv.drawn());
        }
    }

    /// Returns everything to the budget when the stream is forgotten.
    pub(crate) fn settle(&mut self, budget: &dyn Budget, moving: &mut MovingBoth) {
        self.send.leave(&mut moving.sending);
        self.recv.release(budget, &mut moving.receiving);
        self.charge.set(0, budget);
        if let Some(reported) = &mut self.reported {
            reported.set(0);
        }
    }

    /// Whether both sides and the application have finished the stream.
    pub(crate) fn is_done(&self) -> bool {
        self.send.is_acked() && self.recv.is_over()
    }

    /// Whether a CREDIT, RESET or STOP must be sent.
    pub(crate) fn has_signal(&self) -> bool {
        self.recv.credit_due() || self.send.reset_due().is_some() || self.recv.stop_due().is_some()
    }

    /// The entry of the stream in RESUME.
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            stream: self.id,
            received: self.recv.received(),
            consumed: self.recv.consumed(),
            limit: self.recv.granted(),
            end_seen: self.recv.has_ended(),
        }
    }

    /// Retransmits everything from the first byte, because the peer never received the OPEN.
    pub(crate) fn rewind(&mut self, store: &mut Store) {
        self.send.rewind(Offset::ZERO, store);
    }
}
