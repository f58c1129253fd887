//! The order of frames. OPENs come first, in the order of their ids, because resumption needs that
//! order. Signals (CREDIT, RESET, STOP) come next, then payload. Payload of a higher priority class
//! comes first; streams of a class are served round robin.

use std::collections::VecDeque;

use slab::Slab;

use super::StreamKey;
use super::queue::{Payload, Popped, Queue, Signal};
use crate::stream::Stream;
use crate::{Priority, ResetCode, StreamId};

/// Maximum number of queued replies to streams without state here, of each kind (refusals,
/// acknowledgements for forgotten streams). Replies are sent with the next batch: the queue fills
/// only if a peer opens streams and reads nothing. The reply to an OPEN has 20 bytes, so the queue
/// stays below 2 MiB.
pub(super) const ANSWERS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) opens: VecDeque<StreamKey>,
    pub(super) signals: Queue<Signal>,
    /// Refused streams, to be answered by RESET and STOP. No other state of them is kept: a burst
    /// of visitors costs no memory. They count as forgotten: if the reply is lost with its carrier,
    /// RESUME does not list them, from which the opener concludes that they are reset.
    pub(super) refusals: VecDeque<(StreamId, ResetCode)>,
    /// Ids of forgotten streams whose end is acknowledged again.
    pub(super) acks: VecDeque<StreamId>,
    ready: [Queue<Payload>; 3],
}

const fn class(priority: Priority) -> usize {
    match priority {
        Priority::Interactive => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

impl Schedule {
    /// Queues the stream if it has frames or a FIN to send.
    pub(super) fn make_ready(&mut self, key: StreamKey, stream: &mut Stream) {
        if stream.send.has_output() {
            self.ready[class(stream.priority)].push(key, stream);
        }
    }

    /// The most urgent class with a ready stream.
    pub(super) fn class(&self) -> Option<usize> {
        self.ready.iter().position(|waiting| !waiting.is_empty())
    }

    /// Removes and returns the next stream; the caller queues it again by `make_ready`.
    pub(super) fn next(&mut self) -> Option<Popped<Payload>> {
        self.ready.iter_mut().find_map(Queue::pop)
    }

    /// The number of ready streams.
    pub(super) fn waiting(&self) -> usize {
        self.ready.iter().map(Queue::len).sum()
    }

    /// Repeats the acknowledgement of a forgotten stream's end. Returns `false` if too many are
    /// queued.
    #[must_use]
    pub(super) fn acknowledge(&mut self, id: StreamId) -> bool {
        self.acks.push_back(id);
        self.acks.len() <= ANSWERS_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.opens.is_empty()
            && self.signals.is_empty()
            && self.refusals.is_empty()
            && self.acks.is_empty()
            && self.waiting() == 0
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.opens.shrink_to_fit();
        self.signals.shrink_to_fit();
        self.refusals.shrink_to_fit();
        self.acks.shrink_to_fit();
        self.ready.iter_mut().for_each(Queue::shrink_to_fit);
    }

    pub(super) fn clear(&mut self, streams: &mut Slab<Stream>) {
        self.opens.clear();
        self.signals.clear(streams);
        self.refusals.clear();
        self.acks.clear();
        self.ready.iter_mut().for_each(|waiting| waiting.clear(streams));
    }
}
