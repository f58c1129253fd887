//! Datagrams of the user. They are unordered, are not retransmitted, never wait for bytes of the
//! stream, and are protected by parity like segments.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::Session;

/// Maximum bytes of queued datagrams in each direction.
const QUEUE: usize = 256 << 10;

/// The cost of a datagram in addition to its bytes, so that empty datagrams are bounded as well.
const EACH: usize = 32;

/// The size in bytes of the buffers that received datagrams share.
const CHUNK: usize = 8 << 10;

/// A datagram that the session does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// The datagram is longer than [`Session::datagram_limit`].
    #[error("the datagram is longer than a packet")]
    TooLong(Bytes),
    /// The datagram is longer than [`Session::datagram_room`]. There is more room after datagrams
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

    /// Bytes of queued datagrams.
    pub(super) const fn held(&self) -> usize {
        self.bytes
    }

    /// Queues an arrived datagram. The queue may hold `most` bytes. Returns the number of dropped
    /// datagrams, which are older ones or this one.
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

    /// Releases memory.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

impl Session {
    /// Maximum length of a datagram, in bytes.
    #[must_use]
    pub fn datagram_limit(&self) -> usize {
        self.config.body(self.keys.tag())
    }

    /// The size of a datagram for which the queue has room now. The queue holds 256 KiB, and each
    /// datagram counts 32 bytes in addition to its length.
    #[must_use]
    pub fn datagram_room(&self) -> usize {
        self.datagrams_out.room()
    }

    /// Sends a datagram. It is not retransmitted, and is sent before unsent bytes of the stream.
    /// This end does not drop an accepted datagram.
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

    /// The next datagram that has arrived. When more than 256 KiB are queued, the oldest datagrams
    /// are dropped and counted.
    pub fn read_datagram(&mut self) -> Option<Bytes> {
        self.datagrams_in.pop()
    }

    pub(super) fn take_datagram(&mut self, datagram: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.datagrams_dropped +=
            self.datagrams_in.arrived(datagram, self.config.unread / 8);
    }
}
