//! Drives a pair by a list of bytes and compares it with an oracle that knows nothing of frames.
//!
//! Every byte pair is an operation: open, write, finish, reset, stop, refuse, consume, go away,
//! time, kill, a standby, a loss that one side notices. The oracle is simple. The bytes that an
//! application has read are always a prefix of the bytes that the other side wrote, whichever
//! carriers were killed. After everything is healed and drained, every direction without an abort
//! is complete, both ends have forgotten every stream, and no memory is in use.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use proto::{Attach, CarrierNumber, Event, LaneInput, Link, LinkConfig, ResetCode, Side, StreamId};

use super::{Pair, Purse, SIDES, open, place};
use crate::netem::{Conditions, Slices};

/// Streams open at the same time: enough to interleave, few enough that operations return to them.
const STREAMS: usize = 6;

/// Streams that an end accepts at the same time in runs where it refuses more.
const REFUSING: usize = 2;

/// The operations on one direction of a stream.
#[derive(Debug, Default)]
struct Written {
    bytes: u64,
    finished: bool,
    aborted: bool,
}

/// Counters of a run, for a test that prints them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Streams opened.
    pub streams: u64,
    /// Carriers that were killed.
    pub kills: u64,
    /// Payload bytes that arrived.
    pub bytes: u64,
    /// Streams that the peer refused.
    pub refused: u64,
}

/// The byte at an offset of a direction. It differs between adjacent offsets, streams and sides.
fn pattern(id: StreamId, side: Side, offset: u64) -> u8 {
    let mixed = offset
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(u64::from(id.raw()) * 40_503 + place(side) as u64 * 77);
    mixed.to_le_bytes()[1] ^ mixed.to_le_bytes()[3]
}

/// Runs the operations of `list`, heals the link, drains it and checks the result.
///
/// # Panics
/// Panics when the links disagree with the oracle.
pub fn run(list: &[u8], seed: u64) -> Tally {
    let slices = match list.first().map_or(0, |byte| byte % 4) {
        0 => Slices::Whole,
        1 => Slices::Frames,
        2 => Slices::Random(40),
        _ => Slices::Random(5000),
    };
    let purses = [Purse::new(1 << 20), Purse::new(1 << 20)];
    // In half of the runs, the ends refuse more than a few streams.
    let limited = list.first().is_some_and(|byte| byte & 0x80 != 0);
    let streams_max = if limited { REFUSING } else { STREAMS };
    let config = LinkConfig { window_initial: 32 << 10, streams_max, ..LinkConfig::default() };
    let budgets = purses.clone().map(|purse| Rc::new(purse) as Rc<dyn proto::Budget>);
    let mut pair = Pair::new([config; 2], budgets, seed);
    pair.conditions = Conditions {
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(1),
        slices,
        ..Conditions::default()
    };
    // Half of the runs have a lane per stream and direction.
    pair.laned = list.first().is_some_and(|byte| byte & 0x40 != 0);
    pair.reconnect();
    let (written, live, tally) = (BTreeMap::new(), Vec::new(), Tally::default());
    let mut run = Run { pair, limited, written, live, tally };
    for op in list.chunks_exact(2) {
        run.apply(op[0], op[1]);
        run.check_fronts();
    }
    run.heal_and_check();
    let tally = run.tally;
    drop(run);
    for purse in &purses {
        assert_eq!(purse.used(), 0, "all memory is given back");
    }
    tally
}

struct Run {
    pair: Pair,
    /// Streams may be refused.
    limited: bool,
    written: BTreeMap<(u32, usize), Written>,
    live: Vec<StreamId>,
    tally: Tally,
}

impl Run {
    fn apply(&mut self, op: u8, value: u8) {
        let side = SIDES[usize::from(op >> 7)];
        let id = match self.live.len() {
            0 => None,
            n => Some(self.live[usize::from(value) % n]),
        };
        // An end can only touch streams that it has seen.
        let id = id.filter(|id| self.pair.end(side).streams.contains_key(&id.raw()));
        match (op & 31, id) {
            (0..=2, _) if self.live.len() < STREAMS => {
                // An end that goes away opens no streams.
                let Some(id) = self.pair.try_open(side, &open("x")) else { return };
                self.pair.end_mut(side).automatic = value & 1 == 0;
                self.pair.end_mut(side.peer()).automatic = value & 2 == 0;
                self.live.push(id);
                self.tally.streams += 1;
            }
            (3..=9, Some(id)) => self.write(side, id, 1 + u64::from(value) * u64::from(op & 31)),
            (10, Some(id)) => self.write(side, id, 20_000),
            (11..=12, Some(id)) => {
                self.pair.finish(side, id);
                self.of(side, id).finished = true;
            }
            (13, Some(id)) => {
                self.pair.reset(side, id, ResetCode::Aborted);
                self.of(side, id).aborted = true;
            }
            (14, Some(id)) => {
                self.pair.stop(side, id, ResetCode::Aborted);
                self.of(side.peer(), id).aborted = true;
            }
            (15, Some(id)) => self.pair.consume(side, id, usize::from(value) * 64),
            (16..=17, _) => self.kill(),
            (18, _) => {
                let _ = self.pair.add();
            }
            (19, _) => {
                let number = self.pair.end(side).link.active_carrier();
                if let Some(number) = number {
                    self.tally.kills += 1;
                    self.pair.lose(side, number);
                }
            }
            (20, _) => self.pair.reconnect(),
            (21, _) => self.pair.cut_after(side, self.pair.delivered(side) + u64::from(value)),
            (22..=23, _) => self.pair.run_for(Duration::from_millis(value.into())),
            (24, Some(id)) if id.opener() == Some(side.peer()) => {
                self.pair.refuse(side, id, ResetCode::Refused);
                self.of(side, id).aborted = true;
                self.of(side.peer(), id).aborted = true;
            }
            (25, _) if value < 16 => {
                self.pair.end_mut(side).link.go_away();
                self.limited = true;
            }
            _ => {
                for _ in 0..=value % 8 {
                    self.pair.step();
                }
            }
        }
        let ends = &self.pair.ends;
        self.live.retain(|id| ends.iter().any(|end| !is_over(end, *id)));
        if ends.iter().all(|end| end.link.active_carrier().is_none()) {
            self.pair.reconnect();
        }
    }

    fn kill(&mut self) {
        self.tally.kills += 1;
        self.pair.kill();
        self.pair.reconnect();
    }

    fn of(&mut self, side: Side, id: StreamId) -> &mut Written {
        self.written.entry((id.raw(), place(side))).or_default()
    }

    fn write(&mut self, side: Side, id: StreamId, n: u64) {
        let seen = self.pair.seen(side, id);
        if seen.closed || seen.pending() > 100_000 {
            return;
        }
        let written = self.of(side, id);
        if written.finished || written.aborted {
            return;
        }
        let start = written.bytes;
        written.bytes += n;
        let bytes: Vec<u8> = (start..start + n).map(|at| pattern(id, side, at)).collect();
        self.pair.write(side, id, &bytes);
    }

    /// Checks that the bytes read are a prefix of the bytes written.
    fn check_fronts(&mut self) {
        for side in SIDES {
            assert_eq!(self.pair.end(side).violation, None, "no end breaks a rule");
            for (&raw, seen) in &mut self.pair.ends[place(side)].streams {
                let id = StreamId::new(raw);
                let start = seen.count - seen.got.len() as u64;
                for (at, byte) in (start..).zip(seen.got.drain(..)) {
                    assert_eq!(byte, pattern(id, side.peer(), at), "{id} at {at} for {side:?}");
                }
                let most = self.written.get(&(raw, place(side.peer()))).map_or(0, |w| w.bytes);
                assert!(seen.count <= most, "{id}: more arrived than was written");
            }
        }
    }

    /// Adds a live carrier, consumes all bytes and ends all directions: nothing may be left.
    fn heal_and_check(&mut self) {
        self.pair.reconnect();
        for _ in 0..200 {
            for side in SIDES {
                let ids: Vec<u32> = self.pair.end(side).streams.keys().copied().collect();
                for id in ids.into_iter().map(StreamId::new) {
                    self.pair.finish(side, id);
                    self.of(side, id).finished = true;
                    self.pair.consume(side, id, usize::MAX);
                }
            }
            self.pair.run();
            if self.pair.ends.iter().all(|end| end.link.stream_count() == 0) {
                break;
            }
        }
        self.check_fronts();
        for side in SIDES {
            let end = self.pair.end(side);
            assert_eq!(end.link.stream_count(), 0, "{side:?} forgets every stream: {end:#?}");
            assert_eq!(end.link.retained(), 0, "{side:?} retains nothing");
            for (&raw, seen) in &end.streams {
                assert!(seen.closed, "{side:?} was told that {raw} is over");
                let empty = Written::default();
                let to = self.written.get(&(raw, place(side.peer()))).unwrap_or(&empty);
                self.tally.bytes += seen.count;
                if to.aborted {
                    continue;
                }
                if !self.pair.end(side.peer()).streams.contains_key(&raw) {
                    assert!(self.limited, "{side:?}: {raw} was refused and need not be");
                    let refused =
                        matches!(seen.reset, Some(ResetCode::Limit | ResetCode::Shutdown));
                    assert!(refused, "{side:?} knows that {raw} was refused: {:?}", seen.reset);
                    self.tally.refused += 1;
                    continue;
                }
                assert_eq!(seen.reset, None, "{side:?}: nobody aborted {raw}");
                assert!(seen.finished, "{side:?} saw the end of {raw}");
                assert_eq!(seen.count, to.bytes, "{side:?} has all of {raw}");
            }
        }
    }
}

fn is_over(end: &super::End, id: StreamId) -> bool {
    end.streams.get(&id.raw()).is_some_and(|seen| seen.closed)
}

/// Passes `data` to a link that has streams and a standby. The first byte sets the length of the
/// pieces. Nothing may panic, and the memory that the link keeps stays small.
///
/// # Panics
/// Panics when the link's memory exceeds its limits.
pub fn frames(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    let purse = Purse::new(1 << 20);
    let config = LinkConfig { streams_max: 100, ..LinkConfig::default() };
    let now = super::epoch();
    let mut link = Link::new(Side::Server, config, Rc::new(purse.clone()), now);
    let (first, second) = (CarrierNumber(1), CarrierNumber(2));
    link.attach(now, first, Attach::New);
    let own = link.open(&open("own"));
    own.into_iter().for_each(|key| assert!(link.send_slice(key, b"hello")));
    // In half of the inputs, the link has lost a carrier.
    let carrier = if piece & 1 == 0 { first } else { second };
    if carrier == second {
        link.attach(now, second, Attach::Replaces(first));
    }
    let (mut buf, mut out) = (BytesMut::new(), VecDeque::new());
    // In some inputs, every second piece arrives on a lane of a single stream.
    let (mut lane, mut lane_buf) = (LaneInput::new(), BytesMut::new());
    let laned = piece & 0x80 != 0;
    for (n, part) in data.chunks(usize::from(piece & 0x7f) / 2 + 1).enumerate() {
        let on_lane = laned && n % 2 == 1;
        if on_lane { &mut lane_buf } else { &mut buf }.extend_from_slice(part);
        loop {
            let outcome = if on_lane {
                link.handle_lane(now, carrier, &mut lane, &mut lane_buf)
            } else {
                link.handle_input(now, carrier, &mut buf)
            };
            match outcome {
                Ok(None) => break,
                Ok(Some(Event::Data { key, bytes })) => link.consume(now, key, bytes.len()),
                Ok(Some(_)) => {}
                Err(violation) => {
                    link.abort(violation);
                    link.poll_transmit(now, carrier, &mut out);
                    own.into_iter().for_each(|key| assert!(link.room(key) <= 16 << 20));
                    return;
                }
            }
        }
        assert!(buf.len() <= 17 << 10, "at most one small frame waits");
        link.poll_transmit(now, carrier, &mut out);
        out.clear();
        assert!(purse.used() <= 1 << 20 && link.stream_count() <= 101, "memory is bounded");
    }
    link.handle_timeout(now + Duration::from_secs(60));
    drop(link);
    assert_eq!(purse.used(), 0, "all memory is given back");
}
