//! The flows of one socket at which peers send: a port of a service or of a forward (`visitors`),
//! or the socket of a SOCKS5 association (`proxy/associate`). The socket defines the key of its
//! flows and how an answer is sent; the table, the time-outs, refusals and counters are shared.
//! `reply` is the return path.

mod reply;

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::Hash;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use net::source::Source;
use net::udp::Steering;
use proto::ResetCode;
use proto::control::FlowTimes;
use tokio::time::Instant;
use transport::{FlowInlet, FlowOutlet};

use super::table::{IsFull, Slot, Table};
use super::{DropReason, FlowSettings, FlowStats, idle, is_refusal};
use crate::admit::Way;
use crate::{End, Gate, Permit};

use reply::Reply;

/// After the far side refused the flow of a peer, datagrams of the peer are dropped for this time,
/// so that they do not each open a flow again.
const REFUSED: Duration = Duration::from_secs(1);

/// A socket at which peers send.
pub(crate) trait NearSocket: fmt::Debug + Sized + 'static {
    /// The key of a flow of the socket.
    type Key: Clone + Eq + Hash;

    /// The destination of the answers of a flow.
    type To;

    /// Sends an answer with a code point, and counts it in `stats`. Returns false if the socket is
    /// closed.
    fn send(&self, to: &Self::To, dscp: u8, datagram: Bytes, stats: &FlowStats) -> bool;

    /// Whether an answer is the first of its flow in this turn of the task. `seen` is the turn of
    /// the previous answer. Later answers of the same turn do not refresh the flow.
    fn begins_turn(&self, _seen: &Cell<u64>) -> bool {
        true
    }

    /// The peer whose datagrams the socket reads, where it differs from the peer of the flow.
    fn sender(&self, _to: &Self::To, peer: SocketAddr) -> SocketAddr {
        peer
    }

    /// The gate whose byte rates apply to flows without a permit.
    fn gate(&self) -> Option<&Arc<Gate>> {
        None
    }

    /// The counter of flows for a group of sockets, and the index of the socket in the group.
    fn steering(&self) -> Option<(&Arc<Steering>, usize)> {
        None
    }

    /// Reports that a flow of `peer` was refused or evicted because there is no room.
    fn complain(&self, _full: IsFull, _peer: SocketAddr, _settings: &FlowSettings) {}
}

/// The flows of one socket.
pub(crate) struct NearFlows<S: NearSocket> {
    pub(crate) socket: S,
    table: RefCell<Table<Flow<S>, S::Key>>,
    times: Cell<FlowTimes>,
    pub(crate) settings: Rc<FlowSettings>,
}

impl<S: NearSocket> fmt::Debug for NearFlows<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NearFlows({:?})", self.socket)
    }
}

/// A flow in the table.
enum Flow<S: NearSocket> {
    Live(Live<S>),
    /// The far side refused it.
    Refused {
        until: Instant,
        reason: DropReason,
    },
}

struct Live<S: NearSocket> {
    ends: Ends<S>,
    _permit: Option<Permit>,
    _counted: Counted,
}

/// Both directions of a flow.
pub(crate) struct Ends<S: NearSocket> {
    reply: Rc<Reply<S>>,
    inlet: Rc<dyn FlowInlet>,
}

impl<S: NearSocket> Clone for Ends<S> {
    fn clone(&self) -> Self {
        Self { reply: Rc::clone(&self.reply), inlet: Rc::clone(&self.inlet) }
    }
}

impl<S: NearSocket> Ends<S> {
    /// Passes `count` datagrams of the peer to the link by `send`, which returns how many of them
    /// were dropped.
    pub(crate) fn pass(
        &self,
        count: usize,
        bytes: usize,
        send: impl FnOnce(&dyn FlowInlet) -> usize,
    ) {
        if !self.reply.may_pass(Way::Up, bytes) {
            return self.reply.count_dropped(DropReason::Rate, count);
        }
        if let Some(visit) = &self.reply.visit {
            visit.count_read(bytes);
        }
        let dropped = send(&*self.inlet);
        if !self.reply.is_answered.get() {
            let unanswered = &self.reply.unanswered;
            unanswered.set(unanswered.get().saturating_add(count - dropped));
        }
    }
}

/// Keeps the datagrams of a peer at the worker of its flow.
struct Steered {
    steering: Option<Arc<Steering>>,
    peer: SocketAddr,
}

impl Steered {
    /// `None`: the kernel gives the datagrams of the peer to another worker.
    fn new<S: NearSocket>(socket: &S, peer: SocketAddr) -> Option<Self> {
        let steering = match socket.steering() {
            Some((steering, worker)) if steering.enter(peer, worker) => Some(Arc::clone(steering)),
            Some(_) => return None,
            None => None,
        };
        Some(Self { steering, peer })
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        if let Some(steering) = &self.steering {
            steering.leave(self.peer);
        }
    }
}

/// Counts a live flow.
struct Counted {
    stats: Rc<FlowStats>,
    _steered: Steered,
}

impl Counted {
    fn new(stats: &Rc<FlowStats>, steered: Steered) -> Self {
        stats.enter();
        Self { stats: Rc::clone(stats), _steered: steered }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stats.leave();
    }
}

impl<S: NearSocket> Flow<S> {
    /// Returns the entry of a flow that the far side refused with `code`; `None`: the code is no
    /// refusal.
    fn refused(code: ResetCode, now: Instant) -> Option<Self> {
        let reason = DropReason::of_refusal(code);
        is_refusal(code).then(|| Self::Refused { until: now + REFUSED, reason })
    }

    /// Ends the flow on the far side. The table must not be borrowed.
    fn end(self, end: End, code: ResetCode) {
        if let Self::Live(Live { ends, .. }) = self {
            ends.reply.closed.set(Some(code));
            ends.reply.report_end(end);
            ends.inlet.close(code);
        }
    }
}

impl<S: NearSocket> NearFlows<S> {
    pub(crate) fn new(socket: S, settings: Rc<FlowSettings>) -> Rc<Self> {
        let table = RefCell::new(Table::new(Arc::clone(&settings.bounds)));
        Rc::new(Self { socket, table, times: Cell::new(settings.times), settings })
    }

    /// Changes the idle times. The task of the socket must then call [`Self::next_idle`] again.
    pub(crate) fn set_times(&self, times: FlowTimes) {
        self.times.set(times);
    }

    /// Ends all flows.
    pub(crate) fn end_all(&self, code: ResetCode) {
        let flows = self.table.borrow_mut().drain();
        flows.into_iter().for_each(|flow| flow.end(End::Cut, code));
    }

    /// Finds a flow that a peer sends to, and refreshes it.
    ///
    /// # Errors
    /// The far side has refused the flow.
    pub(crate) fn look_up<Q>(&self, key: &Q, now: Instant) -> Result<Option<Ends<S>>, DropReason>
    where
        S::Key: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut table = self.table.borrow_mut();
        let Some(slot) = table.find(key) else { return Ok(None) };
        match table.value(slot) {
            Some(Flow::Live(live)) => {
                let ends = live.ends.clone();
                table.touch(slot, now);
                Ok(Some(ends))
            }
            Some(Flow::Refused { until, reason }) if now < *until => Err(*reason),
            Some(Flow::Refused { .. }) | None => {
                table.remove(slot);
                Ok(None)
            }
        }
    }

    /// Opens a flow of `peer`, whose answers go to `to`. `open` opens it at a link.
    ///
    /// # Errors
    /// The reason to drop the datagrams.
    pub(crate) fn open(
        self: &Rc<Self>,
        key: S::Key,
        to: S::To,
        peer: SocketAddr,
        now: Instant,
        open: impl FnOnce(
            Rc<dyn FlowOutlet>,
        ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), DropReason>,
    ) -> Result<Ends<S>, DropReason> {
        let source = self.settings.bounds.source(peer.ip());
        if let Err(full) = self.table.borrow().admits(source.as_ref(), now) {
            self.socket.complain(full, peer, &self.settings);
            return Err(match full {
                IsFull::Table => DropReason::Limit,
                IsFull::Source => DropReason::SourceLimit,
            });
        }
        let sender = self.socket.sender(&to, peer);
        let steered = Steered::new(&self.socket, sender).ok_or(DropReason::NoLink)?;
        let reply = Reply::new(self, to, peer);
        let (inlet, permit) = open(Rc::<Reply<S>>::clone(&reply))?;
        let gate = permit.as_ref().map(Permit::gate).or_else(|| self.socket.gate());
        gate.into_iter().for_each(|gate| reply.obey(gate));
        let ends = Ends { reply, inlet: inlet.into() };
        if let Some(code) = ends.reply.closed.get() {
            if let Some(refused) = Flow::refused(code, now) {
                let _ = self.insert(key, source, refused, now);
            }
            return Err(DropReason::of_refusal(code));
        }
        let counted = Counted::new(&self.settings.stats, steered);
        let live = Live { ends: ends.clone(), _permit: permit, _counted: counted };
        match self.insert(key, source, Flow::Live(live), now) {
            Ok(slot) => {
                ends.reply.slot.set(Some(slot));
                if ends.reply.is_answered.get() {
                    self.table.borrow_mut().answer(slot, now);
                }
                Ok(ends)
            }
            Err(flow) => {
                flow.end(End::Refused(ResetCode::Limit), ResetCode::Limit);
                Err(DropReason::Limit)
            }
        }
    }

    /// Inserts a flow into the table, and ends the flows that are evicted for it.
    fn insert(
        &self,
        key: S::Key,
        source: Option<Source>,
        flow: Flow<S>,
        now: Instant,
    ) -> Result<Slot, Flow<S>> {
        let mut gone = Vec::new();
        let mut table = self.table.borrow_mut();
        let outcome = table.insert(Some(key), source, flow, now, &mut gone);
        drop(table);
        gone.into_iter().for_each(|flow| self.evict(flow));
        outcome
    }

    /// Ends a flow that was evicted for another flow. A peer that still waits gets no answer.
    fn evict(&self, gone: Flow<S>) {
        if let Flow::Live(Live { ends: Ends { reply, .. }, .. }) = &gone {
            let stats = &self.settings.stats;
            stats.count_evicted();
            if !reply.is_answered.get() {
                stats.count_dropped(DropReason::Evicted, reply.unanswered.take());
                self.socket.complain(IsFull::Table, reply.peer, &self.settings);
            }
        }
        gone.end(End::Cut, ResetCode::Limit);
    }

    /// The time at which the next flow becomes idle.
    pub(crate) fn next_idle(&self) -> Option<Instant> {
        self.table.borrow().next_idle(self.times.get())
    }

    /// Ends flows that are idle. Returns true if the budget ended first.
    pub(crate) fn end_idle(&self) -> bool {
        let now = Instant::now();
        for _ in 0..idle::BUDGET {
            let idle = self.table.borrow_mut().take_idle(now, self.times.get());
            match idle {
                None => return false,
                Some(Flow::Refused { .. }) => {}
                Some(flow) => {
                    self.settings.stats.count_idle();
                    flow.end(End::IDLE, ResetCode::Timeout);
                }
            }
        }
        true
    }
}
