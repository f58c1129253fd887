//! The harness of the fuzz target, which the replay of its corpus uses as well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Config, Session};
use crate::engine::Control;
use crate::envelope::{Null, Seal, Sealed, fuzz::Toy};
use crate::fec::Ratio;
use crate::wire::{Command, Content, Conversation, Head, Millis, Sn};

const CONVERSATION: Conversation = Conversation(0x0102_0304);

/// A small window, so that few segments fill it.
const WINDOW: u16 = 16;

/// The largest number of bytes that an end writes.
const MOST: usize = 20_000;

/// The largest number of datagrams at one time: several windows with acknowledgements and parity.
const AT_ONCE: usize = 1_000;

/// The delay of the path during the final delivery, and the largest number of its steps.
const DELAY: Duration = Duration::from_millis(20);
const ROUNDS: usize = 20_000;

/// Two sessions with a path between them. The first five bytes of `data` are settings. Further
/// bytes are actions: writes, reads, steps of time, losses, repetitions, reordering, changes of FEC
/// and rate, datagrams out of band, and arbitrary datagrams.
///
/// Both sessions stay within their bounds. Unless a datagram was forged, all bytes arrive.
pub fn session(data: &[u8]) {
    let Some((settings, actions)) = data.split_first_chunk() else { return };
    let mut world = World::new(settings);
    let mut input = Input(actions);
    while let Some(action) = input.next() {
        world.act(action, &mut input);
        world.settle();
    }
    if !world.is_forged {
        world.finish();
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct World {
    now: Instant,
    ends: [Session; 2],
    /// Datagrams that an end has sent and the other end has not received.
    paths: [VecDeque<Vec<u8>>; 2],
    written: [usize; 2],
    /// Bytes that each end has read.
    read: [usize; 2],
    longest: usize,
    is_stream: bool,
    /// Whether datagrams may be forged, and whether a datagram was forged.
    may_forge: bool,
    is_forged: bool,
    /// The last nonce.
    nonce: u64,
    out: Vec<u8>,
}

fn ratio(byte: u8) -> Option<Ratio> {
    let [data, parity] = [byte % 8, byte / 8 % 4].map(usize::from);
    Ratio::new(data, parity)
}

const fn rate(byte: u8) -> Option<u64> {
    match byte % 3 {
        0 => None,
        1 => Some(20_000),
        _ => Some(1_000_000),
    }
}

/// The byte at each offset of a stream.
fn content(at: usize) -> u8 {
    (at % 251).to_le_bytes()[0]
}

impl World {
    fn new(&[flags, more, size, first, second]: &[u8; 5]) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a harness begins now, and counts from there"
        )]
        let now = Instant::now();
        let is = |bit: u8| flags & (1 << bit) != 0;
        let mut config = Config::new(CONVERSATION);
        config.datagram = 100 + usize::from(size);
        config.adaptive = is(0);
        config.reserve = is(1);
        config.engine.stream = is(2);
        config.engine.ack_no_delay = is(3);
        config.engine.write_delay = is(4);
        config.engine.resend = if is(5) { 0 } else { 2 };
        config.budget = if is(6) { None } else { Some(0.5) };
        config.pause = if more & 1 == 0 { config.pause } else { None };
        config.fillers = if more & 2 == 0 { config.fillers } else { 0 };
        config.rate = rate(more >> 2);
        config.engine.control = match more >> 5 {
            0 => Control::Classic,
            1 => Control::Open,
            2 => Control::Fixed(50_000),
            _ => Control::Bbr,
        };
        (config.engine.send_window, config.engine.receive_window) = (WINDOW, WINDOW);
        let ends = [[first, second], [second, first]].map(|[own, other]| {
            let mut config = config.clone();
            (config.encode, config.decode) = (ratio(own), ratio(other));
            let seal: Arc<dyn Seal> = if is(7) { Arc::new(Sealed(Toy)) } else { Arc::new(Null) };
            Session::new(config, seal, now)
        });
        Self {
            now,
            ends,
            paths: Default::default(),
            written: [0; 2],
            read: [0; 2],
            longest: config.datagram,
            is_stream: config.engine.stream,
            may_forge: first < 0x80,
            is_forged: false,
            nonce: 0,
            out: Vec::new(),
        }
    }

    fn act(&mut self, action: u8, input: &mut Input<'_>) {
        let (at, what) = (usize::from(action >> 7), input.byte());
        let path = &mut self.paths[at];
        let kind = action & 0x0f;
        if [7, 8, 13].contains(&kind) {
            if !self.may_forge {
                return;
            }
            self.is_forged = true;
        }
        match kind {
            0 => self.pass(Duration::from_millis(u64::from(what) * u64::from(what) / 4)),
            1 => self.write(at, usize::from(what) * 8),
            2 => self.read(at),
            3 => self.deliver(at, what.into()),
            4 => drop(path.pop_front()),
            5 => path.extend(path.front().cloned()),
            6 => path.rotate_left(usize::from(what) % path.len().max(1)),
            7 => {
                let mut datagram = input.take(what.into()).to_vec();
                self.ends[at].handle_datagram(self.now, &mut datagram);
            }
            8 => {
                let mut datagram = segment(what, input);
                self.ends[at].handle_opened(self.now, &datagram);
                self.ends[at].handle_datagram(self.now, &mut datagram);
            }
            9 => {
                self.ends[at].set_encode(self.now, ratio(what));
            }
            10 => self.ends[at].set_rate(self.now, rate(what)),
            11 => {
                let payload = Bytes::from(vec![what; what.into()]);
                let fits = payload.len() <= self.ends[at].oob_room();
                assert_eq!(self.ends[at].send_oob(payload).is_ok(), fits);
            }
            12 => while self.ends[at].read_oob().is_some() {},
            13 => {
                if let Some(byte) = path.front_mut().and_then(|it| it.get_mut(usize::from(what))) {
                    *byte ^= 1 + (action >> 4 & 7);
                }
            }
            _ => self.deliver(at, usize::MAX),
        }
    }

    fn write(&mut self, at: usize, length: usize) {
        let length = length.min(MOST - self.written[at]);
        let begin = self.written[at];
        let mut bytes: Bytes = (begin..begin + length).map(content).collect();
        if self.is_stream {
            let room = self.ends[at].room();
            let taken = self.ends[at].write(self.now, &mut bytes);
            assert_eq!(taken, length.min(room));
            self.written[at] += taken;
        } else if self.ends[at].send(self.now, bytes) {
            self.written[at] += length;
        }
    }

    /// The bytes must be the bytes that the peer wrote, in order.
    fn read(&mut self, at: usize) {
        while let Some(bytes) = self.ends[at].read(usize::MAX) {
            let begin = self.read[at];
            self.read[at] += bytes.len();
            if !self.is_forged {
                assert!(bytes.into_iter().eq((begin..self.read[at]).map(content)), "at {begin}");
                assert!(self.read[at] <= self.written[1 - at]);
            }
        }
    }

    /// Delivers datagrams that `from` has sent.
    fn deliver(&mut self, from: usize, count: usize) {
        let count = count.min(self.paths[from].len());
        for mut datagram in self.paths[from].drain(..count) {
            self.ends[1 - from].handle_datagram(self.now, &mut datagram);
        }
    }

    /// Time advances from timer to timer.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        // Timers may be late.
        for _ in 0..20 {
            let next = self.ends.iter().filter_map(Session::timeout).min();
            let Some(next) = next.filter(|next| *next < until) else { break };
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = until;
    }

    /// Acts as a driver at one time: sends, and calls due timers.
    fn settle(&mut self) {
        for at in 0..2 {
            let mut turns = 0;
            loop {
                self.transmit(at);
                let Some(_) = self.ends[at].timeout().filter(|due| *due <= self.now) else { break };
                self.ends[at].handle_timeout(self.now);
                turns += 1;
                assert!(turns < 100, "a timer is always due: {:?}", self.ends[at]);
            }
            self.check(at);
        }
    }

    fn transmit(&mut self, at: usize) {
        let Self { now, ends, paths, longest, nonce, out, .. } = self;
        let mut random = |bytes: &mut [u8]| {
            *nonce += 1;
            for (byte, value) in bytes.iter_mut().zip(nonce.to_le_bytes()) {
                *byte = value;
            }
        };
        out.clear();
        let mut count = 0;
        while let Some(length) = ends[at].poll_transmit(*now, &mut random, out) {
            assert!((12..=*longest).contains(&length), "{length} bytes");
            let datagram = out[out.len() - length..].to_vec();
            if ends[at].seal.overhead() == 0 {
                assert!(Content::of(&datagram).is_some(), "{datagram:?}");
            }
            paths[at].push_back(datagram);
            count += 1;
            assert!(count < AT_ONCE, "it sends without end");
        }
        // The path is bounded as well.
        while paths[at].len() > AT_ONCE {
            paths[at].pop_front();
        }
    }

    /// The invariants at any time.
    fn check(&self, at: usize) {
        let session = &self.ends[at];
        let sum = session.counters();
        let made = sum.engine.datagrams_out + sum.parity_out + sum.fillers_out + sum.oob_out;
        assert_eq!(sum.datagrams_out, made, "{sum:?}");
        let window = usize::from(WINDOW) * self.longest;
        assert!(session.room() <= window, "room for {} bytes", session.room());
        assert!(session.in_flight() <= 2 * window as u64, "{} in flight", session.in_flight());
    }

    /// Over a path without loss, all written bytes arrive, and then no timer runs.
    fn finish(&mut self) {
        for _ in 0..ROUNDS {
            self.settle();
            // A dead session is silent until a datagram of its peer arrives, and the peer may be
            // silent as well.
            if self.ends.iter().any(|end| end.is_dead(self.now)) {
                return;
            }
            for at in 0..2 {
                self.read(at);
            }
            self.settle();
            if self.paths.iter().all(VecDeque::is_empty) {
                let next = self.ends.iter().filter_map(Session::timeout).min();
                let Some(next) = next else { break };
                self.now = self.now.max(next);
            } else {
                self.now += DELAY;
                for at in 0..2 {
                    self.deliver(at, usize::MAX);
                }
            }
        }
        for at in 0..2 {
            assert!(self.ends[at].is_flushed(), "not all arrives: {:?}", self.ends[at]);
            assert_eq!(self.read[1 - at], self.written[at], "{:?}", self.ends[at]);
            assert_eq!(self.ends[at].timeout(), None, "{:?}", self.ends[at]);
        }
    }
}

/// A segment whose numbers are near those of a young session.
fn segment(what: u8, input: &mut Input<'_>) -> Vec<u8> {
    let commands = [Command::Push, Command::Ack, Command::AskWindow, Command::TellWindow];
    let command = commands[usize::from(what & 3)];
    let [sn, una, window, time] = [(); 4].map(|()| input.byte());
    // Some numbers are far behind.
    let number = |byte: u8| u32::from(byte).wrapping_sub(u32::from(what & 4) << 4);
    let head = Head {
        conversation: CONVERSATION,
        command,
        fragments: what >> 6,
        window: window.into(),
        timestamp: Millis(u32::from(time) * 16),
        sn: Sn(number(sn)),
        una: Sn(number(una)),
    };
    let payload = if command == Command::Push { usize::from(what >> 3 & 7) } else { 0 };
    let mut bytes = head.encode(u32::from(what >> 3 & 7) * u32::from(payload > 0)).to_vec();
    bytes.resize(bytes.len() + payload, what);
    bytes
}
