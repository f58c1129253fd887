//! The frames of the sending direction, in order. Each frame is kept until the peer has consumed
//! it.
//!
//! One queue is both the send queue and the replay buffer: frames in `queue[..next]` were sent and
//! are retained, frames in `queue[next..]` are unsent. A resume only moves `next`. The bytes of a
//! frame include its header, so the frame is retransmitted unchanged. A frame is charged for the
//! memory that it pins, not for its payload.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::frame::Frame;
use super::store::{COPY_BELOW, Store};
use crate::frame::{Kind, write_data_head};
use crate::offset::{Offset, memory};
use crate::{HEAD_ROOM, Pages, StreamId};

/// Maximum number of retained frames: the overhead of a frame is about sixty bytes, so a window of
/// tiny writes could take sixty times its size in memory. While a stream is blocked by this limit,
/// bytes of its source accumulate into larger reads. With frames of 1,400 bytes the limit allows
/// 450 Mbit/s at 100 ms.
const FRAMES_MAX: usize = 4096;

/// A frame to send.
#[derive(Debug)]
pub(crate) struct Popped {
    /// Header and payload; only the header if the payload is pages.
    pub(crate) bytes: Bytes,
    /// The pages and their length in bytes.
    pub(crate) pages: Option<(Rc<dyn Pages>, usize)>,
}

/// Writes the header for the rest of a frame; `head` contains the old header.
fn write_again(head: &mut [u8], from: Offset, payload: usize) {
    let id = StreamId::new(u32::from_be_bytes([head[4], head[5], head[6], head[7]]));
    let kind = if id == StreamId::CONTROL { Kind::Control } else { Kind::Data };
    write_data_head(head, (kind, 0), id, from.low(), payload);
}

#[derive(Debug)]
pub(super) struct Frames {
    queue: VecDeque<Frame>,
    next: usize,
    /// Payload bytes of `queue[next..]`.
    unsent: u64,
    /// Memory of all frames, in bytes.
    memory: u64,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), next: 0, unsent: 0, memory: 0 }
    }

    /// Whether the maximum number of frames is retained.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= FRAMES_MAX
    }

    pub(super) fn all_sent(&self) -> bool {
        self.next == self.queue.len()
    }

    /// Payload bytes that wait to be sent.
    pub(super) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Memory that the frames pin, in bytes.
    pub(super) const fn memory(&self) -> u64 {
        self.memory
    }

    /// The first payload byte that was not sent.
    pub(super) fn first_unsent(&self) -> Option<Offset> {
        self.queue.get(self.next).map(|frame| frame.start)
    }

    /// Queues a frame whose header is already written. `buf` is empty afterwards.
    pub(super) fn push(&mut self, start: Offset, buf: &mut BytesMut, store: &mut Store) {
        let (bytes, slack) = if buf.len() < HEAD_ROOM + COPY_BELOW {
            let bytes = store.keep(buf);
            buf.clear();
            (bytes, 0)
        } else {
            let bytes = buf.split().freeze();
            self.take_over_slack(&bytes);
            (bytes, u32::try_from(buf.capacity()).unwrap_or(u32::MAX))
        };
        if self.queue.capacity() == 0 {
            self.queue = store.take_queue();
        }
        self.keep(Frame { bytes, pages: None, start, slack });
    }

    /// Queues a payload of `len` bytes of pages with its header.
    pub(super) fn push_pages(
        &mut self,
        start: Offset,
        head: &[u8],
        (pages, len): (Rc<dyn Pages>, u32),
        store: &mut Store,
    ) {
        let bytes = store.keep(head);
        if self.queue.capacity() == 0 {
            self.queue = store.take_queue();
        }
        self.keep(Frame { bytes, pages: Some(pages), start, slack: len });
    }

    fn keep(&mut self, frame: Frame) {
        self.unsent += frame.payload();
        self.memory += frame.memory();
        self.queue.push_back(frame);
    }

    /// `next` may use the capacity after the last frame: then the capacity is charged to `next`.
    fn take_over_slack(&mut self, next: &Bytes) {
        if let Some(last) = self.queue.back_mut()
            && last.pages.is_none()
            && last.bytes.as_ptr_range().end == next.as_ptr()
        {
            self.memory -= u64::from(std::mem::take(&mut last.slack));
        }
    }

    /// The next frame to send; it stays retained.
    pub(super) fn pop(&mut self) -> Option<Popped> {
        let frame = self.queue.get(self.next)?;
        self.next += 1;
        self.unsent -= frame.payload();
        let pages = frame.pages.as_ref().map(|pages| (Rc::clone(pages), frame.slack as usize));
        Some(Popped { bytes: frame.bytes.clone(), pages })
    }

    /// Releases sent frames that end at or before `offset`.
    pub(super) fn release_before(&mut self, offset: Offset, store: &mut Store) {
        while self.next > 0
            && let Some(frame) = self.queue.pop_front_if(|frame| frame.end() <= offset)
        {
            self.memory -= frame.memory();
            store.release(frame.bytes);
            self.next -= 1;
        }
        // An idle stream keeps no memory. The link keeps the queue for the next stream that sends.
        if self.queue.is_empty() && self.queue.capacity() > 0 {
            store.give_queue(std::mem::take(&mut self.queue));
        }
    }

    /// Releases everything before `from`, which the peer has, and marks the rest as unsent.
    pub(super) fn rewind(&mut self, from: Offset, store: &mut Store) {
        self.next = self.queue.len();
        self.release_before(from, store);
        self.next = 0;
        if let Some(frame) = self.queue.front_mut() {
            let known = memory(from.since(frame.start));
            if known > 0 && frame.pages.is_some() {
                let mut head = BytesMut::from(&frame.bytes[..]);
                let payload = (frame.slack as usize).saturating_sub(known);
                write_again(&mut head, from, payload);
                frame.bytes = head.freeze();
                frame.slack = u32::try_from(payload).unwrap_or(u32::MAX);
                frame.start = from;
            } else if known > 0 {
                // The peer has the front part: the rest gets a new header.
                let mut rest = BytesMut::with_capacity(frame.bytes.len() - known);
                rest.extend_from_slice(&frame.bytes[..HEAD_ROOM]);
                rest.extend_from_slice(&frame.bytes[HEAD_ROOM + known..]);
                let payload = rest.len() - HEAD_ROOM;
                write_again(&mut rest, from, payload);
                *frame = Frame { bytes: rest.freeze(), pages: None, start: from, slack: 0 };
            }
        }
        self.unsent = self.queue.iter().map(Frame::payload).sum();
        self.memory = self.queue.iter().map(Frame::memory).sum();
    }
}
