//! The events that a link reports to its driver.

use std::fmt;

use bytes::Bytes;

use crate::flow::FlowKey;
use crate::{CarrierNumber, GoAwayReason, Open, ResetCode, StreamId};

/// Identifies a stream of a link. The key of a forgotten stream matches no stream and is harmless.
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
        /// The request.
        open: Open,
    },
    /// The next bytes of a stream. The driver calls [`super::Link::consume`] as it passes them on.
    Data {
        /// The stream.
        key: StreamKey,
        /// A slice of the read buffer, not copied.
        bytes: Bytes,
    },
    /// The peer's direction ended cleanly.
    Finished {
        /// The stream.
        key: StreamKey,
    },
    /// The peer's direction was aborted.
    Reset {
        /// The stream.
        key: StreamKey,
        /// The reason.
        code: ResetCode,
    },
    /// The peer discards our bytes; our direction is aborted.
    Stopped {
        /// The stream.
        key: StreamKey,
        /// The reason.
        code: ResetCode,
    },
    /// The stream is forgotten; its key is invalid.
    Closed {
        /// The stream.
        key: StreamKey,
    },
    /// The peer opened a flow.
    FlowOpened {
        /// The new flow.
        key: FlowKey,
        /// The request.
        open: Open,
    },
    /// A datagram of a flow.
    Datagram {
        /// The flow.
        key: FlowKey,
        /// A slice of the read buffer, not copied.
        bytes: Bytes,
    },
    /// The flow is forgotten; its key is invalid.
    FlowClosed {
        /// The flow.
        key: FlowKey,
        /// The reason.
        code: ResetCode,
        /// Whether the peer closed the flow.
        by_peer: bool,
    },
    /// The next bytes of the control stream.
    Control(Bytes),
    /// A new carrier has taken over and both sides have resumed.
    Resumed,
    /// The active carrier has been silent for long enough to try the next path in parallel. With a
    /// standby the silent carrier is closed instead: [`Event::CarrierDead`].
    ProbeNextPath,
    /// A reply of the peer is overdue, and the PING that probed for it is unanswered: new streams
    /// should use another link. [`Event::Heard`], [`Event::Resumed`] or the loss of the carrier
    /// follows.
    Silent,
    /// Bytes arrived after [`Event::Silent`].
    Heard,
    /// The active carrier is silent beside a standby, and a PING is sent on both. The driver notes
    /// how far the transport of the active carrier is.
    Doubted(CarrierNumber),
    /// Only the standby has answered since [`Event::Doubted`]. If the transport of this active
    /// carrier heard nothing from the peer either, the driver calls [`super::Link::give_up`].
    Unanswered(CarrierNumber),
    /// The active carrier was lost, and this standby is now the active carrier.
    TookOver(CarrierNumber),
    /// The carrier is dead or was replaced: the driver closes it.
    CarrierDead(CarrierNumber),
    /// With [`GoAwayReason::Retire`] the link must retire: the peer has requested it, or the ids of
    /// this end are exhausted. With [`GoAwayReason::Done`] the server has no stream left. With
    /// another reason the peer ended the link.
    GoingAway(GoAwayReason),
    /// The link has had no carrier for `resume_timeout` and has ended.
    Expired,
}
