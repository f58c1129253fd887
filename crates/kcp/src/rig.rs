//! Common test harness of the engine and both sessions: a stream between two ends that is checked
//! byte by byte in virtual time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use testkit::netem::Weather;

#[cfg(feature = "compat")]
use crate::compat::{engine, session};
use crate::own;

/// Timeout of a transfer in virtual time.
const PATIENCE: Duration = Duration::from_secs(900);

/// An end of a stream.
pub(crate) trait End {
    fn room(&self) -> usize;
    fn write(&mut self, now: Instant, bytes: &mut Bytes) -> usize;
    fn read(&mut self, most: usize) -> Option<Bytes>;
}

macro_rules! end {
    ($type:ty) => {
        impl End for $type {
            fn room(&self) -> usize {
                Self::room(self)
            }

            fn write(&mut self, now: Instant, bytes: &mut Bytes) -> usize {
                Self::write(self, now, bytes)
            }

            fn read(&mut self, most: usize) -> Option<Bytes> {
                Self::read(self, most)
            }
        }
    };
}

#[cfg(feature = "compat")]
end!(engine::Engine);
#[cfg(feature = "compat")]
end!(session::Session);
end!(own::Session);

/// Two ends with an emulated path between them.
pub(crate) trait World {
    type End: End;
    fn now(&self) -> Instant;
    fn ends(&mut self) -> &mut [Self::End; 2];
    /// Processes all events at the current time. Returns whether there was any.
    fn settle(&mut self) -> bool;
    /// Advances the time to the next event. Returns `false` if there is none.
    fn advance(&mut self) -> bool;
}

/// A path by its rate in Mbit/s, its round trip in milliseconds, and its loss. Its queue holds one
/// round trip.
pub(crate) fn path(megabits: u64, round_trip: u64, loss: f64) -> Weather {
    let rate = megabits * 125_000;
    Weather {
        delay: Duration::from_millis(round_trip) / 2,
        loss,
        rate: Some(rate),
        queue: usize::try_from(rate * round_trip.max(20) / 1000).unwrap(),
        ..Weather::default()
    }
}

/// The byte at each offset of a stream.
pub(crate) fn byte(at: usize) -> u8 {
    (at % 251) as u8 ^ (at / 65_521) as u8
}

/// A transfer in one direction, checked byte by byte.
pub(crate) struct Transfer {
    pub(crate) length: usize,
    pub(crate) written: usize,
    pub(crate) read: usize,
}

impl Transfer {
    pub(crate) const fn new(length: usize) -> Self {
        Self { length, written: 0, read: 0 }
    }

    /// Writes and reads as many bytes as possible. `true` when all bytes have arrived.
    pub(crate) fn step<E: End>(&mut self, now: Instant, from: &mut E, to: &mut E) -> bool {
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
pub(crate) fn transfer<W: World>(world: &mut W, length: usize) -> Duration {
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
