//! Lanes. A carrier may have a lane per stream and direction. DATA and FIN travel on the stream's
//! own lane, all other frames on the carrier's first lane.
//!
//! DATA and FIN of a direction keep their order on one lane and need no rule. Frames on different
//! lanes can overtake each other, and the rules of this file make that harmless. A stream's lane
//! may bring bytes before the first lane brings OPEN or RESUME: then the lane waits. A RESET may
//! overtake bytes, which it makes worthless. CREDIT and STOP concern the other direction. The first
//! frame of a lane names its stream. A stream may change its lane while none of its bytes are in
//! flight: from the first lane to a lane of its own, or to another lane after a rest.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use super::StreamKey;
use super::decoder::Decoder;
use crate::pages::frame_of_pages;
use crate::{Pages, Priority, StreamId};

/// Takes the frames that [`super::Link::poll_transmit`] makes. A queue of bytes stands for a
/// carrier with a single lane.
pub trait Outgoing {
    /// Whether streams have lanes of their own.
    const LANES: bool;

    /// The next frames for the first lane.
    fn push(&mut self, frame: Bytes);

    /// The next frame of a stream of this class, for its own lane, or for the first one as long as
    /// it has none.
    fn push_payload(&mut self, key: StreamKey, priority: Priority, frame: Bytes);

    /// As [`Self::push_payload`]: the head of a frame whose payload is `len` bytes of pages. The
    /// default copies them.
    fn push_pages(
        &mut self,
        key: StreamKey,
        priority: Priority,
        head: Bytes,
        (pages, len): (Rc<dyn Pages>, usize),
    ) {
        self.push_payload(key, priority, frame_of_pages(&head, &*pages, len));
    }

    /// FIN of a stream, to follow all of its payload; its lane ends behind it.
    fn push_fin(&mut self, key: StreamKey, frame: Bytes);

    /// The stream was aborted: its lane is worth nothing any more. RESET goes by the first lane.
    fn abort(&mut self, key: StreamKey);

    /// Whether payload of a stream is to stay here for now: so many bytes of it are under way on
    /// the first lane, and once there are none it goes by its own.
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

/// The decoder of a stream's own lane. The driver keeps a decoder for each lane that the peer
/// opened.
#[derive(Debug, Default)]
pub struct LaneInput {
    pub(super) decoder: Decoder,
    /// Whose lane it is, from its first frame on.
    pub(super) stream: Option<StreamId>,
    pub(super) waits: bool,
}

impl LaneInput {
    /// The decoder of a lane that has brought no bytes yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the lane is ahead of the first lane. The driver reads no more from it until
    /// [`super::Link::is_early`] is false, then calls [`super::Link::handle_lane`] again.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// The stream of the lane, once its first frame has arrived.
    #[must_use]
    pub const fn stream(&self) -> Option<StreamId> {
        self.stream
    }
}
