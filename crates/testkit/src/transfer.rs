//! The common parts of the tests of reliable streams over datagrams: a stream between two ends that
//! is checked byte by byte in virtual time.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::netem::Weather;

/// Timeout of a transfer in virtual time.
const PATIENCE: Duration = Duration::from_secs(900);

/// An end of a stream.
pub trait End {
    /// Bytes that may be written now.
    fn room(&self) -> usize;
    /// Takes bytes from the front of `bytes`, and returns how many.
    fn write(&mut self, now: Instant, bytes: &mut Bytes) -> usize;
    /// The next bytes that have arrived, at most `most`.
    fn read(&mut self, most: usize) -> Option<Bytes>;
}

/// Two ends with an emulated path between them.
pub trait World {
    /// What both ends are.
    type End: End;
    /// The virtual time.
    fn now(&self) -> Instant;
    /// Both ends.
    fn ends(&mut self) -> &mut [Self::End; 2];
    /// Processes all events at the current time. Returns whether there was any.
    fn settle(&mut self) -> bool;
    /// Advances the time to the next event. Returns `false` if there is none.
    fn advance(&mut self) -> bool;
}

/// A path by its rate in Mbit/s, its round trip in milliseconds, and its loss. Its queue holds one
/// round trip.
///
/// # Panics
///
/// Panics where that queue has more bytes than the address space.
#[must_use]
pub fn path(megabits: u64, round_trip: u64, loss: f64) -> Weather {
    let rate = megabits * 125_000;
    Weather {
        delay: Duration::from_millis(round_trip) / 2,
        loss,
        rate: Some(rate),
        queue: usize::try_from(rate * round_trip.max(20) / 1000).expect("a queue fits into memory"),
        ..Weather::default()
    }
}

/// The byte at each offset of a stream.
#[must_use]
pub fn byte(at: usize) -> u8 {
    (at % 251) as u8 ^ (at / 65_521) as u8
}

/// A transfer in one direction, checked byte by byte.
#[derive(Debug)]
pub struct Transfer {
    /// The bytes of the whole stream.
    pub length: usize,
    /// The bytes that were written.
    pub written: usize,
    /// The bytes that have arrived.
    pub read: usize,
}

impl Transfer {
    /// A stream of `length` bytes.
    #[must_use]
    pub const fn new(length: usize) -> Self {
        Self { length, written: 0, read: 0 }
    }

    /// Writes and reads as many bytes as possible. `true` when all bytes have arrived.
    ///
    /// # Panics
    ///
    /// Panics at a byte that is not the byte of its offset.
    pub fn step<E: End>(&mut self, now: Instant, from: &mut E, to: &mut E) -> bool {
        loop {
            let part = (self.length - self.written).min(from.room()).min(64 << 10);
            if part == 0 {
                break;
            }
            let mut bytes: Bytes = (self.written..self.written + part).map(byte).collect();
            self.written += from.write(now, &mut bytes);
            assert!(bytes.is_empty(), "there was room");
        }
        while let Some(bytes) = to.read(usize::MAX) {
            for got in bytes {
                assert_eq!(got, byte(self.read), "offset {}", self.read);
                self.read += 1;
            }
        }
        self.read == self.length
    }
}

/// Sends `length` bytes from the first to the second end, and returns how long it took.
///
/// # Panics
///
/// Panics when nothing happens any more, or when it takes too long.
pub fn transfer<W: World>(world: &mut W, length: usize) -> Duration {
    let mut transfer = Transfer::new(length);
    let begin = world.now();
    loop {
        let now = world.now();
        let [from, to] = world.ends();
        if transfer.step(now, from, to) {
            return now - begin;
        }
        if !world.settle() {
            assert!(world.advance(), "everything stands still at {} bytes", transfer.read);
        }
        assert!(now - begin < PATIENCE, "{} bytes", transfer.read);
    }
}
