//! The bytes of a stream that its socket did not take at once. The credit that the link granted
//! bounds the queue and its memory: the buffers that the queue keeps alive are at most a few times
//! as large as its bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use net::pages::Pages;
use net::{gather, pool};
use tokio::io::ReadBuf;

use super::ByteEnd;

/// Slices below this size are copied out of their read buffer. A carrier that serves several
/// streams has buffers of 64 KiB, so a stored slice keeps at most four times its size alive.
/// Buffers of 512 KiB occur with a single active stream, and then most of the buffer consists of
/// slices of that stream. Copying 16 KiB takes about a microsecond; the write that follows takes
/// several.
const COPY_BELOW: usize = 16 << 10;

/// Copied slices are joined up to this size, so in a flood of one-byte frames each frame costs one
/// byte.
const JOIN_UP_TO: usize = 64 << 10;

/// The maximum number of pipes in a queue: a stalled stream leaves most pipes to others.
const PAGES_MOST: usize = 4;

#[derive(Debug)]
enum Chunk {
    Bytes(Bytes),
    Pages(Pages),
}

impl Chunk {
    /// The bytes in memory.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Pages(_) => &[],
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Pages(pages) => pages.len(),
        }
    }
}

/// The queue holds first the chunks, then the tail of joined copies.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    chunks: VecDeque<Chunk>,
    tail: BytesMut,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.tail.is_empty()
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        if data.len() < COPY_BELOW {
            if self.tail.len() + data.len() > JOIN_UP_TO {
                self.seal();
            }
            self.tail.extend_from_slice(&data);
        } else {
            self.seal();
            self.chunks.push_back(Chunk::Bytes(data));
        }
    }

    /// Appends pages. A socket or [`Self::take_pages`] takes them from the queue.
    pub(crate) fn push_pages(&mut self, pages: Pages) {
        self.seal();
        self.chunks.push_back(Chunk::Pages(pages));
    }

    /// Writes as many bytes as the end takes in one call, at most about `most`; `None`: the caller
    /// must poll the readiness again. The queue must not be empty.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        end: &ByteEnd,
        most: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        if matches!(self.chunks.front(), Some(Chunk::Pages(_))) {
            return Poll::Ready(self.write_pages(end, most));
        }
        let mut slices = [IoSlice::new(&[]); gather::MOST];
        let in_memory = self.chunks.iter().take_while(|chunk| matches!(chunk, Chunk::Bytes(_)));
        let tail = (!self.tail.is_empty() && !self.has_pages()).then_some(&self.tail[..]);
        let (count, total) = gather::gather(in_memory.map(Chunk::bytes).chain(tail), &mut slices);
        let written = if total <= most {
            ready!(end.poll_write(cx, &slices[..count], total))?
        } else {
            let first = slices.first().map(|first| &**first).unwrap_or_default();
            let part = &first[..first.len().min(most)];
            ready!(end.poll_write(cx, &[IoSlice::new(part)], part.len()))?
        };
        self.advance(written.unwrap_or(0));
        Poll::Ready(Ok(written))
    }

    /// The number of bytes in memory before the first pages.
    pub(crate) fn in_memory(&self) -> usize {
        let in_memory = self.chunks.iter().take_while(|chunk| matches!(chunk, Chunk::Bytes(_)));
        let tail = if self.has_pages() { 0 } else { self.tail.len() };
        in_memory.map(Chunk::len).sum::<usize>() + tail
    }

    /// Whether pages are at the front.
    pub(crate) fn begins_with_pages(&self) -> bool {
        matches!(self.chunks.front(), Some(Chunk::Pages(_)))
    }

    /// Takes at most `most` bytes of the pages at the front. `None`: they must be copied
    /// ([`Self::unfold`]).
    pub(crate) fn take_pages(&mut self, most: usize) -> Option<Pages> {
        let Some(Chunk::Pages(pages)) = self.chunks.front_mut() else { return None };
        if pages.len() > most {
            return pages.split_front(most);
        }
        let Some(Chunk::Pages(pages)) = self.chunks.pop_front() else { return None };
        // An idle stream holds no buffer.
        self.advance(0);
        Some(pages)
    }

    /// Whether no more pages may be queued.
    pub(crate) fn is_full_of_pages(&self) -> bool {
        let pages = |chunk: &&Chunk| matches!(chunk, Chunk::Pages(_));
        self.chunks.iter().filter(pages).count() >= PAGES_MOST
    }

    fn has_pages(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk, Chunk::Pages(_)))
    }

    /// Writes as many of the pages at the front as the socket takes in one call, at most `most`
    /// bytes.
    fn write_pages(&mut self, end: &ByteEnd, most: usize) -> io::Result<Option<usize>> {
        let Some(Chunk::Pages(pages)) = self.chunks.front_mut() else { return Ok(None) };
        let Some(written) = end.write_pages(pages, most)? else {
            self.unfold()?;
            return Ok(None);
        };
        if pages.is_empty() {
            self.chunks.pop_front();
            self.advance(0);
        }
        Ok((written > 0).then_some(written))
    }

    /// Copies the pages at the front into memory.
    ///
    /// # Errors
    /// The bytes are lost, so the stream must be reset.
    pub(crate) fn unfold(&mut self) -> io::Result<()> {
        if let Some(Chunk::Pages(_)) = self.chunks.front()
            && let Some(Chunk::Pages(pages)) = self.chunks.pop_front()
        {
            let mut bytes = BytesMut::new();
            pages.copy_out(&mut bytes)?;
            self.chunks.push_front(Chunk::Bytes(bytes.freeze()));
        }
        Ok(())
    }

    /// Moves bytes into `buf` and returns their number.
    pub(crate) fn take_into(&mut self, buf: &mut ReadBuf<'_>, most: usize) -> usize {
        let before = buf.remaining();
        let least = before.saturating_sub(most);
        while buf.remaining() > least {
            let part = match self.chunks.front() {
                Some(chunk) => chunk.bytes(),
                None if self.tail.is_empty() => break,
                None => &self.tail[..],
            };
            let size = part.len().min(buf.remaining() - least);
            buf.put_slice(&part[..size]);
            self.advance(size);
        }
        before - buf.remaining()
    }

    /// Moves `size` bytes, or all if there are fewer, to the end of `frame`.
    pub(crate) fn take_front(&mut self, size: usize, frame: &mut BytesMut) {
        let mut left = size;
        while left > 0 && !self.is_empty() {
            let part = self.chunks.front().map_or(&self.tail[..], Chunk::bytes);
            let length = part.len().min(left);
            frame.extend_from_slice(&part[..length]);
            self.advance(length);
            left -= length;
        }
    }

    /// Takes a piece from the front.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.seal();
        }
        let piece = self.chunks.pop_front();
        self.advance(0);
        match piece? {
            Chunk::Bytes(bytes) => Some(bytes),
            // Only a pipe without a socket uses this function, and it gets no pages.
            Chunk::Pages(_) => None,
        }
    }

    /// The bytes in memory, from the front.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.chunks.iter().flat_map(|chunk| chunk.bytes()).chain(self.tail.iter()).copied()
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.tail.len() + self.chunks.iter().map(Chunk::len).sum::<usize>()
    }

    /// Discards all bytes and returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        let bytes = self.len();
        for chunk in std::mem::take(self).chunks {
            if let Chunk::Pages(pages) = chunk {
                pages.discard();
            }
        }
        bytes
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(Chunk::Bytes(std::mem::take(&mut self.tail).freeze()));
        }
    }

    /// Removes bytes in memory from the front.
    fn advance(&mut self, mut written: usize) {
        while let Some(Chunk::Bytes(front)) = self.chunks.front_mut() {
            if front.len() > written {
                front.advance(written);
                return;
            }
            written -= front.len();
            if let Some(Chunk::Bytes(front)) = self.chunks.pop_front() {
                pool::recycle(front);
            }
        }
        if self.chunks.is_empty() {
            self.tail.advance(written.min(self.tail.len()));
        }
        if self.is_empty() {
            // An idle stream holds no buffer, not even an empty one.
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(queue: &Queue) -> Vec<u8> {
        let mut all: Vec<u8> = queue.chunks.iter().flat_map(|c| c.bytes().to_vec()).collect();
        all.extend_from_slice(&queue.tail);
        all
    }

    #[test]
    fn order_is_kept_between_copied_and_held_slices_at_every_cut() {
        let parts = [3, COPY_BELOW, 5, 7, COPY_BELOW + 1, 2];
        let all: Vec<u8> = (0..parts.iter().sum()).map(|i: usize| (i % 251) as u8).collect();
        for cut in (0..all.len()).step_by(997).chain([all.len()]) {
            let mut queue = Queue::default();
            let mut at = 0;
            for len in parts {
                queue.push(Bytes::copy_from_slice(&all[at..at + len]));
                at += len;
            }
            queue.advance(cut);
            assert_eq!(contents(&queue), &all[cut..]);
            assert_eq!(queue.is_empty(), cut == all.len());
        }
    }

    #[test]
    fn a_small_slice_does_not_pin_the_buffer_it_was_cut_from() {
        let large = Bytes::from(vec![1; 512 << 10]);
        let mut queue = Queue::default();
        queue.push(large.slice(10..20));
        assert!(large.is_unique());
        queue.push(large.slice(0..COPY_BELOW));
        assert!(!large.is_unique());
    }

    #[test]
    fn one_byte_frames_are_joined_and_an_emptied_queue_holds_no_memory() {
        let mut queue = Queue::default();
        for _ in 0..256 << 10 {
            queue.push(Bytes::from_static(b"x"));
        }
        assert!(queue.chunks.len() <= 4);
        queue.advance(256 << 10);
        assert_eq!((queue.chunks.capacity(), queue.tail.capacity()), (0, 0));
    }
}
