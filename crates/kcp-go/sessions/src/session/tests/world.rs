//! Two sessions with an emulated path between them, in virtual time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use testkit::netem::{Datagrams, Rng, Weather};
use testkit::pair::epoch;
use testkit::transfer::{self, End};

use crate::engine::Control;
use crate::envelope::{Aead, Refused, Sealed};
use crate::fec::Ratio;
use crate::session::{Config, Session};
use crate::wire::Conversation;

pub(super) const MTU: usize = 1_400;

/// Heads of UDP and IPv4, which the link carries as well.
const HEADS: usize = 28;

/// The layout of encryption without encryption: the tag is the nonce and a sum.
#[derive(Debug)]
pub(super) struct Fake;

impl Aead for Fake {
    fn nonce(&self) -> usize {
        12
    }

    fn tag(&self) -> usize {
        16
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8], tag: &mut [u8]) -> Result<(), Refused> {
        tag[..12].copy_from_slice(nonce);
        tag[12..].copy_from_slice(&sum(text));
        Ok(())
    }

    fn open(&self, nonce: &[u8], text_and_tag: &mut [u8]) -> Result<(), Refused> {
        let (text, tag) = text_and_tag.split_at(text_and_tag.len() - 16);
        if tag[..12] == *nonce && tag[12..] == sum(text) { Ok(()) } else { Err(Refused) }
    }
}

fn sum(text: &[u8]) -> [u8; 4] {
    let add = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
    text.iter().fold(7, add).to_le_bytes()
}

pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) ends: [Session; 2],
    /// The datagrams that end `n` has sent.
    pub(super) paths: [Datagrams<Vec<u8>>; 2],
    /// The times and lengths of the datagrams of the first end.
    pub(super) left: Vec<(Instant, usize)>,
    random: Rng,
    /// The number of successive steps without a change of time.
    idle: u32,
}

pub(super) fn config() -> Config {
    let mut config = Config { datagram: MTU, ..Config::new(Conversation(7)) };
    config.engine.send_window = 4_096;
    config.engine.receive_window = 4_096;
    config.engine.control = Control::Bbr;
    config
}

pub(super) fn ratio(shards: Option<(usize, usize)>) -> Option<Ratio> {
    shards.and_then(|(data, parity)| Ratio::new(data, parity))
}

impl World {
    pub(super) fn new(configs: [Config; 2], weather: &Weather, seed: u64) -> Self {
        let now = epoch();
        let seal = Arc::new(Sealed(Fake));
        Self {
            start: now,
            now,
            ends: configs.map(|config| Session::new(config, seal.clone(), now)),
            paths: [seed, seed + 1_000_003].map(|seed| Datagrams::new(*weather, seed)),
            left: Vec::new(),
            random: Rng::new(!seed),
            idle: 0,
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Lets everything happen that happens now; returns whether anything did.
    pub(super) fn settle(&mut self) -> bool {
        let mut happened = false;
        for n in 0..2 {
            while let Some(mut datagram) = self.paths[1 - n].read(self.now) {
                self.ends[n].handle_datagram(self.now, &mut datagram);
                happened = true;
            }
            if self.ends[n].timeout().is_some_and(|at| at <= self.now) {
                self.ends[n].handle_timeout(self.now);
            }
            happened |= self.transmit(n);
        }
        happened
    }

    fn transmit(&mut self, n: usize) -> bool {
        let mut out = Vec::new();
        let mut random = |bytes: &mut [u8]| {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&self.random.bits().to_le_bytes()[..chunk.len()]);
            }
        };
        let mut happened = false;
        while let Some(length) = self.ends[n].poll_transmit(self.now, &mut random, &mut out) {
            let datagram = out.split_off(out.len() - length);
            assert!(out.is_empty(), "one datagram is appended");
            assert!(datagram.len() <= MTU, "{length}");
            if n == 0 {
                self.left.push((self.now, length));
            }
            self.paths[n].write(self.now, length + HEADS, || datagram.clone());
            happened = true;
        }
        happened
    }

    /// Moves to the next event; `false` where there is none.
    pub(super) fn advance(&mut self) -> bool {
        let timers = self.ends.iter().filter_map(Session::timeout);
        let arrivals = self.paths.iter().filter_map(Datagrams::next_arrival);
        let Some(next) = timers.chain(arrivals).min() else { return false };
        self.idle = if next > self.now { 0 } else { self.idle + 1 };
        assert!(self.idle < 100, "a timer is always due: {:?}", self.ends);
        // A timer in the past that is never cancelled would be an endless loop.
        self.now = next.max(self.now + Duration::from_micros(1));
        true
    }

    /// Runs until there is no further event.
    pub(super) fn finish(&mut self) {
        while self.settle() || self.advance() {
            assert!(self.elapsed() < Duration::from_secs(900), "no end");
        }
    }

    /// Runs for this long.
    pub(super) fn run(&mut self, time: Duration, mut each: impl FnMut(&mut Self)) {
        let end = self.now + time;
        while self.now < end {
            each(self);
            if !self.settle() && !self.advance() {
                break;
            }
        }
    }

    /// The counters of sent and received datagrams must agree.
    pub(super) fn check_counters(&mut self) {
        self.finish();
        for (n, end) in self.ends.iter().enumerate() {
            let counters = end.counters();
            let parts = counters.engine.datagrams_out
                + counters.parity_out
                + counters.fillers_out
                + counters.oob_out;
            assert_eq!(counters.datagrams_out, parts, "{counters:?}");
            assert_eq!(counters.datagrams_out, self.paths[n].counts().written);
            assert_eq!(counters.datagrams_in, self.paths[1 - n].counts().arrived);
            let opened = counters.envelope.opened + counters.replayed;
            assert_eq!(counters.datagrams_in, opened, "{counters:?}");
            assert_eq!(counters.envelope.refused + counters.envelope.malformed, 0);
            assert_eq!(counters.engine.malformed, 0, "{counters:?}");
        }
        let [from, to] = [0, 1].map(|n| self.ends[n].counters().engine);
        assert_eq!(from.bytes_out, to.bytes_in);
        assert_eq!(to.bytes_out, from.bytes_in);
    }
}

impl End for Session {
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
    type End = Session;

    fn now(&self) -> Instant {
        self.now
    }

    fn ends(&mut self) -> &mut [Session; 2] {
        &mut self.ends
    }

    fn settle(&mut self) -> bool {
        self.settle()
    }

    fn advance(&mut self) -> bool {
        self.advance()
    }
}
