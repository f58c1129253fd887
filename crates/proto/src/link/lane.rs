//! Lanes. A carrier may have a lane per stream and direction. DATA and FIN are sent on the stream's
//! own lane, all other frames on the carrier's first lane.
//!
//! DATA and FIN of a direction keep their order on one lane and need no rule. Frames on different
//! lanes can overtake each other, and the rules of this file make that harmless. A stream's lane
//! may deliver bytes before the first lane delivers OPEN or RESUME: then the lane waits. A RESET
//! may overtake bytes, which are discarded. CREDIT and STOP concern the other direction. The first
//! frame of a lane names its stream. A stream may change its lane while none of its bytes are in
//! flight: from the first lane to its own lane, or to another lane after an idle time.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use super::StreamKey;
use super::decoder::Decoder;
use crate::pages::frame_of_pages;
use crate::{Pages, Priority, StreamId};

/// Receives the frames of [`super::Link::poll_transmit`]. A queue of bytes is the implementation
/// for a carrier with a single lane.
pub trait Outgoing {
    /// Whether streams have their own lanes.
    const LANES: bool;

    /// Queues the next frames for the first lane.
    fn push(&mut self, frame: Bytes);

    /// Queues the next frame of a stream of this class, for its own lane, or for the first lane as
    /// long as the stream has none.
    fn push_payload(&mut self, key: StreamKey, priority: Priority, frame: Bytes);

    /// As [`Self::push_payload`], with the header of a frame whose payload is `len` bytes of pages.
    /// The default copies the pages.
    fn push_pages(
        &mut self,
        key: StreamKey,
        priority: Priority,
        head: Bytes,
        (pages, len): (Rc<dyn Pages>, usize),
    ) {
        self.push_payload(key, priority, frame_of_pages(&head, &*pages, len));
    }

    /// Queues the FIN of a stream after all of its payload; its lane ends after the FIN.
    fn push_fin(&mut self, key: StreamKey, frame: Bytes);

    /// Aborts the lane of a stream that was reset. RESET is sent on the first lane.
    fn abort(&mut self, key: StreamKey);

    /// Whether payload of a stream must stay queued for now: `under_way` bytes of it are in flight
    /// on the first lane, and once there are none it is sent on its own lane.
    fn holds_back(&mut self, key: StreamKey, priority: Priority, under_way: u64) -> bool;

    /// Whether payload is accepted. Otherwise only frames for the first lane are made.
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
    /// The stream of the lane, known from its first frame on.
    pub(super) stream: Option<StreamId>,
    pub(super) waits: bool,
}

impl LaneInput {
    /// The decoder of a lane without received bytes.
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
