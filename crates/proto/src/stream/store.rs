//! The memory of a link for the frames that its streams retain. A stream that is acknowledged as
//! fast as it sends allocates nothing.
//!
//! Free memory is held for reuse, up to a limit, and charged to the budget. An idle link releases
//! it.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::frame::Frame;
use crate::budget::{Charge, spare};
use crate::offset::length;
use crate::{Budget, HEAD_ROOM};

/// Payloads below this length are copied out of the read buffer, which is reused at once: a
/// retained small frame must not pin a large buffer.
pub(super) const COPY_BELOW: usize = 4 << 10;

/// Size of a chunk, in bytes. A frame that is retained for long pins one chunk, which is no larger
/// than the largest small frame.
const CHUNK: usize = COPY_BELOW + HEAD_ROOM;

/// Maximum memory held for reuse, in bytes: the small frames of a sweep at 300 Mbit/s.
const HELD_MAX: u64 = 2 << 20;

/// The fraction of the spare budget that one link may hold for reuse.
const HELD_SHARE: u64 = 64;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Store {
    /// The chunk into which small frames are packed.
    chunk: BytesMut,
    chunks: Vec<BytesMut>,
    queues: Vec<VecDeque<Frame>>,
    /// Bytes of `chunks` and `queues`.
    held: u64,
    limit: u64,
    charge: Charge,
    /// Large frames that are no longer needed.
    spent: Vec<Bytes>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            chunk: BytesMut::new(),
            chunks: Vec::new(),
            queues: Vec::new(),
            held: 0,
            limit: HELD_MAX,
            charge: Charge::NONE,
            spent: Vec::new(),
        }
    }

    /// Copies a small `frame`, or a header.
    pub(super) fn keep(&mut self, frame: &[u8]) -> Bytes {
        let left = self.chunk.capacity() - self.chunk.len();
        if left < frame.len() && !self.chunk.try_reclaim(CHUNK) {
            self.chunk = self.take_chunk();
        }
        self.chunk.extend_from_slice(frame);
        self.chunk.split().freeze()
    }

    fn take_chunk(&mut self) -> BytesMut {
        let Some(chunk) = self.chunks.pop() else { return BytesMut::with_capacity(CHUNK) };
        self.held -= length(CHUNK);
        chunk
    }

    /// Releases a frame that is no longer retained.
    pub(super) fn release(&mut self, frame: Bytes) {
        if frame.len() >= HEAD_ROOM + COPY_BELOW {
            return self.spent.push(frame);
        }
        if self.held + length(CHUNK) > self.limit {
            return;
        }
        // Releasing the last part of a chunk reclaims the whole chunk.
        if let Ok(mut chunk) = frame.try_into_mut() {
            chunk.clear();
            if chunk.try_reclaim(CHUNK) {
                self.held += length(CHUNK);
                self.chunks.push(chunk);
            }
        }
    }

    pub(super) fn take_queue(&mut self) -> VecDeque<Frame> {
        let Some(queue) = self.queues.pop() else { return VecDeque::new() };
        self.held -= queue_memory(&queue);
        queue
    }

    /// Keeps an empty queue for reuse.
    pub(super) fn give_queue(&mut self, queue: VecDeque<Frame>) {
        let held = self.held + queue_memory(&queue);
        if held <= self.limit {
            self.held = held;
            self.queues.push(queue);
        }
    }

    pub(crate) const fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    /// See [`crate::Link::poll_spent`].
    pub(crate) fn poll_spent(&mut self) -> Option<Bytes> {
        self.spent.pop()
    }

    /// Sets the limit of held memory from the budget. Must be called before frames are released.
    pub(crate) fn limit_by(&mut self, budget: &dyn Budget) {
        self.limit = HELD_MAX.min(spare(budget) / HELD_SHARE);
        if self.held > self.limit {
            self.settle(budget);
        }
    }

    /// Charges the held memory to the budget. Must be called after each change.
    pub(crate) fn account(&mut self, budget: &dyn Budget) {
        self.charge.set(self.held, budget);
    }

    /// Frees all memory that is held for reuse.
    pub(crate) fn settle(&mut self, budget: &dyn Budget) {
        // Retained frames in the chunk keep its memory.
        self.chunk = BytesMut::new();
        self.chunks = Vec::new();
        self.queues = Vec::new();
        self.held = 0;
        self.charge.set(0, budget);
    }
}

fn queue_memory(queue: &VecDeque<Frame>) -> u64 {
    length(queue.capacity() * size_of::<Frame>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unlimited;

    fn keep(store: &mut Store, n: usize) -> Bytes {
        store.keep(&vec![u8::try_from(n % 251).unwrap(); n])
    }

    #[test]
    fn frames_share_a_chunk_and_keep_their_bytes() {
        let mut store = Store::new();
        let sizes = [1, 150, COPY_BELOW, 150, 3000, 150];
        let kept: Vec<Bytes> = sizes.iter().map(|&n| keep(&mut store, n)).collect();
        for (bytes, n) in kept.iter().zip(sizes) {
            assert_eq!(&bytes[..], &vec![u8::try_from(n % 251).unwrap(); n][..]);
        }
        assert_eq!(kept[0].as_ptr().wrapping_add(1), kept[1].as_ptr(), "one behind the other");
        drop(kept);
        let first = keep(&mut store, COPY_BELOW).as_ptr();
        assert_eq!(keep(&mut store, COPY_BELOW).as_ptr(), first, "the chunk is used again");
    }

    #[test]
    fn a_chunk_whose_last_frame_is_released_is_used_again() {
        let mut store = Store::new();
        let [first, second] = [1, 2000].map(|n| keep(&mut store, n));
        let other = keep(&mut store, COPY_BELOW);
        let start = first.as_ptr();
        store.release(second);
        let third = keep(&mut store, COPY_BELOW);
        assert_ne!(third.as_ptr(), start, "its first frame is kept");
        store.release(first);
        assert_eq!(store.held, length(CHUNK));
        assert_eq!(keep(&mut store, COPY_BELOW).as_ptr(), start);
        assert_eq!((store.held, other.len()), (0, COPY_BELOW));
    }

    #[test]
    fn what_is_held_has_a_limit_and_is_given_back() {
        let mut store = Store::new();
        let kept: Vec<Bytes> = (0..1000).map(|_| keep(&mut store, COPY_BELOW)).collect();
        kept.into_iter().for_each(|frame| store.release(frame));
        assert!((HELD_MAX - length(CHUNK)..=HELD_MAX).contains(&store.held), "{}", store.held);
        store.give_queue(VecDeque::with_capacity(1 << 20));
        assert!(store.queues.is_empty() && store.held <= HELD_MAX);
        store.settle(&Unlimited);
        assert_eq!((store.held, store.chunks.capacity(), store.chunk.capacity()), (0, 0, 0));
    }
}
