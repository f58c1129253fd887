//! Datagrams beside the stream: bounded queues, of which the oldest is dropped.

use std::collections::VecDeque;

use bytes::Bytes;

/// Datagrams that a queue holds at most.
const LONGEST: usize = 64;

/// A datagram out of band is longer than the path takes.
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
    /// Adds a payload; returns whether another one had to go.
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
