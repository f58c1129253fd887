//! The outgoing half of a WebSocket: bytes in, frames out. It is a plain value without I/O.
//!
//! A server sends frames as they are, with a head before each message, and copies nothing. A client
//! must mask. Its bytes are shared with the copies that are kept for replay, so they are masked
//! while they are copied into a buffer of the pool.

use std::collections::VecDeque;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use net::pool;
use transport::{Producer, Side};

use crate::frame::{CONTROL_MAX, Code, Head, Opcode};
use crate::mask::Mask;

/// The largest payload of a message. A reverse proxy passes a message of this size on without much
/// memory. With its head a message has 64 KiB, so that several messages fill a buffer of the pool.
pub(crate) const MESSAGE: usize = (64 << 10) - 8;

/// The size of a masked head for a message of at most [`MESSAGE`] bytes: two bytes, 16 bits of
/// length, the key.
const MASKED_HEAD: usize = 8;

/// The size of the buffer from which heads are cut. The buffer is used again when all its heads
/// have been sent.
const HEADS: usize = 512;

/// The number of random bytes fetched at a time.
const KEYS: usize = 128;

/// The masking keys of a client. Section 5.3 asks for a strong source of randomness.
struct Keys {
    bytes: [u8; KEYS],
    used: usize,
}

/// The system gave no random bytes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system has no random bytes for masking")]
pub(crate) struct NoRandom;

impl Keys {
    fn next(&mut self) -> Result<[u8; 4], NoRandom> {
        loop {
            if let Some((key, _)) = self.bytes[self.used..].split_first_chunk() {
                self.used += key.len();
                return Ok(*key);
            }
            aws_lc_rs::rand::fill(&mut self.bytes).map_err(|_| NoRandom)?;
            self.used = 0;
        }
    }
}

/// The outgoing half of a WebSocket.
pub(crate) struct Send {
    keys: Option<Keys>,
    /// Whole frames; a part of the first frame may have been sent.
    queue: VecDeque<Bytes>,
    heads: BytesMut,
    /// The rest of the buffer of masked bytes whose front is in `queue`, and the capacity of the
    /// whole buffer.
    masked: (BytesMut, usize),
}

impl Send {
    pub(crate) fn new(side: Side) -> Self {
        let keys = match side {
            Side::Client => Some(Keys { bytes: [0; KEYS], used: KEYS }),
            Side::Server => None,
        };
        Self { keys, queue: VecDeque::new(), heads: BytesMut::new(), masked: (BytesMut::new(), 0) }
    }

    /// The frames to write.
    pub(crate) const fn queue(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.queue
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the buffer to the pool after all frames were written.
    pub(crate) fn written(&mut self) {
        let (buffer, size) = std::mem::take(&mut self.masked);
        if size > 0 {
            pool::give(buffer);
        }
    }

    /// The capacity of all buffers held now, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.heads.capacity() + self.masked.1
    }

    /// Packs at most `limit` bytes from the front of `frames` into messages; returns the number of
    /// bytes. All earlier frames must have been written before the call.
    pub(crate) fn pack(
        &mut self,
        frames: &mut VecDeque<Bytes>,
        limit: usize,
    ) -> Result<usize, NoRandom> {
        let wanted = limit.min(frames.iter().map(Bytes::len).sum());
        let mut packed = 0;
        if self.keys.is_some() {
            let heads = wanted.div_ceil(MESSAGE) * MASKED_HEAD;
            let mut out = pool::take(wanted + heads);
            while packed < wanted {
                let size = MESSAGE.min(wanted - packed);
                self.mask(frames, size, &mut out)?;
                packed += size;
            }
            let size = out.capacity();
            self.queue.push_back(out.split().freeze());
            self.masked = (out, size);
        } else {
            while packed < wanted {
                let size = MESSAGE.min(wanted - packed);
                self.head(Opcode::Binary, size);
                take(frames, size, |part| self.queue.push_back(part));
                packed += size;
            }
        }
        drop_empty(frames);
        Ok(packed)
    }

    /// Queues `size` bytes from the front of `frames`, or fewer, as the rest of a server's message
    /// whose head was queued before. Returns their number.
    pub(crate) fn go_on(&mut self, frames: &mut VecDeque<Bytes>, size: usize) -> usize {
        let mut taken = 0;
        take(frames, size, |part| {
            taken += part.len();
            self.queue.push_back(part);
        });
        taken
    }

    /// A client's messages of at most `limit` bytes from the front of `frames`, for a lane below
    /// that masks while it copies. `None` on a server, which masks nothing. All earlier frames must
    /// have been written before the call.
    pub(crate) fn masked<'a>(
        &'a mut self,
        frames: &'a mut VecDeque<Bytes>,
        limit: usize,
    ) -> Option<Masked<'a>> {
        let keys = self.keys.as_mut()?;
        let left = limit.min(frames.iter().map(Bytes::len).sum());
        Some(Masked { keys, frames, left, message: 0, mask: Mask::new([0; 4]), failed: None })
    }

    /// Queues a control frame.
    pub(crate) fn control(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), NoRandom> {
        let payload = &payload[..payload.len().min(CONTROL_MAX)];
        let mask = self.keys.as_mut().map(Keys::next).transpose()?;
        let head = Head { fin: true, opcode, length: payload.len() as u64, mask };
        let (bytes, size) = head.encode();
        let mut frame = BytesMut::with_capacity(size + payload.len());
        frame.extend_from_slice(&bytes[..size]);
        match mask {
            Some(key) => Mask::new(key).append(payload, &mut frame),
            None => frame.extend_from_slice(payload),
        }
        self.queue.push_back(frame.freeze());
        Ok(())
    }

    /// Queues a Close.
    pub(crate) fn close(&mut self, code: Code, reason: &str) -> Result<(), NoRandom> {
        let mut body = code.number().to_be_bytes().to_vec();
        body.extend_from_slice(reason.as_bytes());
        self.control(Opcode::Close, &body)
    }

    /// Appends one masked message of the next `size` bytes to `out`.
    fn mask(
        &mut self,
        frames: &mut VecDeque<Bytes>,
        size: usize,
        out: &mut BytesMut,
    ) -> Result<(), NoRandom> {
        let Some(keys) = &mut self.keys else { return Ok(()) };
        let key = keys.next()?;
        let head = Head { fin: true, opcode: Opcode::Binary, length: size as u64, mask: Some(key) };
        let (bytes, length) = head.encode();
        out.extend_from_slice(&bytes[..length]);
        let mut mask = Mask::new(key);
        take(frames, size, |part| mask.append(&part, out));
        Ok(())
    }

    /// Queues the head of a server's message of `size` bytes.
    pub(crate) fn head(&mut self, opcode: Opcode, size: usize) {
        let head = Head { fin: true, opcode, length: size as u64, mask: None };
        let (bytes, length) = head.encode();
        // The buffer is free only while no head waits, and it has to last for the heads of a batch.
        let least = if self.queue.is_empty() { HEADS / 2 } else { length };
        let is_free = self.heads.capacity() < least && self.heads.try_reclaim(HEADS);
        if !is_free && self.heads.capacity() < length {
            self.heads = BytesMut::with_capacity(HEADS);
        }
        self.heads.extend_from_slice(&bytes[..length]);
        self.queue.push_back(self.heads.split().freeze());
    }
}

/// Messages that are masked while a lane takes them.
pub(crate) struct Masked<'a> {
    keys: &'a mut Keys,
    frames: &'a mut VecDeque<Bytes>,
    /// Bytes of payload to take.
    left: usize,
    /// Bytes of payload left of the message that was begun, and its mask.
    message: usize,
    mask: Mask,
    failed: Option<NoRandom>,
}

impl Masked<'_> {
    /// Whether all messages could be masked.
    pub(crate) fn outcome(&self) -> Result<(), NoRandom> {
        self.failed.map_or(Ok(()), Err)
    }

    /// The number of bytes of payload that are left.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// Writes the head of the next message to `room`; returns its length. 0 if there is no further
    /// message, or no room.
    fn begin(&mut self, room: &mut [u8]) -> usize {
        if self.left == 0 || self.failed.is_some() || room.len() < MASKED_HEAD {
            return 0;
        }
        let key = match self.keys.next() {
            Ok(key) => key,
            Err(error) => {
                self.failed = Some(error);
                return 0;
            }
        };
        self.message = MESSAGE.min(self.left);
        self.mask = Mask::new(key);
        let length = self.message as u64;
        let head = Head { fin: true, opcode: Opcode::Binary, length, mask: Some(key) };
        let (bytes, length) = head.encode();
        room[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

impl Producer for Masked<'_> {
    fn size(&self) -> usize {
        self.left + self.left.div_ceil(MESSAGE) * MASKED_HEAD
    }

    fn fill(&mut self, room: &mut [u8]) -> usize {
        let mut at = 0;
        while at < room.len() {
            if self.message == 0 {
                match self.begin(&mut room[at..]) {
                    0 => break,
                    length => at += length,
                }
            }
            let size = self.message.min(room.len() - at);
            take(self.frames, size, |part| {
                self.mask.copy(&part, &mut room[at..at + part.len()]);
                at += part.len();
            });
            self.message -= size;
            self.left -= size;
        }
        at
    }
}

/// Removes empty frames from the front, without a message.
pub(crate) fn drop_empty(frames: &mut VecDeque<Bytes>) {
    while frames.front().is_some_and(Bytes::is_empty) {
        frames.pop_front();
    }
}

/// Takes `size` bytes from the front of `frames`.
fn take(frames: &mut VecDeque<Bytes>, mut size: usize, mut each: impl FnMut(Bytes)) {
    while size > 0
        && let Some(front) = frames.front_mut()
    {
        if front.len() > size {
            each(front.split_to(size));
            return;
        }
        size -= front.len();
        frames.pop_front().filter(|part| part.has_remaining()).into_iter().for_each(&mut each);
    }
}

impl fmt::Debug for Send {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Send").field("queue", &self.queue.len()).finish_non_exhaustive()
    }
}
