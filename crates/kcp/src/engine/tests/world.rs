//! Two engines with an emulated path between them, in virtual time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use testkit::netem::{Datagrams, Weather};

use crate::engine::{Config, Engine};
use crate::wire::Conversation;

/// Heads of UDP, IPv4 and encryption, which the link carries as well.
const HEADS: usize = 20 + 8 + 28;

pub(super) const MTU: u16 = 1_400;

pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) ends: [Engine; 2],
    /// What end `n` has sent.
    pub(super) paths: [Datagrams<Vec<u8>>; 2],
}

pub(super) fn config() -> Config {
    Config { receive_window: 8_192, send_window: 8_192, ..Config::new(Conversation(7), MTU) }
}

/// Megabits per second, milliseconds there and back, loss; a queue of one round trip.
pub(super) fn path(megabits: u64, round_trip: u64, loss: f64) -> Weather {
    let rate = megabits * 125_000;
    Weather {
        delay: Duration::from_millis(round_trip) / 2,
        loss,
        rate: Some(rate),
        queue: usize::try_from(rate * round_trip.max(20) / 1000).unwrap(),
        ..Weather::default()
    }
}

impl World {
    pub(super) fn new(configs: [Config; 2], weather: &Weather, seed: u64) -> Self {
        let now = Instant::now();
        let mut seed = seed;
        Self {
            start: now,
            now,
            ends: configs.map(|config| Engine::new(config, now)),
            paths: [(); 2].map(|()| {
                seed = seed.wrapping_add(1_000_003);
                Datagrams::new(*weather, seed)
            }),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Lets everything happen that happens now; returns whether anything did.
    pub(super) fn settle(&mut self) -> bool {
        let mut happened = false;
        for n in 0..2 {
            while let Some(datagram) = self.paths[1 - n].read(self.now) {
                self.ends[n].handle_datagram(self.now, &datagram, false).unwrap();
                happened = true;
            }
            if self.ends[n].timeout().is_some_and(|at| at <= self.now) {
                self.ends[n].handle_timeout(self.now);
            }
            let mut buf = Vec::new();
            while self.ends[n].poll_transmit(self.now, &mut buf).is_some() {
                let datagram = std::mem::take(&mut buf);
                assert!(datagram.len() <= usize::from(MTU));
                self.paths[n].write(self.now, datagram.len() + HEADS, || datagram.clone());
                happened = true;
            }
        }
        happened
    }

    /// Moves to the next event; `false` where there is none.
    pub(super) fn advance(&mut self) -> bool {
        let timers = self.ends.iter().filter_map(Engine::timeout);
        let arrivals = self.paths.iter().filter_map(Datagrams::next_arrival);
        let Some(next) = timers.chain(arrivals).min() else { return false };
        // A timer in the past that nothing cancels would be a loop without end.
        self.now = next.max(self.now + Duration::from_micros(1));
        true
    }
}

/// The byte at each offset of a stream.
pub(super) fn byte(at: usize) -> u8 {
    (at % 251) as u8 ^ (at / 65_521) as u8
}

/// A transfer in one direction, checked byte by byte.
pub(super) struct Transfer {
    pub(super) length: usize,
    pub(super) written: usize,
    pub(super) read: usize,
}

impl Transfer {
    pub(super) const fn new(length: usize) -> Self {
        Self { length, written: 0, read: 0 }
    }

    /// Writes and reads what can be; `true` when all has arrived.
    pub(super) fn step(&mut self, now: Instant, from: &mut Engine, to: &mut Engine) -> bool {
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
pub(super) fn transfer(world: &mut World, length: usize) -> Duration {
    let mut transfer = Transfer::new(length);
    let begin = world.now;
    loop {
        let [from, to] = &mut world.ends;
        if transfer.step(world.now, from, to) {
            return world.now - begin;
        }
        if !world.settle() {
            assert!(world.advance(), "everything stands still at {} bytes", transfer.read);
        }
        assert!(world.elapsed() < Duration::from_secs(900), "{} bytes", transfer.read);
    }
}

/// How long the next `length` bytes take to arrive after the first `start` of a transfer that goes
/// on.
pub(super) fn steady(world: &mut World, start: usize, length: usize) -> Duration {
    let mut transfer = Transfer::new(start + length + (64 << 20));
    let mut begin = None;
    loop {
        let [from, to] = &mut world.ends;
        transfer.step(world.now, from, to);
        if transfer.read >= start {
            begin.get_or_insert(world.now);
        }
        if transfer.read >= start + length {
            return begin.map_or(Duration::ZERO, |begin| world.now - begin);
        }
        if !world.settle() {
            assert!(world.advance(), "everything stands still at {} bytes", transfer.read);
        }
    }
}
