//! Datagrams of the user. They are unordered, are sent once, never wait for bytes of the stream,
//! and are protected by parity as segments are.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::Session;

/// The limit of bytes of waiting datagrams in each direction.
const QUEUE: usize = 256 << 10;

/// The cost of a datagram beside its bytes, so that empty datagrams are bounded as well.
const EACH: usize = 32;

/// The size in bytes of the buffers that received datagrams share.
const CHUNK: usize = 8 << 10;

/// A datagram that the session does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// The datagram is longer than [`Session::datagram_limit`].
    #[error("the datagram is longer than a packet")]
    TooLong(Bytes),
    /// The datagram is longer than [`Session::datagram_room`]. There is more room once datagrams
    /// were sent.
    #[error("too many datagrams wait to be sent")]
    Full(Bytes),
}

/// A queue of datagrams.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// The buffer that received datagrams share.
    shared: BytesMut,
}

impl Datagrams {
    fn room(&self) -> usize {
        QUEUE.saturating_sub(self.bytes + EACH)
    }

    pub(super) fn front(&self) -> Option<&Bytes> {
        self.queue.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, datagram: Bytes) {
        self.bytes += datagram.len() + EACH;
        self.queue.push_back(datagram);
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let datagram = self.queue.pop_front()?;
        self.bytes -= datagram.len() + EACH;
        Some(datagram)
    }

    /// Bytes of datagrams that wait.
    pub(super) const fn held(&self) -> usize {
        self.bytes
    }

    /// A datagram has arrived. The queue may hold `most` bytes. Returns the number of older
    /// datagrams that were dropped for it, and whether it was dropped itself.
    pub(super) fn arrived(&mut self, datagram: &[u8], most: usize) -> u64 {
        let mut dropped = 0;
        let room = |own: &Self| most.min(QUEUE).saturating_sub(own.bytes + EACH);
        while room(self) < datagram.len() {
            if self.pop().is_none() {
                return dropped + 1;
            }
            dropped += 1;
        }
        if self.shared.capacity() < datagram.len() {
            self.shared = BytesMut::with_capacity(CHUNK.max(datagram.len()));
        }
        self.shared.extend_from_slice(datagram);
        let datagram = self.shared.split().freeze();
        self.push(datagram);
        dropped
    }

    /// Gives memory back.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

impl Session {
    /// The most bytes of a datagram.
    #[must_use]
    pub fn datagram_limit(&self) -> usize {
        self.config.body(self.keys.tag())
    }

    /// The size of a datagram for which the queue has room now. 256 KiB may wait, and each datagram
    /// counts as 32 bytes more than its length.
    #[must_use]
    pub fn datagram_room(&self) -> usize {
        self.datagrams_out.room()
    }

    /// Sends a datagram. It is not repeated, and is sent before bytes of the stream that were not
    /// sent yet. This end does not drop an accepted datagram.
    ///
    /// # Errors
    ///
    /// Returns a datagram that is too long, or for which the queue has no room now.
    pub fn send_datagram(&mut self, datagram: Bytes) -> Result<(), Unsent> {
        if datagram.len() > self.datagram_limit() {
            return Err(Unsent::TooLong(datagram));
        }
        if datagram.len() > self.datagram_room() || self.datagrams_out.bytes + EACH > QUEUE {
            return Err(Unsent::Full(datagram));
        }
        self.datagrams_out.push(datagram);
        Ok(())
    }

    /// The next datagram that has arrived. When more than 256 KiB wait, the oldest are dropped, and
    /// counted.
    pub fn read_datagram(&mut self) -> Option<Bytes> {
        self.datagrams_in.pop()
    }

    pub(super) fn take_datagram(&mut self, datagram: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.datagrams_dropped +=
            self.datagrams_in.arrived(datagram, self.config.unread / 8);
    }
}
