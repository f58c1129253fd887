//! The receiving half: segments arrive in any order and are read in the right order, as a stream or
//! as messages.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::number::Sn;

/// The smallest buffer for received bytes, so that segments share a buffer.
const CHUNK: usize = 8 << 10;

/// The limit in bytes of free buffers for early segments. It covers a typical gap in a bulk
/// transfer, 256 Ethernet packets.
const SPARE: usize = 384 << 10;

/// The number of slots of a ring that an idle end keeps.
const LEAST: usize = 8;

/// A segment in order that was not read yet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    length: usize,
    fragments: u8,
}

/// A segment that arrived before an earlier one.
#[derive(Debug)]
struct Early {
    payload: Vec<u8>,
    fragments: u8,
}

/// The segments that have arrived and were not read yet.
#[derive(Debug)]
pub struct Incoming {
    window: u16,
    is_stream: bool,
    /// The next segment of the stream (`rcv_nxt`).
    next: Sn,
    /// Slot `n` is for segment `next + n`. The first slot is empty
    /// unless the reader has left no room.
    early: VecDeque<Option<Early>>,
    /// The number of slots that are not empty.
    waiting: usize,
    /// Free buffers for early segments, and their bytes.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    /// Bytes of early segments.
    early_bytes: usize,
    /// Bytes of segments in order, which were not read yet.
    ready: BytesMut,
    pieces: VecDeque<Piece>,
    /// Pieces that end a message.
    messages: usize,
    /// Whether the peer must be informed that the window is open again or wider.
    tells_window: bool,
}

impl Incoming {
    /// No segment has arrived. `window` is the most segments that are held, and `is_stream` tells a
    /// stream from messages.
    #[must_use]
    pub fn new(window: u16, is_stream: bool) -> Self {
        Self {
            window,
            is_stream,
            next: Sn(0),
            early: VecDeque::new(),
            waiting: 0,
            spare: Vec::new(),
            spare_bytes: 0,
            early_bytes: 0,
            ready: BytesMut::new(),
            pieces: VecDeque::new(),
            messages: 0,
            tells_window: false,
        }
    }

    /// Whether [`read`](Self::read) returns something.
    pub fn is_readable(&self) -> bool {
        if self.is_stream { !self.ready.is_empty() } else { self.messages > 0 }
    }

    /// All segments before this number have arrived (`una`).
    pub const fn next(&self) -> Sn {
        self.next
    }

    /// The number of segments for which there is room. The peer learns it as the window.
    pub fn room(&self) -> u16 {
        let unread = u16::try_from(self.pieces.len()).unwrap_or(u16::MAX);
        self.window.saturating_sub(unread)
    }

    /// The window has at least `window` segments from now on, and the peer has to be informed.
    pub fn widen(&mut self, window: u16) {
        if window > self.window {
            self.window = window;
            self.tells_window = true;
        }
    }

    /// The result that [`place`](Self::place) would have.
    pub fn looks(&self, sn: Sn) -> Arrival {
        let ahead = sn.since(self.next);
        if ahead >= i32::from(self.window) {
            return Arrival::Beyond;
        }
        let Ok(slot) = usize::try_from(ahead) else { return Arrival::Again };
        let is_there = self.early.get(slot).is_some_and(Option::is_some);
        if is_there { Arrival::Again } else { Arrival::New }
    }

    /// Keeps a segment until it is read, and acknowledges nothing.
    pub fn place(&mut self, sn: Sn, fragments: u8, payload: &[u8]) -> Arrival {
        let ahead = sn.since(self.next);
        if ahead >= i32::from(self.window) {
            return Arrival::Beyond;
        }
        let Ok(slot) = usize::try_from(ahead) else { return Arrival::Again };
        if slot == 0 && self.room() > 0 {
            self.take(payload, fragments);
            if let Some(Some(early)) = self.early.pop_front() {
                self.early_bytes -= early.payload.capacity();
                self.waiting = self.waiting.saturating_sub(1);
            }
            self.take_early();
            return Arrival::New;
        }
        if self.early.len() <= slot {
            self.early.resize_with(slot + 1, || None);
        }
        match self.early.get_mut(slot) {
            Some(empty @ None) => {
                self.waiting += 1;
                let mut buffer = self.spare.pop().unwrap_or_default();
                self.spare_bytes -= buffer.capacity();
                buffer.extend_from_slice(payload);
                self.early_bytes += buffer.capacity();
                *empty = Some(Early { payload: buffer, fragments });
                Arrival::New
            }
            _ => Arrival::Again,
        }
    }

    /// Appends the next segment of the stream to the readable bytes.
    fn take(&mut self, payload: &[u8], fragments: u8) {
        if self.ready.capacity() - self.ready.len() < payload.len() {
            self.ready.reserve(CHUNK.max(payload.len()));
        }
        self.next = self.next.plus(1);
        let continues = self.pieces.back().is_some_and(|piece| piece.fragments > 0);
        // A segment without payload has no meaning in a stream, and is no message.
        if payload.is_empty() && (self.is_stream || !continues) {
            return;
        }
        self.ready.extend_from_slice(payload);
        self.pieces.push_back(Piece { length: payload.len(), fragments });
        self.messages += usize::from(fragments == 0);
    }

    /// Appends early segments whose predecessors have arrived.
    fn take_early(&mut self) {
        while self.room() > 0 {
            let Some(Some(early)) = self.early.front_mut().map(Option::take) else { break };
            self.early.pop_front();
            self.waiting = self.waiting.saturating_sub(1);
            self.take(&early.payload, early.fragments);
            let mut buffer = early.payload;
            self.early_bytes -= buffer.capacity();
            if self.spare_bytes + buffer.capacity() <= SPARE {
                buffer.clear();
                self.spare_bytes += buffer.capacity();
                self.spare.push(buffer);
            }
        }
        if self.waiting == 0 {
            self.early.clear();
        }
    }

    /// The unread bytes in order if segment `sn` is the next segment, else the bytes behind a gap.
    pub fn unread(&self, sn: Sn) -> usize {
        if sn == self.next { self.ready.len() } else { self.early_bytes }
    }

    /// The bytes of all buffers: of unread bytes, of early segments, and of free buffers.
    pub fn held(&self) -> usize {
        self.ready.capacity() + self.early_bytes + self.spare_bytes
    }

    /// Whether all bytes that arrived in order were read.
    pub fn is_read(&self) -> bool {
        self.ready.is_empty() && self.pieces.is_empty()
    }

    /// Whether all bytes that arrived were read.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.waiting == 0
    }

    /// Releases memory if all bytes that arrived were read.
    pub fn rest(&mut self) {
        if self.is_idle() {
            self.ready = BytesMut::new();
            self.early.shrink_to(LEAST);
            self.spare = Vec::new();
            self.spare_bytes = 0;
            self.pieces.shrink_to(LEAST);
        }
    }

    /// The next bytes of the stream, at most `most`, or the next message of any length. `None` if
    /// there is none.
    pub fn read(&mut self, most: usize) -> Option<Bytes> {
        let was_closed = self.room() == 0;
        let length = if self.is_stream { self.of_stream(most) } else { self.of_message() }?;
        let bytes = self.ready.split_to(length).freeze();
        if self.early.front().is_some_and(Option::is_some) {
            self.take_early();
        }
        self.tells_window |= was_closed && self.room() > 0;
        Some(bytes)
    }

    fn of_stream(&mut self, most: usize) -> Option<usize> {
        let length = self.ready.len().min(most);
        let mut left = length;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.length > left {
                piece.length -= left;
                break;
            }
            left -= piece.length;
            self.pieces.pop_front();
        }
        (length > 0).then_some(length)
    }

    fn of_message(&mut self) -> Option<usize> {
        self.messages = self.messages.checked_sub(1)?;
        let mut length = 0;
        while let Some(piece) = self.pieces.pop_front() {
            length += piece.length;
            if piece.fragments == 0 {
                break;
            }
        }
        Some(length)
    }

    /// Whether the peer has to be informed that there is room again. Clears the flag.
    pub fn tells_window(&mut self) -> bool {
        std::mem::take(&mut self.tells_window)
    }
}

/// What only sessions ask whose packets have a window in each head.
impl Incoming {
    /// The most segments that are held.
    pub const fn window(&self) -> u16 {
        self.window
    }

    /// Whether a segment waits for an earlier one.
    pub fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether the peer will be informed that there is room again.
    pub const fn opens_window(&self) -> bool {
        self.tells_window
    }

    /// The peer has asked for the window.
    pub const fn tell_window(&mut self) {
        self.tells_window = true;
    }
}

/// The outcome of a PUSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The segment is kept.
    New,
    /// The segment is a duplicate.
    Again,
    /// There is no room for the segment.
    Beyond,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_early_segments_are_kept_by_their_bytes() {
        const LENGTH: usize = 16_000;
        let mut incoming = Incoming::new(200, true);
        let segment = vec![7; LENGTH];
        for sn in 1..100 {
            assert_eq!(incoming.place(Sn(sn), 0, &segment), Arrival::New);
        }
        assert!(incoming.held() >= 99 * LENGTH, "{}", incoming.held());
        assert_eq!(incoming.place(Sn(0), 0, &segment), Arrival::New);
        assert_eq!((incoming.early_bytes, incoming.waiting), (0, 0));
        assert!(incoming.spare_bytes > SPARE / 2 && incoming.spare_bytes <= SPARE);
        let read = std::iter::from_fn(|| incoming.read(usize::MAX)).map(|read| read.len());
        assert_eq!(read.sum::<usize>(), 100 * LENGTH);
        incoming.rest();
        assert_eq!(incoming.held(), 0);
    }
}
