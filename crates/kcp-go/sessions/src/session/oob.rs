//! Datagrams beside the stream, in bounded queues that drop the oldest datagram.

use std::collections::VecDeque;

use bytes::Bytes;

/// The largest number of datagrams in a queue.
const LONGEST: usize = 64;

/// A datagram out of band is longer than the room in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a datagram out of band has {length} bytes of payload, and there is room for {room}")]
pub struct TooLong {
    /// The length of the payload in bytes.
    pub length: usize,
    /// The room in bytes.
    pub room: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Bytes>);

impl Queue {
    /// Adds a payload. Returns whether another payload was dropped.
    pub(super) fn push(&mut self, payload: Bytes) -> bool {
        let is_full = self.0.len() == LONGEST;
        if is_full {
            self.0.pop_front();
        }
        self.0.push_back(payload);
        is_full
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }

    pub(super) fn rest(&mut self) {
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
    }
}
