//! Bytes in, frames out: what is to be written, no I/O.
//!
//! A server's frames go out as they are, a head before each message, nothing copied. A client has
//! to mask; the bytes are shared with the copies kept for replay, so they are masked while they are
//! copied into a buffer of the pool.

use std::collections::VecDeque;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use net::pool;
use transport::Side;

use crate::frame::{CONTROL_MAX, Code, Head, Opcode};
use crate::mask::Mask;

/// Payload of a message, at most: what a reverse proxy passes on without much memory of its own,
/// and with its head 64 KiB, so that some of them fill a buffer of the pool.
pub(crate) const MESSAGE: usize = (64 << 10) - 8;

/// Head of a message of that size or less, masked: two bytes, 16 bits of length, the key.
const MASKED_HEAD: usize = 8;

/// Heads are cut from a buffer of this size, which is there again when all of them have left.
const HEADS: usize = 512;

/// Random bytes fetched at a time.
const KEYS: usize = 128;

/// Masking keys of a client. Section 5.3 asks for a strong source.
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
    /// Whole frames, the first perhaps sent in part.
    queue: VecDeque<Bytes>,
    heads: BytesMut,
    /// The rest of the buffer whose front is in `queue`, masked, and the size of both.
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

    /// What is to be written.
    pub(crate) const fn queue(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.queue
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Everything was written: the buffer is given back.
    pub(crate) fn written(&mut self) {
        let (buffer, size) = std::mem::take(&mut self.masked);
        if size > 0 {
            pool::give(buffer);
        }
    }

    /// Bytes of buffers that are held right now.
    pub(crate) fn held(&self) -> usize {
        self.heads.capacity() + self.masked.1
    }

    /// Packs at most `limit` bytes from the front of `frames` into messages; returns how many. To
    /// be called when everything before was written.
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
        // Empty ones take no part.
        while frames.front().is_some_and(Bytes::is_empty) {
            frames.pop_front();
        }
        Ok(packed)
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

    /// One masked message of the next `size` bytes.
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

    fn head(&mut self, opcode: Opcode, size: usize) {
        let head = Head { fin: true, opcode, length: size as u64, mask: None };
        let (bytes, length) = head.encode();
        if self.heads.capacity() < length && !self.heads.try_reclaim(HEADS) {
            self.heads = BytesMut::with_capacity(HEADS);
        }
        self.heads.extend_from_slice(&bytes[..length]);
        self.queue.push_back(self.heads.split().freeze());
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
