//! Two engines with an emulated path between them, in virtual time.

use std::time::{Duration, Instant};

use bytes::Bytes;

use testkit::netem::{Datagrams, Weather};
use testkit::pair::epoch;
use testkit::transfer::{self, End, Transfer};

use crate::engine::{Config, Engine};
use crate::wire::Conversation;

/// Heads of UDP, IPv4 and encryption, which the link carries as well.
const HEADS: usize = 20 + 8 + 28;

pub(super) const MTU: u16 = 1_400;

pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) ends: [Engine; 2],
    /// The datagrams that end `n` has sent.
    pub(super) paths: [Datagrams<Vec<u8>>; 2],
}

pub(super) fn config() -> Config {
    Config { receive_window: 8_192, send_window: 8_192, ..Config::new(Conversation(7), MTU) }
}

impl World {
    pub(super) fn new(configs: [Config; 2], weather: &Weather, seed: u64) -> Self {
        let now = epoch();
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
        // A timer in the past that is never cancelled would be an endless loop.
        self.now = next.max(self.now + Duration::from_micros(1));
        true
    }
}

impl End for Engine {
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

impl transfer::World for World {
    type End = Engine;

    fn now(&self) -> Instant {
        self.now
    }

    fn ends(&mut self) -> &mut [Engine; 2] {
        &mut self.ends
    }

    fn settle(&mut self) -> bool {
        self.settle()
    }

    fn advance(&mut self) -> bool {
        self.advance()
    }
}

/// The time for the next `length` bytes of a transfer after its first `start` bytes.
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
