//! One direction of a carrier: ordered bytes with delay, sliced into reads, until the pipe is cut.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Rng;

/// How a pipe slices arriving bytes into reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slices {
    /// One read per write.
    Whole,
    /// One byte per read.
    Bytes,
    /// One frame per read (8-byte header, the payload's length in bytes 1 to 3).
    Frames,
    /// A random number of bytes per read, from 1 to the given number.
    Random(usize),
}

/// The properties of a pipe.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// One-way delay.
    pub delay: Duration,
    /// The maximum random addition to the delay. The order of bytes is kept.
    pub jitter: Duration,
    /// Bytes per second. `None` is no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait in front of the bottleneck: the size of the socket's buffer.
    pub queue: usize,
    /// How reads are sliced.
    pub slices: Slices,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue: 1 << 20,
            slices: Slices::Whole,
        }
    }
}

impl Conditions {
    /// A path with this round-trip time and this rate in Mbit/s. Each direction gets half of the
    /// time.
    #[must_use]
    pub fn path(round_trip: Duration, megabits: u64) -> Self {
        Self { delay: round_trip / 2, rate: Some(megabits * 125_000), ..Self::default() }
    }
}

/// One direction of a carrier.
#[derive(Debug)]
pub struct Pipe {
    conditions: Conditions,
    rng: Rng,
    flight: VecDeque<(Instant, Bytes)>,
    /// When the bottleneck is free again.
    busy_until: Option<Instant>,
    last_arrival: Option<Instant>,
    delivered: u64,
    cut_after: Option<u64>,
    is_silent: bool,
}

impl Pipe {
    /// A pipe with these conditions. `seed` decides jitter and random slices.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            conditions,
            rng: Rng::new(seed),
            flight: VecDeque::new(),
            busy_until: None,
            last_arrival: None,
            delivered: 0,
            cut_after: None,
            is_silent: false,
        }
    }

    /// Cuts the pipe after `bytes` delivered bytes in all; see [`Pipe::is_cut`].
    pub const fn cut_after(&mut self, bytes: u64) {
        self.cut_after = Some(bytes);
    }

    /// From now on, drops every written byte and every byte in flight: a half-open path.
    pub fn silence(&mut self) {
        self.is_silent = true;
        self.flight.clear();
    }

    /// Whether the pipe has delivered the number of bytes after which it is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut_after.is_some_and(|end| self.delivered >= end)
    }

    /// Bytes delivered so far.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes that wait in front of the bottleneck.
    #[must_use]
    pub fn backlog(&self, now: Instant) -> usize {
        let (Some(rate), Some(until)) = (self.conditions.rate, self.busy_until) else { return 0 };
        let wait = until.saturating_duration_since(now).as_nanos();
        usize::try_from(wait * u128::from(rate) / 1_000_000_000).unwrap_or(usize::MAX)
    }

    /// The time when the backlog is at most `bytes` and the queue is not full.
    #[must_use]
    pub fn writable_at(&self, now: Instant, bytes: usize) -> Instant {
        let (Some(rate), Some(until)) = (self.conditions.rate, self.busy_until) else { return now };
        let allowed = transit(bytes.min(self.conditions.queue), rate);
        until.checked_sub(allowed).map_or(now, |at| at.max(now))
    }

    /// Writes bytes for the other end.
    pub fn write(&mut self, now: Instant, bytes: Bytes) {
        if self.is_silent || bytes.is_empty() {
            return;
        }
        let mut at = now;
        if let Some(rate) = self.conditions.rate {
            at = self.busy_until.map_or(now, |until| until.max(now)) + transit(bytes.len(), rate);
            self.busy_until = Some(at);
        }
        let jitter = u64::try_from(self.conditions.jitter.as_micros()).unwrap_or(0);
        at += self.conditions.delay + Duration::from_micros(self.rng.below(jitter + 1));
        at = self.last_arrival.map_or(at, |last| last.max(at));
        self.last_arrival = Some(at);
        self.flight.push_back((at, bytes));
    }

    /// When the next bytes arrive.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        if self.is_cut() { None } else { self.flight.front().map(|&(at, _)| at) }
    }

    /// The next read, if the first byte of the read has arrived.
    pub fn read(&mut self, now: Instant) -> Option<Bytes> {
        if self.is_cut() || self.flight.front()?.0 > now {
            return None;
        }
        let (at, mut bytes) = self.flight.pop_front()?;
        let wanted = match self.conditions.slices {
            Slices::Whole => bytes.len(),
            Slices::Bytes => 1,
            Slices::Frames => match bytes[..] {
                // A write ends inside a frame's payload only if the writer has already sliced the
                // frame.
                [_, a, b, c, _, _, _, _, ..] => {
                    8 + usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(0)
                }
                _ => bytes.len(),
            },
            Slices::Random(most) => {
                1 + usize::try_from(self.rng.below(most.max(1) as u64)).unwrap_or(0)
            }
        };
        let left = self.cut_after.map_or(u64::MAX, |end| end - self.delivered);
        let n = wanted.min(bytes.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
        let piece = bytes.split_to(n);
        if !bytes.is_empty() {
            self.flight.push_front((at, bytes));
        }
        self.delivered += n as u64;
        Some(piece)
    }
}

/// The time that `bytes` take at `rate` bytes per second.
fn transit(bytes: usize, rate: u64) -> Duration {
    let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_at_the_rate_and_after_the_delay() {
        let start = crate::pair::epoch();
        let mut pipe = Pipe::new(Conditions::path(Duration::from_millis(20), 8), 1);
        pipe.write(start, Bytes::from_static(&[1; 1000]));
        pipe.write(start, Bytes::from_static(&[2; 1000]));
        assert_eq!(pipe.backlog(start), 2000);
        assert_eq!(pipe.next_arrival(), Some(start + Duration::from_millis(11)));
        assert_eq!(pipe.read(start), None);
        assert_eq!(pipe.read(start + Duration::from_millis(11)).map(|b| b[0]), Some(1));
        assert_eq!(pipe.read(start + Duration::from_millis(11)), None);
        assert_eq!(pipe.read(start + Duration::from_millis(12)).map(|b| b[0]), Some(2));
    }

    #[test]
    fn a_cut_is_exact_to_the_byte() {
        let start = crate::pair::epoch();
        for slices in [Slices::Whole, Slices::Bytes, Slices::Frames, Slices::Random(9)] {
            let mut pipe = Pipe::new(Conditions { slices, ..Conditions::default() }, 1);
            pipe.cut_after(13);
            pipe.write(start, Bytes::from_static(&[0; 40]));
            let mut n = 0;
            while let Some(piece) = pipe.read(start) {
                n += piece.len();
            }
            assert_eq!((n, pipe.is_cut()), (13, true));
        }
    }
}
