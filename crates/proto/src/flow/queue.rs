//! Datagrams that wait for the carrier. Each flow has a bounded queue: a flow that sends too much
//! loses its own datagrams only. Old datagrams are dropped for new ones, which are more useful.
//! Flows of a priority class are served round robin, by bytes.

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

/// Maximum queue of a flow, in bytes and datagrams: 10 ms at 3 Gbit/s, because on a busy machine
/// the processes on the path may not be scheduled for some milliseconds. Datagrams that arrive
/// while the queue is full are dropped before they are copied.
const BURST_BYTES: usize = 4 << 20;
const BURST_DATAGRAMS: usize = 16 << 10;

/// Maximum bytes and datagrams that may be queued for longer than [`AGE`]. So the queue of a slow
/// carrier is short: 20 ms at 100 Mbit/s. Three datagrams of maximum size fit.
const FLOW_BYTES: usize = 256 << 10;
const FLOW_DATAGRAMS: usize = 1 << 10;

/// The queue of a sufficiently fast carrier drains within this time, even if the process is not
/// scheduled for some milliseconds.
const AGE: Duration = Duration::from_millis(20);

/// The same limits without a live carrier. Datagrams queued then are old when they are sent, and
/// few of them are useful.
const STALLED_BYTES: usize = 72 << 10;
const STALLED_DATAGRAMS: usize = 8;

/// Maximum bytes that are queued in all flows of a link.
const LINK_BYTES: usize = 8 << 20;

/// Memory of a queued datagram in addition to its frame, in bytes.
const OVERHEAD: usize = 64;

/// Quantum of a flow's turn, in bytes; a turn has at least one datagram.
const TURN: usize = 16 << 10;

/// Size of the chunks into which frames are packed, in bytes. Adjacent frames are sent as one
/// buffer.
const CHUNK: usize = 64 << 10;

/// Number of chunks. The memory of a chunk is reused when its frames have been sent.
const CHUNKS: usize = 4;

/// Queue capacity that an idle flow keeps, in datagrams.
const KEPT: usize = 8;

/// Progress of the link's control stream. At most [`AHEAD_MAX`] datagrams may overtake a FlowOpen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Bytes that were passed to the carrier.
    pub(crate) sent: Offset,
    /// Bytes that the peer has read.
    pub(crate) read: Offset,
    /// The carrier delivers datagrams and the control stream in order.
    pub(crate) in_order: bool,
}

/// The state of a flow in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Idle,
    Ready,
    /// The peer must read its FlowOpen first.
    Parked,
}

/// The sending direction of a flow.
#[derive(Debug)]
pub(crate) struct Outgoing {
    priority: Priority,
    /// Frames, with the time at which they were queued.
    waiting: VecDeque<(Instant, BytesMut)>,
    /// Bytes of the queued frames, including [`OVERHEAD`].
    bytes: usize,
    /// The end of our FlowOpen on the control stream; `None`: the peer has opened the flow.
    begins: Option<Offset>,
    /// Number of datagrams that were sent before the peer had read our FlowOpen.
    ahead: u8,
    standing: Standing,
    /// The number of the next fragmented datagram.
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

    /// Allocates the number of a fragmented datagram.
    pub(crate) const fn next_number(&mut self) -> u16 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }

    /// Whether the next datagram may be sent.
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
    /// Bytes that the first flow of the current class has sent in its turn.
    turn: usize,
    /// Bytes of all queued frames, including [`OVERHEAD`].
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
    /// Whether no flow is ready to send.
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

    /// Drops old datagrams to make room for a datagram of `needed` bytes. Returns the number of
    /// dropped datagrams.
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

    /// Drops the queued datagrams of a flow that is closed.
    pub(super) fn clear(&mut self, flow: &mut Outgoing) {
        self.bytes -= flow.bytes;
        flow.bytes = 0;
        flow.waiting = VecDeque::new();
    }

    /// Makes parked flows ready, after progress of the control stream or a change of the carrier.
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

    /// Takes the next frame and its flow.
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

/// Allocates frames from chunks.
#[derive(Debug, Default)]
struct Chunks {
    all: [BytesMut; CHUNKS],
    at: usize,
    /// Number of allocated chunks.
    made: usize,
}

impl Chunks {
    /// Builds a DATAGRAM frame with this payload.
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
