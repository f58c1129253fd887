//! Flows: the datagrams of many conversations over one link, in both directions.
//!
//! A flow has no credit and no replay. Datagrams that wait for the carrier stand in a queue of
//! their flow (`queue.rs`), which is bounded in size and in age. Datagrams that overtake the
//! FlowOpen of their flow wait in a small room (`early.rs`). A carrier with datagrams of its own
//! may take only short ones: longer ones are cut into fragments, and the receiver joins them
//! (`fragment.rs`).

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

/// Bytes of the largest datagram: the payload that UDP over IPv4 has room for.
pub const DATAGRAM_MAX: usize = 65_507;

/// Datagrams of a flow that may leave before the peer has read its FlowOpen, where datagrams can
/// overtake the control stream. The receiver keeps as many.
pub(crate) const AHEAD_MAX: u8 = 8;

/// Names a flow of a link. The key of a closed flow names nothing and is harmless.
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

/// The datagrams and bytes that a flow has carried so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowCounts {
    /// Which.
    pub id: FlowId,
    /// This side opened it.
    pub is_ours: bool,
    /// From the peer.
    pub received: Volume,
    /// Taken for the peer, dropped datagrams included.
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
    /// They came before the FlowOpen of their flow, and no room was left for them.
    pub early: u64,
    /// Their flow was closed.
    pub late: u64,
    /// Fragments of them were lost, or no room was left to join them.
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
    /// The id that our next flow takes; `None` when the ids are used up.
    next: Option<FlowId>,
    /// The highest id that the peer opened.
    highest: Option<FlowId>,
    pub(crate) queues: Queues,
    pub(crate) early: Early,
    joiner: Joiner,
    drops: FlowDrops,
}

/// What a received datagram is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is complete.
    Whole(FlowKey, Bytes),
    /// It waits for further fragments, or for its FlowOpen, or it was dropped and counted.
    Nothing,
    /// No such flow can exist.
    Impossible,
}

impl Flows {
    /// `max`: flows that may be open at once; 0: the peer knows no flows.
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

    /// Whether the peer knows flows.
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

    /// The index of each flow is below this number.
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

    /// Whether the peer may open a flow with this id now. Notes that it did.
    pub(crate) fn admits(&mut self, id: FlowId) -> bool {
        let is_next = self.highest.is_none_or(|highest| id > highest);
        if id.opener() != Some(self.side.peer()) || id > FlowId::LAST || !is_next {
            return false;
        }
        self.highest = Some(id);
        // Ids only grow: no FlowOpen follows for a lower id.
        self.drops.early += self.early.forget_below(id);
        true
    }

    /// Enters a flow that the peer opened.
    pub(crate) fn accept(&mut self, id: FlowId, priority: Priority) -> FlowKey {
        self.insert(id, priority, None)
    }

    /// Counts datagrams that waited for a flow that is refused.
    pub(crate) fn refuse(&mut self, id: FlowId) {
        self.drops.early += crate::offset::length(self.early.take(id).len());
    }

    /// Forgets a flow and what waits for it.
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

    /// A datagram of a DATAGRAM frame.
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

    /// A datagram of the carrier: a whole one of a flow, or a fragment.
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

    /// The next frame whose turn it is.
    pub(crate) fn pop(&mut self, reach: Reach) -> Option<BytesMut> {
        self.queues.pop(&mut self.all, reach)
    }

    /// The next datagram as packets of a carrier that takes at most `limit` bytes in one. Returns
    /// their bytes; `None`: nothing may be sent.
    pub(crate) fn pop_packets(
        &mut self,
        reach: Reach,
        limit: usize,
        out: &mut impl Extend<Bytes>,
    ) -> Option<usize> {
        let (key, frame) = self.queues.pop_of(&mut self.all, reach)?;
        // The stream field of the frame's head stands directly before the payload.
        let packet = frame.freeze().slice(HEAD - size_of::<u32>()..);
        if packet.len() <= limit {
            let length = packet.len();
            out.extend([packet]);
            return Some(length);
        }
        let number = self.get(key).map_or(0, |flow| flow.outgoing.next_number());
        Some(fragment::cut(key.id, number, &packet.slice(size_of::<u32>()..), limit, out))
    }

    /// When fragments that wait are to be given up.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.joiner.deadline()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.drops.unjoined += self.joiner.expire(now);
    }

    /// Gives back memory that was held to be used again.
    pub(crate) fn rest(&mut self) {
        self.queues.rest();
    }

    /// Flows whose FlowOpen has arrived since may send.
    pub(crate) fn unpark(&mut self) {
        self.queues.unpark(&mut self.all);
    }

    /// Returns to the budget what was charged, at the end of the link.
    pub(crate) fn settle(&mut self, budget: &dyn Budget) {
        self.queues.settle(budget);
    }

    /// Charges the queues to the budget.
    pub(crate) fn account(&mut self, budget: &dyn Budget) {
        self.queues.account(budget);
    }
}
