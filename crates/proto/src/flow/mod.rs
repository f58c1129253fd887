//! Flows: the datagrams between visitors and UDP targets over one link, in both directions.
//!
//! A flow has no credit and no replay. Datagrams that wait for the carrier are in a queue of their
//! flow (`queue.rs`), which is bounded in size and in age. Datagrams that overtake the FlowOpen of
//! their flow wait in a small buffer (`early.rs`). A carrier with native datagrams may limit their
//! length: longer datagrams are fragmented, and the receiver reassembles them (`fragment.rs`).

mod early;
mod fragment;
mod queue;

use crate::Instant;

use bytes::{Buf, Bytes, BytesMut};
use slab::Slab;

use early::Early;
use fragment::Joiner;
pub(crate) use queue::Reach;
use queue::{Outgoing, Queues};

use crate::frame::HEAD;
use crate::link::Ids;
use crate::offset::Offset;
use crate::{Budget, FlowId, Priority, Side};

/// Length of the largest datagram, in bytes: the maximum payload of UDP over IPv4.
pub const DATAGRAM_MAX: usize = 65_507;

/// Maximum number of datagrams of a flow that are sent before the peer has read its FlowOpen, if
/// datagrams can overtake the control stream. The receiver buffers the same number.
pub(crate) const AHEAD_MAX: u8 = 8;

/// Identifies a flow of a link. The key of a closed flow matches no flow and is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    pub(crate) index: usize,
    pub(crate) id: FlowId,
}

impl FlowKey {
    /// Index in a table that a driver keeps beside the link. Reused after
    /// [`Event::FlowClosed`](crate::Event::FlowClosed).
    #[must_use]
    pub const fn index(self) -> usize {
        self.index
    }

    /// The id on the wire.
    #[must_use]
    pub const fn id(self) -> FlowId {
        self.id
    }
}

/// The traffic of a flow so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowCounts {
    /// The id of the flow.
    pub id: FlowId,
    /// Whether this side opened the flow.
    pub is_ours: bool,
    /// From the peer.
    pub received: Volume,
    /// Accepted for the peer, including dropped datagrams.
    pub sent: Volume,
}

/// A number of datagrams, and their payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Volume {
    /// Datagrams.
    pub datagrams: u64,
    /// Payload bytes.
    pub bytes: u64,
}

impl Volume {
    fn add(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += crate::offset::length(bytes);
    }
}

/// The numbers of received datagrams that a link dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowDrops {
    /// Datagrams that arrived before the FlowOpen of their flow without room for them.
    pub early: u64,
    /// Datagrams of closed flows.
    pub late: u64,
    /// Datagrams with lost fragments, or without room for reassembly.
    pub unjoined: u64,
}

/// A flow of a link.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    pub(crate) received: Volume,
    pub(crate) outgoing: Outgoing,
}

/// All flows of a link.
#[derive(Debug)]
pub(crate) struct Flows {
    side: Side,
    max: usize,
    all: Slab<Flow>,
    ids: Ids<FlowId>,
    /// The id of our next flow; `None` if the ids are exhausted.
    next: Option<FlowId>,
    /// The highest id that the peer opened.
    highest: Option<FlowId>,
    pub(crate) queues: Queues,
    pub(crate) early: Early,
    joiner: Joiner,
    drops: FlowDrops,
}

/// The outcome of receiving a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A complete datagram of this flow.
    Whole(FlowKey, Bytes),
    /// The datagram waits for more fragments or for its FlowOpen, or was dropped and counted.
    Nothing,
    /// No such flow can exist.
    Impossible,
}

impl Flows {
    /// `max`: maximum number of open flows; 0: the peer does not support flows.
    pub(crate) fn new(side: Side, max: usize) -> Self {
        Self {
            side,
            max,
            all: Slab::new(),
            ids: Ids::default(),
            next: Some(FlowId::first(side)),
            highest: None,
            queues: Queues::default(),
            early: Early::default(),
            joiner: Joiner::default(),
            drops: FlowDrops::default(),
        }
    }

    /// Whether the peer supports flows.
    pub(crate) const fn are_on(&self) -> bool {
        self.max > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= self.max
    }

    pub(crate) const fn next_id(&self) -> Option<FlowId> {
        self.next
    }

    pub(crate) const fn drops(&self) -> FlowDrops {
        self.drops
    }

    /// The exclusive upper bound of flow indices.
    pub(crate) fn slots(&self) -> usize {
        self.all.capacity()
    }

    pub(crate) fn counts(&self, index: usize) -> Option<FlowCounts> {
        self.all.get(index).map(|flow| FlowCounts {
            id: flow.id,
            is_ours: flow.id.opener() == Some(self.side),
            received: flow.received,
            sent: flow.outgoing.taken,
        })
    }

    pub(crate) fn get(&mut self, key: FlowKey) -> Option<&mut Flow> {
        self.all.get_mut(key.index).filter(|flow| flow.id == key.id)
    }

    pub(crate) fn find(&self, id: FlowId) -> Option<FlowKey> {
        self.ids.find(id).map(|index| FlowKey { index, id })
    }

    fn insert(&mut self, id: FlowId, priority: Priority, begins: Option<Offset>) -> FlowKey {
        let outgoing = Outgoing::new(priority, begins);
        let flow = Flow { id, received: Volume::default(), outgoing };
        let key = FlowKey { index: self.all.insert(flow), id };
        self.ids.insert(id, key.index);
        key
    }

    /// Opens the flow with our next id, whose FlowOpen ends at `begins` on the control stream.
    pub(crate) fn open(&mut self, id: FlowId, priority: Priority, begins: Offset) -> FlowKey {
        self.next = id.next();
        self.insert(id, priority, Some(begins))
    }

    /// Whether the peer may open a flow with this id now. If so, records the id as used.
    pub(crate) fn admits(&mut self, id: FlowId) -> bool {
        let is_next = self.highest.is_none_or(|highest| id > highest);
        if id.opener() != Some(self.side.peer()) || id > FlowId::LAST || !is_next {
            return false;
        }
        self.highest = Some(id);
        // Ids only increase: no FlowOpen follows for a lower id.
        self.drops.early += self.early.forget_below(id);
        true
    }

    /// Adds a flow that the peer opened.
    pub(crate) fn accept(&mut self, id: FlowId, priority: Priority) -> FlowKey {
        self.insert(id, priority, None)
    }

    /// Drops and counts the datagrams that waited for a refused flow.
    pub(crate) fn refuse(&mut self, id: FlowId) {
        self.drops.early += crate::offset::length(self.early.take(id).len());
    }

    /// Removes a flow and its queued datagrams.
    pub(crate) fn remove(&mut self, key: FlowKey) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        let mut flow = self.all.remove(key.index);
        self.ids.remove(key.id);
        self.queues.clear(&mut flow.outgoing);
        self.drops.unjoined += self.joiner.forget(key.id);
        true
    }

    /// Handles a datagram from a DATAGRAM frame.
    pub(crate) fn receive(&mut self, id: FlowId, payload: Bytes) -> Arrival {
        if let Some(key) = self.find(id) {
            if let Some(flow) = self.get(key) {
                flow.received.add(payload.len());
            }
            return Arrival::Whole(key, payload);
        }
        let is_early = self.highest.is_none_or(|highest| id > highest);
        if id.opener() == Some(self.side.peer()) && id <= FlowId::LAST && is_early {
            self.drops.early += u64::from(!self.early.put(id, &payload));
        } else if id.opener() == Some(self.side) && self.next.is_none_or(|next| id < next)
            || id.opener() == Some(self.side.peer()) && !is_early
        {
            self.drops.late += 1;
        } else {
            return Arrival::Impossible;
        }
        Arrival::Nothing
    }

    /// Handles a native datagram of the carrier: a whole datagram of a flow, or a fragment.
    pub(crate) fn receive_packet(&mut self, now: Instant, mut packet: Bytes) -> Arrival {
        let Ok(raw) = packet.try_get_u32() else { return Arrival::Impossible };
        let id = FlowId::new(raw & !fragment::MARK);
        if raw & fragment::MARK == 0 {
            return self.receive(id, packet);
        }
        self.drops.unjoined += self.joiner.expire(now);
        match self.joiner.put(now, id, packet) {
            fragment::Joined::Whole(payload) => self.receive(id, payload),
            fragment::Joined::Waits { dropped } => {
                self.drops.unjoined += dropped;
                Arrival::Nothing
            }
            fragment::Joined::Impossible => Arrival::Impossible,
        }
    }

    /// Queues datagrams. Returns the number of datagrams that were dropped.
    pub(crate) fn push<'a>(
        &mut self,
        now: Instant,
        key: FlowKey,
        payloads: impl Iterator<Item = &'a [u8]>,
        is_live: bool,
    ) -> usize {
        let Some(flow) = self.all.get_mut(key.index).filter(|flow| flow.id == key.id) else {
            return payloads.count();
        };
        let flow = &mut flow.outgoing;
        payloads.map(|payload| self.queues.push(now, key, flow, payload, is_live)).sum()
    }

    /// Takes the next frame to send.
    pub(crate) fn pop(&mut self, reach: Reach) -> Option<BytesMut> {
        self.queues.pop(&mut self.all, reach)
    }

    /// Takes the next datagram, as packets of at most `limit` bytes for the carrier. Returns the
    /// sum of their lengths; `None`: nothing may be sent.
    pub(crate) fn pop_packets(
        &mut self,
        reach: Reach,
        limit: usize,
        out: &mut impl Extend<Bytes>,
    ) -> Option<usize> {
        let (key, frame) = self.queues.pop_of(&mut self.all, reach)?;
        // The stream field of the frame's header is directly before the payload.
        let packet = frame.freeze().slice(HEAD - size_of::<u32>()..);
        if packet.len() <= limit {
            let length = packet.len();
            out.extend([packet]);
            return Some(length);
        }
        let number = self.get(key).map_or(0, |flow| flow.outgoing.next_number());
        Some(fragment::cut(key.id, number, &packet.slice(size_of::<u32>()..), limit, out))
    }

    /// The deadline of the oldest datagram in reassembly.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.joiner.deadline()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.drops.unjoined += self.joiner.expire(now);
    }

    /// Frees memory that was kept for reuse.
    pub(crate) fn rest(&mut self) {
        self.queues.rest();
    }

    /// Lets flows whose FlowOpen has arrived send again.
    pub(crate) fn unpark(&mut self) {
        self.queues.unpark(&mut self.all);
    }

    /// Returns the charge to the budget, at the end of the link.
    pub(crate) fn settle(&mut self, budget: &dyn Budget) {
        self.queues.settle(budget);
    }

    /// Charges the queues to the budget.
    pub(crate) fn account(&mut self, budget: &dyn Budget) {
        self.queues.account(budget);
    }
}
