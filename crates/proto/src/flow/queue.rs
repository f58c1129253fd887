//! Datagrams that wait for the carrier. Each flow has a bounded queue: a flow that sends too much
//! loses its own datagrams only. Datagrams that have waited for long are dropped for new ones,
//! which are worth more. Flows of a priority class take turns, by bytes.

use crate::Instant;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use slab::Slab;

use super::{AHEAD_MAX, DATAGRAM_MAX, Flow, FlowKey, Volume};
use crate::budget::Charge;
use crate::frame::{HEAD, Head, Kind};
use crate::offset::{Offset, length};
use crate::{Budget, Priority, StreamId};

/// Bytes and datagrams that wait in a flow, at most: what comes in 10 ms at 3 Gbit/s, because on a
/// busy machine the processes on the way do not run for some milliseconds. Datagrams that come when
/// the queue is full are dropped before they are copied.
const BURST_BYTES: usize = 4 << 20;
const BURST_DATAGRAMS: usize = 16 << 10;

/// Bytes and datagrams that may wait for longer than [`AGE`], at most. So the queue in front of a
/// slow carrier is short: 20 ms at 100 Mbit/s. Three datagrams of the largest size fit.
const FLOW_BYTES: usize = 256 << 10;
const FLOW_DATAGRAMS: usize = 1 << 10;

/// A queue in front of a carrier that is fast enough is empty after this time, even if the process
/// does not run for some milliseconds.
const AGE: Duration = Duration::from_millis(20);

/// The same without a live carrier. What waits then is old when it leaves, and little of it is of
/// use.
const STALLED_BYTES: usize = 72 << 10;
const STALLED_DATAGRAMS: usize = 8;

/// Bytes that wait in all flows of a link, at most.
const LINK_BYTES: usize = 8 << 20;

/// Memory of a queued datagram beside its frame, bytes.
const OVERHEAD: usize = 64;

/// A flow's turn lasts for so many bytes, or for one datagram if that is longer.
const TURN: usize = 16 << 10;

/// Frames are packed into chunks of this size. Those that stand side by side leave as one piece.
const CHUNK: usize = 64 << 10;

/// Chunks in use at once. The memory of the first is used again when its frames have left.
const CHUNKS: usize = 4;

/// Capacity of a queue that an idle flow keeps, datagrams.
const KEPT: usize = 8;

/// How far the control stream of the link has come. A FlowOpen must not be overtaken by more than
/// [`AHEAD_MAX`] datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Bytes that were given to the carrier.
    pub(crate) sent: Offset,
    /// Bytes that the peer has read.
    pub(crate) read: Offset,
    /// The carrier delivers datagrams and the control stream in order.
    pub(crate) in_order: bool,
}

/// Where a flow stands in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Idle,
    Ready,
    /// Its FlowOpen has to arrive first.
    Parked,
}

/// The sending direction of a flow.
#[derive(Debug)]
pub(crate) struct Outgoing {
    priority: Priority,
    /// Frames, and since when they wait.
    waiting: VecDeque<(Instant, BytesMut)>,
    /// Bytes of the waiting frames, with [`OVERHEAD`].
    bytes: usize,
    /// The end of our FlowOpen on the control stream; `None`: the peer has opened the flow.
    begins: Option<Offset>,
    /// Datagrams that left before the peer had read our FlowOpen.
    ahead: u8,
    standing: Standing,
    /// The number of the next datagram that is cut.
    number: u16,
    pub(crate) taken: Volume,
}

impl Outgoing {
    pub(crate) const fn new(priority: Priority, begins: Option<Offset>) -> Self {
        Self {
            priority,
            waiting: VecDeque::new(),
            bytes: 0,
            begins,
            ahead: 0,
            standing: Standing::Idle,
            number: 0,
            taken: Volume { datagrams: 0, bytes: 0 },
        }
    }

    /// The number of a datagram that is cut.
    pub(crate) const fn next_number(&mut self) -> u16 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }

    /// Whether the next datagram may leave.
    fn may_leave(&mut self, reach: Reach) -> bool {
        let Some(begins) = self.begins else { return true };
        if reach.read >= begins {
            self.begins = None;
            return true;
        }
        reach.sent >= begins && (reach.in_order || self.ahead < AHEAD_MAX)
    }
}

/// The queues of a link.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Flows with datagrams, by priority. The key of a closed flow is skipped.
    ready: [VecDeque<FlowKey>; 3],
    parked: Vec<FlowKey>,
    /// Bytes that the first flow of a class has sent in its turn.
    turn: usize,
    /// Bytes of all waiting frames, with [`OVERHEAD`].
    bytes: usize,
    chunks: Chunks,
    charge: Charge,
}

const fn class(priority: Priority) -> usize {
    match priority {
        Priority::Interactive => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

fn cost(frame: &BytesMut) -> usize {
    frame.len() + OVERHEAD
}

impl Queues {
    /// Whether no flow waits for the carrier.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.iter().all(VecDeque::is_empty)
    }

    /// Queues a datagram. Returns the number of dropped datagrams.
    pub(super) fn push(
        &mut self,
        now: Instant,
        key: FlowKey,
        flow: &mut Outgoing,
        payload: &[u8],
        is_live: bool,
    ) -> usize {
        flow.taken.add(payload.len());
        if payload.len() > DATAGRAM_MAX {
            return 1;
        }
        let needed = HEAD + payload.len() + OVERHEAD;
        let dropped = self.drop_old(now, flow, needed, is_live);
        if flow.waiting.len() >= BURST_DATAGRAMS
            || flow.bytes + needed > BURST_BYTES
            || self.bytes + needed > LINK_BYTES
        {
            return dropped + 1;
        }
        let frame = self.chunks.frame(key, payload);
        flow.bytes += needed;
        self.bytes += needed;
        flow.waiting.push_back((now, frame));
        if flow.standing == Standing::Idle {
            flow.standing = Standing::Ready;
            self.ready[class(flow.priority)].push_back(key);
        }
        dropped
    }

    /// Drops what has waited for long, as far as a datagram of `needed` bytes wants its place.
    /// Returns the number of dropped datagrams.
    fn drop_old(
        &mut self,
        now: Instant,
        flow: &mut Outgoing,
        needed: usize,
        is_live: bool,
    ) -> usize {
        let (bytes, datagrams, age) = if is_live {
            (FLOW_BYTES, FLOW_DATAGRAMS, AGE)
        } else {
            (STALLED_BYTES, STALLED_DATAGRAMS, Duration::ZERO)
        };
        let mut dropped = 0;
        while flow.waiting.len() >= datagrams
            || flow.bytes + needed > bytes
            || self.bytes + needed > LINK_BYTES
        {
            let is_old =
                |oldest: &mut (Instant, BytesMut)| now.saturating_duration_since(oldest.0) >= age;
            let Some((_, oldest)) = flow.waiting.pop_front_if(is_old) else { break };
            flow.bytes -= cost(&oldest);
            self.bytes -= cost(&oldest);
            dropped += 1;
        }
        dropped
    }

    /// Drops what waits in a flow that is closed.
    pub(super) fn clear(&mut self, flow: &mut Outgoing) {
        self.bytes -= flow.bytes;
        flow.bytes = 0;
        flow.waiting = VecDeque::new();
    }

    /// The control stream has come further, or the carrier is another.
    pub(crate) fn unpark(&mut self, flows: &mut Slab<Flow>) {
        for key in std::mem::take(&mut self.parked) {
            let flow = flows.get_mut(key.index).filter(|flow| flow.id == key.id);
            if let Some(flow) = flow {
                flow.outgoing.standing = Standing::Ready;
                self.ready[class(flow.outgoing.priority)].push_back(key);
            }
        }
    }

    pub(super) fn pop(&mut self, flows: &mut Slab<Flow>, reach: Reach) -> Option<BytesMut> {
        self.pop_of(flows, reach).map(|(_, frame)| frame)
    }

    /// The next frame and its flow.
    pub(super) fn pop_of(
        &mut self,
        flows: &mut Slab<Flow>,
        reach: Reach,
    ) -> Option<(FlowKey, BytesMut)> {
        for class in 0..self.ready.len() {
            while let Some(&key) = self.ready[class].front() {
                let flow = flows.get_mut(key.index).filter(|flow| flow.id == key.id);
                let Some(Flow { outgoing: flow, .. }) = flow else {
                    self.next_turn(class);
                    continue;
                };
                if !flow.may_leave(reach) {
                    flow.standing = Standing::Parked;
                    self.next_turn(class);
                    self.parked.push(key);
                    continue;
                }
                let Some((_, frame)) = flow.waiting.pop_front() else {
                    flow.standing = Standing::Idle;
                    flow.waiting.shrink_to(KEPT);
                    self.next_turn(class);
                    continue;
                };
                if flow.begins.is_some() {
                    flow.ahead = flow.ahead.saturating_add(1);
                }
                flow.bytes -= cost(&frame);
                self.bytes -= cost(&frame);
                self.turn += frame.len();
                if flow.waiting.is_empty() {
                    flow.standing = Standing::Idle;
                    flow.waiting.shrink_to(KEPT);
                    self.next_turn(class);
                } else if self.turn >= TURN {
                    self.next_turn(class);
                    self.ready[class].push_back(key);
                }
                return Some((key, frame));
            }
        }
        None
    }

    fn next_turn(&mut self, class: usize) {
        self.turn = 0;
        self.ready[class].pop_front();
    }

    pub(super) fn rest(&mut self) {
        self.chunks = Chunks::default();
        self.parked.shrink_to_fit();
        self.ready.iter_mut().for_each(VecDeque::shrink_to_fit);
    }

    pub(super) fn settle(&mut self, budget: &dyn Budget) {
        self.charge.set(0, budget);
    }

    pub(super) fn account(&mut self, budget: &dyn Budget) {
        self.charge.set(length(self.bytes + self.chunks.memory()), budget);
    }
}

/// The memory of frames.
#[derive(Debug, Default)]
struct Chunks {
    all: [BytesMut; CHUNKS],
    at: usize,
    /// Chunks that were made.
    made: usize,
}

impl Chunks {
    /// A frame with this payload.
    fn frame(&mut self, key: FlowKey, payload: &[u8]) -> BytesMut {
        let head = Head::new(Kind::Datagram, 0, payload.len(), StreamId::new(key.id.raw()));
        let needed = HEAD + payload.len();
        let mut own = BytesMut::new();
        let chunk = if needed > CHUNK / 2 {
            own.reserve(needed);
            &mut own
        } else {
            if self.all[self.at].capacity() < needed && !self.all[self.at].try_reclaim(CHUNK) {
                self.at = (self.at + 1) % CHUNKS;
                let next = &mut self.all[self.at];
                if next.capacity() < needed && !next.try_reclaim(CHUNK) {
                    *next = BytesMut::with_capacity(CHUNK);
                    self.made = (self.made + 1).min(CHUNKS);
                }
            }
            &mut self.all[self.at]
        };
        chunk.put_slice(&head.encode());
        chunk.put_slice(payload);
        chunk.split()
    }

    const fn memory(&self) -> usize {
        self.made * CHUNK
    }
}
