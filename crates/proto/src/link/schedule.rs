//! The order of frames. OPENs come first, in the order of their ids, because resumption needs that
//! order. Signals (CREDIT, RESET, STOP) come next, then payload. Payload of a higher priority class
//! comes first, and streams of a class take turns.

use std::collections::VecDeque;

use slab::Slab;

use super::StreamKey;
use super::queue::{Payload, Popped, Queue, Signal};
use crate::stream::Stream;
use crate::{Priority, ResetCode, StreamId};

/// Answers to streams that have no state here (refusals, acknowledgements for forgotten ones) that
/// may wait, of each kind. They leave with the next batch: so many wait only for a peer that opens
/// streams and reads nothing. An OPEN is answered by 20 bytes, so what waits is under 2 MiB.
pub(super) const ANSWERS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) opens: VecDeque<StreamKey>,
    pub(super) signals: Queue<Signal>,
    /// Streams that were refused, answered by RESET and STOP, and of which nothing else is kept:
    /// a burst of visitors costs no memory. They count as forgotten: should the answer die with its
    /// carrier, RESUME does not list them, which tells the opener that they are reset.
    pub(super) refusals: VecDeque<(StreamId, ResetCode)>,
    /// Ids of forgotten streams whose end is acknowledged once more.
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
    /// The stream has frames or a FIN to send.
    pub(super) fn make_ready(&mut self, key: StreamKey, stream: &mut Stream) {
        if stream.send.has_output() {
            self.ready[class(stream.priority)].push(key, stream);
        }
    }

    /// The most urgent class in which a stream waits.
    pub(super) fn class(&self) -> Option<usize> {
        self.ready.iter().position(|waiting| !waiting.is_empty())
    }

    /// The stream whose turn it is; it is the caller's to put it back by `make_ready`.
    pub(super) fn next(&mut self) -> Option<Popped<Payload>> {
        self.ready.iter_mut().find_map(Queue::pop)
    }

    /// Streams that wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.ready.iter().map(Queue::len).sum()
    }

    /// Repeats the acknowledgement of a forgotten stream's end. False: too many wait.
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
