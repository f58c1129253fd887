//! A carrier between the two ends: a pipe in each direction, the bytes that each end has not
//! decoded yet, and on some carriers one more pipe for each direction of each stream.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use proto::{CarrierNumber, LaneInput, Outgoing, Priority, Side, StreamKey};

use super::{End, place};
use crate::netem::{Conditions, Pipe};

/// The maximum number of lanes that an end may have open at the same time; carriers alternate
/// between the two values. The payload of additional streams uses the first lane until a lane ends.
const LANES_MAX: [usize; 2] = [4, 1];

/// The maximum length of a datagram of a carrier with lanes, in bytes.
const PACKET: usize = 1_200;

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) number: CarrierNumber,
    /// Indexed by the end that writes.
    pub(super) pipes: [Pipe; 2],
    /// Indexed by the end that reads.
    inbox: [BytesMut; 2],
    /// Whether the end has closed the carrier.
    pub(super) left: [bool; 2],
    /// Lanes of single streams, indexed by the end that writes. `None` on a carrier without lanes.
    lanes: Option<[Lanes; 2]>,
    /// Datagrams in flight with the times of their arrival, indexed by the end that writes.
    packets: [VecDeque<(Instant, Bytes)>; 2],
    conditions: Conditions,
    seed: u64,
}

/// The lanes of one end.
#[derive(Debug)]
struct Lanes {
    open: Vec<OwnLane>,
    /// Streams without a lane: they stay here until a lane is free and none of their bytes are in
    /// flight.
    without: Vec<StreamKey>,
    made: u64,
    most: usize,
}

impl Lanes {
    fn new(carrier: CarrierNumber) -> Self {
        let most = LANES_MAX[usize::from(carrier.0.is_multiple_of(2))];
        Self { open: Vec::new(), without: Vec::new(), made: 0, most }
    }
}

#[derive(Debug)]
struct OwnLane {
    key: StreamKey,
    pipe: Pipe,
    inbox: BytesMut,
    input: LaneInput,
    /// Whether the lane has ended: nothing more is written.
    ended: bool,
}

impl Wire {
    pub(super) fn new(
        number: CarrierNumber,
        conditions: Conditions,
        laned: bool,
        seed: u64,
    ) -> Self {
        Self {
            number,
            pipes: [Pipe::new(conditions, seed), Pipe::new(conditions, !seed)],
            inbox: [BytesMut::new(), BytesMut::new()],
            left: [false; 2],
            lanes: laned.then(|| [Lanes::new(number), Lanes::new(number)]),
            packets: Default::default(),
            conditions,
            seed,
        }
    }

    pub(super) fn silence(&mut self) {
        self.pipes.iter_mut().for_each(Pipe::silence);
        let lanes = self.lanes.iter_mut().flatten();
        lanes.flat_map(|lanes| &mut lanes.open).for_each(|lane| lane.pipe.silence());
        self.packets = Default::default();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.pipes.iter().any(Pipe::is_cut)
    }

    /// Bytes delivered so far, in both directions.
    pub(super) fn delivered(&self) -> u64 {
        let lanes = self.lanes.iter().flatten().flat_map(|lanes| &lanes.open);
        let own: u64 = lanes.map(|lane| lane.pipe.delivered()).sum();
        own + self.pipes.iter().map(Pipe::delivered).sum::<u64>()
    }

    /// The time when `to` has something to read.
    pub(super) fn next_arrival(&self, to: Side) -> Option<Instant> {
        let from = 1 - place(to);
        let lanes = self.lanes.iter().flat_map(|lanes| &lanes[from].open);
        let own = lanes.filter(|lane| !lane.input.waits()).filter_map(|l| l.pipe.next_arrival());
        let packet = self.packets[from].iter().map(|(at, _)| *at).min();
        own.chain(self.pipes[from].next_arrival()).chain(packet).min()
    }

    /// Writes frames while the socket's buffer accepts them.
    pub(super) fn fill(&mut self, now: Instant, side: Side, end: &mut End) {
        let here = place(side);
        if self.lanes.is_some() {
            let mut out = Vec::new();
            end.link.poll_packets(now, self.number, (PACKET, usize::MAX), &mut out);
            for packet in out {
                // A third of the packets take twice as long as the others, and are overtaken.
                self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let late = if (self.seed >> 40).is_multiple_of(3) { 2 } else { 1 };
                self.packets[here].push_back((now + self.conditions.delay * late, packet));
            }
        }
        while end.link.has_output(self.number)
            && self.pipes[here].writable_at(now, end.link.send_limit()) <= now
        {
            let taken = match &mut self.lanes {
                None => {
                    let mut batch = VecDeque::new();
                    let taken = end.link.poll_transmit(now, self.number, &mut batch);
                    batch.drain(..).for_each(|frame| self.pipes[here].write(now, frame));
                    taken
                }
                Some(lanes) => {
                    let (conditions, seed) = (self.conditions, self.seed);
                    let (first, lanes) = (&mut self.pipes[here], &mut lanes[here]);
                    let mut batch = Batch { now, first, lanes, conditions, seed };
                    end.link.poll_transmit(now, self.number, &mut batch)
                }
            };
            if taken == 0 {
                return;
            }
            end.collect(now);
            end.turn(now);
        }
    }

    /// Does one read of `to`, from a stream's lane before the first lane: bytes that arrive early
    /// must wait. Returns false when nothing has arrived.
    pub(super) fn read(&mut self, now: Instant, to: Side, end: &mut End) -> bool {
        let (here, from) = (place(to), 1 - place(to));
        if let Some(at) = self.packets[from].iter().position(|(at, _)| *at <= now)
            && let Some((_, packet)) = self.packets[from].remove(at)
        {
            end.receive_packet(now, self.number, packet);
            return true;
        }
        for lane in self.lanes.iter_mut().flat_map(|lanes| &mut lanes[from].open) {
            if lane.input.waits() {
                continue;
            }
            let Some(piece) = lane.pipe.read(now) else { continue };
            lane.inbox.extend_from_slice(&piece);
            end.receive_lane(now, self.number, &mut lane.input, &mut lane.inbox);
            return true;
        }
        if let Some(lanes) = &mut self.lanes {
            let over = |lane: &mut OwnLane| {
                !lane.ended || !lane.inbox.is_empty() || lane.pipe.next_arrival().is_some()
            };
            lanes[from].open.retain_mut(over);
        }
        let Some(piece) = self.pipes[from].read(now) else { return false };
        self.inbox[here].extend_from_slice(&piece);
        end.receive(now, self.number, &mut self.inbox[here]);
        for lane in self.lanes.iter_mut().flat_map(|lanes| &mut lanes[from].open) {
            if lane.input.waits() {
                end.receive_lane(now, self.number, &mut lane.input, &mut lane.inbox);
            }
        }
        true
    }
}

/// Frames that move into the pipes of a carrier with lanes.
struct Batch<'a> {
    now: Instant,
    first: &'a mut Pipe,
    lanes: &'a mut Lanes,
    conditions: Conditions,
    seed: u64,
}

impl Batch<'_> {
    /// The pipe of a stream. A new pipe is made if the limit allows it.
    fn lane(&mut self, key: StreamKey) -> Option<&mut OwnLane> {
        let Lanes { open, without, made, most } = &mut *self.lanes;
        if without.contains(&key) {
            return None;
        }
        let place = open.iter().position(|lane| lane.key == key && !lane.ended);
        if place.is_none() && open.len() >= *most {
            without.push(key);
            return None;
        }
        let place = place.unwrap_or_else(|| {
            *made += 1;
            let pipe = Pipe::new(self.conditions, self.seed.rotate_left(17) ^ *made);
            let (inbox, input) = (BytesMut::new(), LaneInput::new());
            open.push(OwnLane { key, pipe, inbox, input, ended: false });
            open.len() - 1
        });
        open.get_mut(place)
    }
}

impl Outgoing for Batch<'_> {
    const LANES: bool = true;

    fn push(&mut self, frame: Bytes) {
        self.first.write(self.now, frame);
    }

    fn push_payload(&mut self, key: StreamKey, _priority: Priority, frame: Bytes) {
        let now = self.now;
        match self.lane(key) {
            Some(lane) => lane.pipe.write(now, frame),
            None => self.first.write(now, frame),
        }
    }

    fn push_fin(&mut self, key: StreamKey, frame: Bytes) {
        self.push_payload(key, Priority::Normal, frame);
        if let Some(lane) = self.lane(key) {
            lane.ended = true;
        }
    }

    fn abort(&mut self, key: StreamKey) {
        // Bytes in flight may arrive or not; here they do not arrive.
        self.lanes.open.retain(|lane| lane.key != key);
    }

    fn holds_back(&mut self, key: StreamKey, _priority: Priority, under_way: u64) -> bool {
        let Lanes { open, without, most, made } = &mut *self.lanes;
        // As after a long silence: a lane ends, and the next payload opens another lane.
        if under_way == 0 && made.is_multiple_of(3) {
            let own = open.iter_mut().find(|lane| lane.key == key && !lane.ended);
            own.into_iter().for_each(|lane| lane.ended = true);
        }
        let Some(place) = without.iter().position(|waiting| *waiting == key) else { return false };
        if open.len() >= *most {
            return false;
        }
        if under_way == 0 {
            without.swap_remove(place);
        }
        // Every other stream waits until nothing is in flight; the rest change lanes only if
        // nothing happens to be in flight.
        under_way > 0 && (key.id().raw() / 2).is_multiple_of(2)
    }

    fn takes_payload(&self) -> bool {
        true
    }
}
