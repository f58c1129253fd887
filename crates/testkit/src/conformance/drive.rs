//! Small drivers of a lane, and test bytes whose value depends on stream and offset.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use bytes::{Bytes, BytesMut};
use transport::Lane;

/// The byte at `offset` of the stream called `seed`.
#[must_use]
pub fn pattern(seed: u64, offset: u64) -> u8 {
    let mixed = ((offset / 8) ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_right(29).to_le_bytes()[usize::try_from(offset % 8).unwrap_or(0)]
}

/// `length` bytes of stream `seed` from `offset` on.
pub(super) fn piece(seed: u64, offset: u64, length: usize) -> Bytes {
    (offset..offset + length as u64).map(|at| pattern(seed, at)).collect()
}

/// A small pseudo-random generator (xorshift64*), so that every run cuts the data in the same
/// places.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number in `1..=most`.
    pub(super) fn roll(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(mixed).unwrap_or(0) % most + 1
    }
}

/// Checks that received bytes are the bytes of one stream, in order.
#[derive(Debug)]
pub struct Sum {
    seed: u64,
    seen: u64,
}

impl Sum {
    /// A checker of the stream `seed`, from the stream's start.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, seen: 0 }
    }

    /// Checks the next bytes.
    ///
    /// # Panics
    ///
    /// Panics when a byte has the wrong value.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            assert_eq!(byte, pattern(self.seed, self.seen), "at offset {}", self.seen);
            self.seen += 1;
        }
    }

    /// The number of bytes checked so far.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }
}

/// Does one read into a buffer with `room` spare bytes. The result is empty at the end of the
/// stream.
pub async fn read_some(lane: &mut dyn Lane, room: usize) -> io::Result<BytesMut> {
    let mut buf = BytesMut::with_capacity(room.max(1));
    let n = poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
    assert_eq!(n, buf.len(), "poll_read reports what it appended");
    Ok(buf)
}

/// Writes and flushes all frames.
pub async fn write_all(lane: &mut dyn Lane, frames: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !frames.is_empty() {
        let before: usize = frames.iter().map(Bytes::len).sum();
        let n = poll_fn(|cx| lane.poll_write(cx, frames)).await?;
        let after: usize = frames.iter().map(Bytes::len).sum();
        assert_eq!(before - after, n, "poll_write reports what it took");
    }
    poll_fn(|cx| lane.poll_flush(cx)).await
}

/// Flushes the lane and ends the local side's direction.
pub(super) async fn close(lane: &mut dyn Lane) -> io::Result<()> {
    poll_fn(|cx| lane.poll_close(cx)).await
}

/// Sends `total` bytes of stream `seed` in pieces of up to `most` bytes, then ends the direction.
pub(super) async fn send(
    lane: &std::cell::RefCell<Box<dyn Lane>>,
    seed: u64,
    total: u64,
    most: usize,
) {
    let mut dice = Dice::new(seed);
    let mut sent = 0;
    let mut frames = VecDeque::new();
    while sent < total || !frames.is_empty() {
        while sent < total && frames.len() < 8 {
            let left = usize::try_from(total - sent).unwrap_or(usize::MAX);
            let length = dice.roll(most).min(left);
            frames.push_back(piece(seed, sent, length));
            sent += length as u64;
        }
        poll_fn(|cx| lane.borrow_mut().poll_write(cx, &mut frames)).await.expect("write");
    }
    poll_fn(|cx| lane.borrow_mut().poll_close(cx)).await.expect("close");
}

/// Reads stream `seed` to its end into buffers of up to `most` bytes; the stream must be `total`
/// bytes long.
pub(super) async fn receive(
    lane: &std::cell::RefCell<Box<dyn Lane>>,
    seed: u64,
    total: u64,
    most: usize,
) {
    let mut dice = Dice::new(!seed);
    let mut sum = Sum::new(seed);
    loop {
        let mut buf = BytesMut::with_capacity(dice.roll(most));
        let n = poll_fn(|cx| lane.borrow_mut().poll_read(cx, &mut buf)).await.expect("read");
        if n == 0 {
            break;
        }
        sum.add(&buf);
    }
    assert_eq!(sum.seen(), total, "all bytes before the end");
}
