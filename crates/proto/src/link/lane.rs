//! Lanes: on a carrier that has one per stream and direction, payload and its clean end travel on
//! the stream's own lane, everything else on the carrier's first one.
//!
//! What keeps its order on one lane needs no rule: DATA and FIN of a direction. What can overtake is
//! made harmless here. A stream's lane may bring bytes before the first lane brings its OPEN, or
//! RESUME: then the lane waits. A RESET overtakes bytes, which it makes worthless. CREDIT and STOP
//! speak of the other direction. A lane says by its first frame whose it is. A stream may
//! change its lane when nothing of it is under way: from the first one, where it found none, to its own,
//! or after a rest to another.

use std::collections::VecDeque;

use bytes::Bytes;

use super::StreamKey;
use super::decoder::Decoder;
use crate::{Priority, StreamId};

/// Where frames go that [`super::Link::poll_transmit`] makes. A queue of bytes is a carrier with
/// one lane for everything.
pub trait Outgoing {
    /// Whether streams have lanes of their own.
    const LANES: bool;

    /// The next frames for the first lane.
    fn push(&mut self, frame: Bytes);

    /// The next frame of a stream of this class, for its own lane, or for the first one as long as it
    /// has none.
    fn push_payload(&mut self, key: StreamKey, priority: Priority, frame: Bytes);

    /// FIN of a stream, to follow all of its payload; its lane ends behind it.
    fn push_fin(&mut self, key: StreamKey, frame: Bytes);

    /// The stream was aborted: its lane is worth nothing any more. RESET goes by the first lane.
    fn abort(&mut self, key: StreamKey);

    /// Whether payload of a stream is to stay here for now: so many bytes of it are under way on the first
    /// lane, and once there are none it goes by its own.
    fn holds_back(&mut self, key: StreamKey, priority: Priority, under_way: u64) -> bool;

    /// Whether payload is wanted. Without, only frames for the first lane are made.
    fn takes_payload(&self) -> bool;
}

impl Outgoing for VecDeque<Bytes> {
    const LANES: bool = false;

    fn push(&mut self, frame: Bytes) {
        self.push_back(frame);
    }

    fn push_payload(&mut self, _key: StreamKey, _priority: Priority, frame: Bytes) {
        self.push_back(frame);
    }

    fn push_fin(&mut self, _key: StreamKey, frame: Bytes) {
        self.push_back(frame);
    }

    fn abort(&mut self, _key: StreamKey) {}

    fn holds_back(&mut self, _key: StreamKey, _priority: Priority, _under_way: u64) -> bool {
        false
    }

    fn takes_payload(&self) -> bool {
        true
    }
}

/// Where the bytes of a stream's own lane stand. The driver keeps one for each that the peer opened.
#[derive(Debug, Default)]
pub struct LaneInput {
    pub(super) decoder: Decoder,
    /// Whose lane it is, from its first frame on.
    pub(super) stream: Option<StreamId>,
    pub(super) waits: bool,
}

impl LaneInput {
    /// A lane that has brought nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the lane is ahead of the first one: nothing more is read from it until
    /// [`super::Link::is_early`] denies it, then [`super::Link::handle_lane`] is called again.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// Whose lane it is, once it has said so.
    #[must_use]
    pub const fn stream(&self) -> Option<StreamId> {
        self.stream
    }
}
