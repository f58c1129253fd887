//! Two sessions, an emulated path, and a clock that moves from event to event.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::testing::epoch;
use testkit::netem::{Datagrams, Weather};
use testkit::transfer::{self, End};

use crate::Refused;
use crate::own::wire::{ConnectionId, PacketNumber};
use crate::own::{Config, Keys, Session};

/// UDP and IPv4 headers, which the link carries as well.
pub(super) const HEADS: usize = 20 + 8;

pub(super) const DATAGRAM: u16 = 1_472;

/// Keys without encryption and with a tag of the usual length. The tag detects most changed
/// packets.
#[derive(Debug)]
struct Toy;

fn sum(number: PacketNumber, head: &[u8], text: &[u8]) -> [u8; 8] {
    let bytes = head.iter().chain(text);
    let sum = bytes.fold(number.0, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte));
    sum.to_be_bytes()
}

impl Keys for Toy {
    fn tag(&self) -> usize {
        16
    }

    fn seal(
        &mut self,
        number: PacketNumber,
        head: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        tag[..8].copy_from_slice(&sum(number, head, text));
        Ok(())
    }

    fn open(
        &mut self,
        _: bool,
        number: PacketNumber,
        head: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused> {
        let length = text_and_tag.len().checked_sub(16).ok_or(Refused)?;
        let (text, tag) = text_and_tag.split_at(length);
        if tag[..8] == sum(number, head, text) { Ok(length) } else { Err(Refused) }
    }
}

pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) ends: [Session; 2],
    /// Longer datagrams are dropped silently.
    pub(super) carried: usize,
    /// Packets are marked while more than this number of bytes is queued at the bottleneck.
    pub(super) marks_above: Option<usize>,
    /// Answers to challenges, at either end.
    pub(super) answered: Vec<[u8; 8]>,
    /// The packets that end `n` has sent.
    pub(super) paths: [Datagrams<Vec<u8>>; 2],
}

pub(super) fn config() -> Config {
    let id = ConnectionId([7; 8]);
    Config::new((id, id), DATAGRAM)
}

impl World {
    pub(super) fn new(configs: [Config; 2], weather: &Weather, seed: u64) -> Self {
        let now = epoch();
        let mut seed = seed;
        Self {
            start: now,
            now,
            carried: usize::MAX,
            answered: Vec::new(),
            marks_above: None,
            ends: configs.map(|config| Session::new(config, Box::new(Toy), now)),
            paths: [(); 2].map(|()| {
                seed = seed.wrapping_add(1_000_003);
                Datagrams::new(*weather, seed)
            }),
        }
    }

    /// Both directions take another path, and packets in flight are lost.
    pub(super) fn replace_paths(&mut self, weather: &Weather) {
        self.paths = [11, 12].map(|seed| Datagrams::new(*weather, seed));
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Processes all events at the current time. Returns whether there was any.
    pub(super) fn settle(&mut self) -> bool {
        let mut happened = false;
        for n in 0..2 {
            while let Some(mut datagram) = self.paths[1 - n].read(self.now) {
                // The current backlog is about the backlog at the time of the packet.
                let backlog = self.paths[1 - n].backlog(self.now);
                let is_congested = self.marks_above.is_some_and(|most| backlog > most);
                let heard = self.ends[n].handle_datagram(self.now, &mut datagram, is_congested);
                self.answered.extend(heard.and_then(|heard| heard.answered));
                happened = true;
            }
            if self.ends[n].timeout().is_some_and(|at| at <= self.now) {
                self.ends[n].handle_timeout(self.now);
            }
            let mut buf = Vec::new();
            while let Some(sent) = self.ends[n].poll_transmit(self.now, &mut buf) {
                let length = sent.length;
                assert_eq!(length, buf.len());
                assert!(length <= usize::from(DATAGRAM), "{length}");
                let datagram = std::mem::take(&mut buf);
                happened = true;
                if length > self.carried {
                    continue;
                }
                self.paths[n].write(self.now, length + HEADS, || datagram.clone());
                happened = true;
            }
        }
        happened
    }

    /// Advances the time to the next event, but not beyond `end`. Returns `false` if there is none
    /// before it.
    pub(super) fn advance_until(&mut self, end: Instant) -> bool {
        let timers = self.ends.iter().filter_map(Session::timeout);
        let arrivals = self.paths.iter().filter_map(Datagrams::next_arrival);
        let next = timers.chain(arrivals).min().filter(|next| *next < end);
        // A timer in the past that is never cancelled would be an endless loop.
        let least = self.now + Duration::from_micros(1);
        self.now = next.map_or(end, |next| next.max(least));
        next.is_some()
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
        self.advance_until(self.now + Duration::from_secs(100))
    }
}
