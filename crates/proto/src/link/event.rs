//! The events that a link gives to its driver.

use std::fmt;

use bytes::Bytes;

use crate::flow::FlowKey;
use crate::{CarrierNumber, GoAwayReason, Open, ResetCode, StreamId};

/// Names a stream of a link. The key of a forgotten stream names nothing and is harmless.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) index: usize,
    pub(crate) id: StreamId,
}

impl StreamKey {
    /// Index in a table that a driver keeps beside the link. Reused after [`Event::Closed`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.index
    }

    /// The stream's id on the wire.
    #[must_use]
    pub const fn id(self) -> StreamId {
        self.id
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.id)
    }
}

/// An event of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The new stream.
        key: StreamKey,
        /// What it asks for.
        open: Open,
    },
    /// The next bytes of a stream; call [`super::Link::consume`] as they leave.
    Data {
        /// Of which stream.
        key: StreamKey,
        /// A part of the buffer that was read, not copied.
        bytes: Bytes,
    },
    /// The peer's direction ended cleanly.
    Finished {
        /// Of which stream.
        key: StreamKey,
    },
    /// The peer's direction was aborted.
    Reset {
        /// Of which stream.
        key: StreamKey,
        /// Why.
        code: ResetCode,
    },
    /// The peer wants no more of our bytes; our direction is aborted by that.
    Stopped {
        /// Of which stream.
        key: StreamKey,
        /// Why.
        code: ResetCode,
    },
    /// The stream is forgotten; its key is dead.
    Closed {
        /// Which stream.
        key: StreamKey,
    },
    /// The peer opened a flow.
    FlowOpened {
        /// The new flow.
        key: FlowKey,
        /// What it asks for.
        open: Open,
    },
    /// A datagram of a flow.
    Datagram {
        /// Of which flow.
        key: FlowKey,
        /// A part of the buffer that was read, not copied.
        bytes: Bytes,
    },
    /// The flow is forgotten; its key is dead.
    FlowClosed {
        /// Which flow.
        key: FlowKey,
        /// Why.
        code: ResetCode,
        /// The peer closed it.
        by_peer: bool,
    },
    /// The next bytes of the control stream.
    Control(Bytes),
    /// A new carrier took over and both sides have resumed.
    Resumed,
    /// Nothing was heard for long enough to try the next path beside this one. With a standby the
    /// silent carrier is given up instead: [`Event::CarrierDead`].
    ProbeNextPath,
    /// The peer owes an answer, and has not answered the PING that asked for it: new streams had
    /// better go elsewhere. [`Event::Heard`], [`Event::Resumed`] or the loss of the carrier
    /// follows.
    Silent,
    /// Bytes came after [`Event::Silent`].
    Heard,
    /// The active carrier was lost, and this standby is the active carrier now.
    TookOver(CarrierNumber),
    /// The carrier was given up or replaced: close it.
    CarrierDead(CarrierNumber),
    /// With [`GoAwayReason::Retire`] the link is to retire: the peer says so, or the ids of this
    /// end are used up. With [`GoAwayReason::Done`] the server has no stream left. With another
    /// reason the peer ended the link.
    GoingAway(GoAwayReason),
    /// No carrier for `resume_timeout`: the link has ended.
    Expired,
}
