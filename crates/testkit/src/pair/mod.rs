//! Two links in virtual time over emulated carriers, so that a test reads as a short sequence of
//! steps.
//!
//! ```
//! use testkit::pair::{Pair, open};
//! use proto::Side::{Client, Server};
//!
//! let mut pair = Pair::connected(1);
//! let id = pair.open(Client, &open("web"));
//! pair.write(Client, id, b"hello");
//! pair.finish(Client, id);
//! pair.kill();                       // both ends notice
//! pair.reconnect();                  // a new carrier replaces it
//! pair.run();
//! assert_eq!(pair.seen(Server, id).got, b"hello");
//! assert!(pair.seen(Server, id).finished);
//! ```
//!
//! [`ops`] drives a pair by a list of numbers against an oracle. It is the only generator of
//! operations: random tests and the fuzzer share it.

mod budget;
mod end;
pub mod ops;
mod wire;

use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::{
    Attach, Budget, CarrierNumber, FlowId, Link, LinkConfig, Open, Preview, Priority, ResetCode,
    Side, StreamId, Target, Unlimited,
};

pub use budget::Purse;
pub use end::{Conversation, End, Seen};

use crate::netem::Conditions;
use wire::Wire;

/// The start of virtual time: an arbitrary moment, the same for the whole process.
#[must_use]
pub fn epoch() -> Instant {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    *EPOCH
}

/// A request for a service without options.
#[must_use]
pub fn open(service: &str) -> Open {
    open_as(service, Priority::Normal)
}

/// A request for a service with a priority class.
#[must_use]
pub fn open_as(service: &str, priority: Priority) -> Open {
    Open { target: Target::Service(service.to_owned()), visitor: None, priority, fields: None }
}

/// The client's and the server's end of one link, the carriers between them, and the time.
#[derive(Debug)]
pub struct Pair {
    /// Virtual time.
    pub now: Instant,
    /// The conditions of the next carriers.
    pub conditions: Conditions,
    /// Whether the next carriers have a lane per stream and direction.
    pub laned: bool,
    ends: [End; 2],
    wires: Vec<Wire>,
    last: u32,
    seed: u64,
}

const fn place(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Pair {
    /// Two links without a carrier.
    #[must_use]
    pub fn new(configs: [LinkConfig; 2], budgets: [Rc<dyn Budget>; 2], seed: u64) -> Self {
        let now = epoch();
        let [client, server] = budgets;
        let ends = [
            End::new(Link::new(Side::Client, configs[0], client, now)),
            End::new(Link::new(Side::Server, configs[1], server, now)),
        ];
        let (conditions, laned) = (Conditions::default(), false);
        Self { now, conditions, laned, ends, wires: Vec::new(), last: 0, seed }
    }

    /// Two links with default settings and no memory limit, on an ideal carrier.
    #[must_use]
    pub fn connected(seed: u64) -> Self {
        Self::over(Conditions::default(), LinkConfig::default(), seed)
    }

    /// Two links with these settings on a carrier with these conditions.
    #[must_use]
    pub fn over(conditions: Conditions, config: LinkConfig, seed: u64) -> Self {
        Self::over_lanes(false, conditions, config, seed)
    }

    /// As [`Pair::over`]; if `laned` is set, carriers have a lane per stream and direction.
    #[must_use]
    pub fn over_lanes(laned: bool, conditions: Conditions, config: LinkConfig, seed: u64) -> Self {
        let mut pair = Self::new([config; 2], [Rc::new(Unlimited), Rc::new(Unlimited)], seed);
        pair.conditions = conditions;
        pair.laned = laned;
        pair.reconnect();
        pair
    }

    /// The end on one side.
    #[must_use]
    pub const fn end(&self, side: Side) -> &End {
        &self.ends[place(side)]
    }

    /// The end on one side, mutable.
    pub const fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[place(side)]
    }

    /// An end's record of a stream.
    ///
    /// # Panics
    /// Panics when the end has no record of the stream.
    #[must_use]
    pub fn seen(&self, side: Side, id: StreamId) -> &Seen {
        self.end(side).streams.get(&id.raw()).expect("the stream was seen")
    }

    /// Opens a stream.
    ///
    /// # Panics
    /// Panics when the link refuses to open a stream.
    pub fn open(&mut self, side: Side, open: &Open) -> StreamId {
        self.try_open(side, open).expect("the link opens streams")
    }

    /// Opens a stream, if the link allows it.
    pub fn try_open(&mut self, side: Side, open: &Open) -> Option<StreamId> {
        self.end_mut(side).open(open)
    }

    /// Opens a flow.
    ///
    /// # Panics
    /// Panics when the link refuses to open a flow.
    pub fn open_flow(&mut self, side: Side, open: &Open) -> FlowId {
        self.end_mut(side).open_flow(open).expect("the link opens flows")
    }

    /// Sends a datagram. Returns the number of dropped datagrams.
    ///
    /// # Panics
    /// Panics when the end has no record of the flow.
    pub fn send_datagram(&mut self, side: Side, id: FlowId, payload: &[u8]) -> usize {
        let key = self.conversation(side, id).key;
        let now = self.now;
        self.end_mut(side).link.send_datagrams(now, key, std::iter::once(payload))
    }

    /// An end's record of a flow.
    ///
    /// # Panics
    /// Panics when the end has no record of the flow.
    #[must_use]
    pub fn conversation(&self, side: Side, id: FlowId) -> &Conversation {
        self.end(side).flows.get(&id.raw()).expect("the flow was seen")
    }

    /// Queues bytes. The end writes them as the link has room.
    pub fn write(&mut self, side: Side, id: StreamId, bytes: &[u8]) {
        self.end_mut(side).write(id, Bytes::copy_from_slice(bytes));
    }

    /// Queues `total` zero bytes without holding them in memory.
    pub fn feed(&mut self, side: Side, id: StreamId, mut total: u64) {
        static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
        while total > 0 {
            let n = usize::try_from(total).unwrap_or(ZEROS.len()).min(ZEROS.len());
            self.end_mut(side).write(id, Bytes::from_static(&ZEROS[..n]));
            total -= n as u64;
        }
    }

    /// Ends a direction after the link has accepted all queued bytes.
    pub fn finish(&mut self, side: Side, id: StreamId) {
        self.end_mut(side).finish(id);
    }

    /// Aborts a direction.
    pub fn reset(&mut self, side: Side, id: StreamId, code: ResetCode) {
        self.end_mut(side).reset(id, code);
    }

    /// Asks the peer to stop sending on a stream.
    pub fn stop(&mut self, side: Side, id: StreamId, code: ResetCode) {
        self.end_mut(side).stop(id, code);
    }

    /// Refuses a stream that the peer opened.
    pub fn refuse(&mut self, side: Side, id: StreamId, code: ResetCode) {
        self.end_mut(side).refuse(id, code);
    }

    /// Consumes bytes of a stream that does not consume automatically; see [`Seen::automatic`].
    pub fn consume(&mut self, side: Side, id: StreamId, most: usize) {
        let now = self.now;
        self.end_mut(side).consume(now, id, most);
    }

    /// The number of the newest carrier.
    #[must_use]
    pub const fn carrier(&self) -> CarrierNumber {
        CarrierNumber(self.last)
    }

    /// Kills the newest carrier. Both ends notice.
    pub fn kill(&mut self) {
        self.kill_carrier(self.carrier());
    }

    /// Kills a carrier. Both ends notice.
    pub fn kill_carrier(&mut self, number: CarrierNumber) {
        for side in SIDES {
            self.lose(side, number);
        }
        self.wires.retain(|wire| wire.number != number);
    }

    /// Kills a carrier, and only `side` notices. The other end's writes are lost.
    pub fn lose(&mut self, side: Side, number: CarrierNumber) {
        let now = self.now;
        if let Some(wire) = self.wires.iter_mut().find(|wire| wire.number == number) {
            wire.silence();
            wire.left[place(side)] = true;
        }
        self.end_mut(side).link.detach(now, number);
        self.end_mut(side).collect(now);
    }

    /// Closes a carrier at this end. The bytes that this end has sent still arrive at the other
    /// end.
    pub fn leave(&mut self, side: Side, number: CarrierNumber) {
        let now = self.now;
        if let Some(wire) = self.wires.iter_mut().find(|wire| wire.number == number) {
            wire.left[place(side)] = true;
        }
        self.end_mut(side).link.detach(now, number);
        self.end_mut(side).collect(now);
    }

    /// Previews the server's link for a client that has lost all carriers: the client's RESUME is
    /// on a new carrier. The client attaches the carrier at once, the server after
    /// [`Pair::attach_previewed`].
    pub fn preview(&mut self) -> (CarrierNumber, Preview) {
        let (now, preview) = (self.now, self.end(Side::Server).link.preview());
        let number = self.wire();
        if let Some(wire) = self.wires.last_mut() {
            wire.left[place(Side::Server)] = true;
            let pipe = &mut wire.pipes[place(Side::Server)];
            preview.frames.iter().for_each(|frame| pipe.write(now, frame.clone()));
        }
        self.attach(Side::Client, number, Attach::Replaces(number));
        (number, preview)
    }

    /// Attaches the carrier at the server, which has recognised the client. Returns false when the
    /// preview is void and the carrier is closed.
    pub fn attach_previewed(&mut self, number: CarrierNumber, preview: &Preview) -> bool {
        let (now, here) = (self.now, place(Side::Server));
        if !self.end_mut(Side::Server).link.attach_previewed(now, number, preview) {
            self.kill_carrier(number);
            return false;
        }
        if self.laned {
            self.end_mut(Side::Server).link.takes_packets(number);
        }
        self.end_mut(Side::Server).collect(now);
        self.wires.retain(|wire| wire.number == number);
        self.wires.iter_mut().for_each(|wire| wire.left[here] = false);
        self.close_dead(Side::Server);
        true
    }

    /// From now on, drops all bytes on all carriers, and neither end notices: a half-open path.
    pub fn silence(&mut self) {
        self.wires.iter_mut().for_each(Wire::silence);
    }

    /// As [`Pair::silence`], on one carrier.
    pub fn silence_carrier(&mut self, number: CarrierNumber) {
        self.wires.iter_mut().filter(|wire| wire.number == number).for_each(Wire::silence);
    }

    /// Kills the newest carrier after `bytes` bytes towards `to`; see [`Pair::step`].
    pub fn cut_after(&mut self, to: Side, bytes: u64) {
        if let Some(wire) = self.wires.last_mut() {
            wire.pipes[place(to.peer())].cut_after(bytes);
        }
    }

    /// Bytes that the newest carrier delivered to `to`.
    #[must_use]
    pub fn delivered(&self, to: Side) -> u64 {
        self.wires.last().map_or(0, |wire| wire.pipes[place(to.peer())].delivered())
    }

    /// A new carrier, attached at both ends: the first carrier, or the replacement of all earlier
    /// carriers.
    pub fn reconnect(&mut self) {
        let how = match self.last {
            0 => Attach::New,
            last => Attach::Replaces(CarrierNumber(last)),
        };
        self.wires.clear();
        let number = self.wire();
        for side in SIDES {
            self.attach(side, number, how);
        }
    }

    /// A standby beside the live carrier, attached at both ends.
    pub fn add(&mut self) -> CarrierNumber {
        let number = self.wire();
        for side in SIDES {
            self.attach(side, number, Attach::Adds);
        }
        number
    }

    /// A new carrier that is not attached at either end.
    pub fn wire(&mut self) -> CarrierNumber {
        self.last += 1;
        let number = CarrierNumber(self.last);
        let seed = self.seed.wrapping_mul(0x1_0001).wrapping_add(self.last.into());
        self.wires.push(Wire::new(number, self.conditions, self.laned, seed));
        number
    }

    /// Attaches a carrier at one end.
    pub fn attach(&mut self, side: Side, number: CarrierNumber, how: Attach) {
        let (now, laned) = (self.now, self.laned);
        self.end_mut(side).link.attach(now, number, how);
        if laned {
            self.end_mut(side).link.takes_packets(number);
        }
        self.end_mut(side).collect(now);
        self.close_dead(side);
    }

    /// Moves the links' output onto the carriers.
    pub fn pump(&mut self) {
        for side in SIDES {
            let (now, end) = (self.now, &mut self.ends[place(side)]);
            end.turn(now);
            for wire in self.wires.iter_mut().filter(|wire| !wire.left[place(side)]) {
                wire.fill(now, side, end);
            }
            end.collect(now);
            self.close_dead(side);
        }
    }

    /// Does one read at this end, from the first carrier with arrived bytes. Returns false when no
    /// carrier has any.
    pub fn deliver(&mut self, to: Side) -> bool {
        let (now, here) = (self.now, place(to));
        let end = &mut self.ends[here];
        let got = self
            .wires
            .iter_mut()
            .filter(|wire| !wire.left[here])
            .any(|wire| wire.read(now, to, end));
        self.close_dead(to);
        got
    }

    /// Runs one step: everything that is due now, or a jump to the time of the next event. Carriers
    /// that reach their cut are killed at both ends. Returns false when there will be no more
    /// events.
    pub fn step(&mut self) -> bool {
        self.pump();
        let mut busy = false;
        for side in SIDES {
            busy |= self.deliver(side);
        }
        let cut = self.wires.iter().find(|wire| wire.is_cut()).map(|wire| wire.number);
        if let Some(number) = cut {
            self.kill_carrier(number);
            return true;
        }
        if busy {
            return true;
        }
        self.pump();
        let Some(next) = self.next_moment() else { return false };
        self.now = self.now.max(next);
        true
    }

    /// The time of the next event, if the test does nothing.
    fn next_moment(&mut self) -> Option<Instant> {
        let now = self.now;
        let mut next: Option<Instant> = None;
        let mut at = |moment: Instant| next = Some(next.map_or(moment, |old| old.min(moment)));
        for (here, end) in self.ends.iter_mut().enumerate() {
            end.link.poll_timeout().into_iter().for_each(&mut at);
            for wire in &self.wires {
                if !wire.left[here] && end.link.has_output(wire.number) {
                    at(wire.pipes[here].writable_at(now, end.link.send_limit()));
                }
                if !wire.left[here] && self.laned && end.link.has_packets(wire.number) {
                    at(now);
                }
                if !wire.left[here] {
                    wire.next_arrival(SIDES[here]).into_iter().for_each(&mut at);
                }
            }
        }
        next
    }

    /// Steps until no bytes flow: nothing is in flight, and only timers are left to send something.
    ///
    /// # Panics
    /// Panics when that takes more than a hundred million steps.
    pub fn run(&mut self) {
        let calm = Duration::from_millis(400);
        let mut since = self.now;
        for _ in 0..100_000_000u64 {
            let before = self.traffic();
            if !self.step() {
                return;
            }
            if self.traffic() != before {
                since = self.now;
            } else if self.now.saturating_duration_since(since) > calm {
                return;
            }
        }
        panic!("the pair never comes to rest");
    }

    /// Steps for the duration `span`.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.pump();
            let due = self.next_moment().is_none_or(|next| next > end);
            let arrived = SIDES.map(|side| self.deliver(side)) != [false; 2];
            if !arrived && due {
                self.now = end;
                self.pump();
            } else if !arrived {
                self.step();
            }
        }
    }

    /// Bytes delivered over all live carriers, in both directions.
    fn traffic(&self) -> u64 {
        self.wires.iter().map(Wire::delivered).sum()
    }

    /// Closes the carriers that one end has given up at the other end.
    fn close_dead(&mut self, side: Side) {
        let now = self.now;
        for number in std::mem::take(&mut self.end_mut(side).dead) {
            self.end_mut(side).link.detach(now, number);
            self.end_mut(side).collect(now);
            if let Some(wire) = self.wires.iter_mut().find(|wire| wire.number == number) {
                wire.left[place(side)] = true;
                wire.silence();
            }
        }
        self.wires.retain(|wire| wire.left != [true; 2]);
    }
}
