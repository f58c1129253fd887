//! All flows to the targets of one service: their table, and the task that ends idle flows. When
//! the process has no socket for a flow or a connection, the worker evicts its least valuable flow.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use net::source::Source;
use proto::ResetCode;
use proto::control::FlowTimes;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::flow::Target;
use super::moved::MovedSocket;
use crate::TargetAddr;
use crate::eviction::{self, Candidate, Evict, WANTED};
use crate::flows::FlowSettings;
use crate::flows::idle::{self, IdleTimer};
use crate::flows::table::{BoundSlots, Slot, Table};
use crate::flows::waking::TaskWaker;

/// The number of flows that a worker evicts when another worker needs a socket.
const FOR_OTHERS: usize = 8;

/// The flows to the targets of one service (or of the forwards of one link) on one worker.
#[derive(Default)]
pub struct FlowTargets {
    /// By the numbers of the flows whose sockets may move.
    table: RefCell<Table<Rc<Target>, u64>>,
    times: Cell<FlowTimes>,
    timer: RefCell<IdleTimer>,
    waker: TaskWaker,
    has_task: Cell<bool>,
    /// The flow that must not be evicted, because others are evicted in its favour.
    spared: Cell<Option<Slot>>,
    /// Whether a task follows the targets.
    pub(super) is_followed: Cell<bool>,
}

impl fmt::Debug for FlowTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowTargets({})", self.len())
    }
}

impl FlowTargets {
    /// The number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.borrow().len()
    }

    /// Whether there is no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the flows to other targets than these. A peer that continues to send gets a new flow,
    /// which leads to a current target of the service.
    pub fn lead_to(&self, targets: &[TargetAddr]) {
        let others: Vec<_> = {
            let table = self.table.borrow();
            table
                .values()
                .filter(|flow| !targets.contains(&flow.address.borrow()))
                .cloned()
                .collect()
        };
        others.into_iter().for_each(|flow| flow.end(Some(ResetCode::Shutdown)));
    }

    /// Adds a flow, with the bounds and times of its settings. Returns false if there is no room.
    pub(super) fn add(self: &Rc<Self>, flow: &Rc<Target>, source: Option<Source>) -> bool {
        let FlowSettings { bounds, times, .. } = &*flow.settings;
        self.times.set(*times);
        let mut gone = Vec::new();
        let inserted = {
            let mut table = self.table.borrow_mut();
            table.set_bounds(bounds);
            table.insert(flow.id(), source, Rc::clone(flow), Instant::now(), &mut gone)
        };
        for flow in gone {
            flow.evict();
        }
        self.keep(flow, inserted.ok())
    }

    /// Adds a flow with the socket of another flow, whose slots in the bounds it takes over.
    pub(super) fn add_moved(self: &Rc<Self>, flow: &Rc<Target>, slots: BoundSlots) -> bool {
        let Some(id) = flow.id() else { return false };
        self.times.set(flow.settings.times);
        let inserted = {
            let mut table = self.table.borrow_mut();
            table.set_bounds(&flow.settings.bounds);
            table.insert_moved(id, slots, Rc::clone(flow), Instant::now())
        };
        self.keep(flow, inserted.ok())
    }

    fn keep(self: &Rc<Self>, flow: &Target, slot: Option<Slot>) -> bool {
        if slot.is_some() {
            flow.slot.set(slot);
            self.watch();
        }
        slot.is_some()
    }

    /// Takes the socket of the flow with this number for the next flow of its visitor, and ends the
    /// flow. `None`: there is no such flow on this worker, or the flow has no socket now.
    #[must_use]
    pub fn release(&self, id: u64) -> Option<MovedSocket> {
        let flow = {
            let mut table = self.table.borrow_mut();
            let slot = table.find(&id)?;
            Rc::clone(table.value(slot)?)
        };
        flow.release()
    }

    /// Removes a flow whose socket moves, and keeps its slots in the bounds.
    pub(super) fn take_slots(&self, slot: Slot) -> Option<BoundSlots> {
        let gone = self.table.borrow_mut().release(slot);
        // As in `remove`, the table must not be borrowed here.
        gone.map(|(_flow, slots)| slots)
    }

    /// Evicts a flow of this worker in favour of the flow `spared`, which is in the table but has
    /// no socket yet. Returns false if no flow may be evicted.
    pub(super) fn make_room_for(&self, spared: Option<Slot>) -> bool {
        let outer = self.spared.replace(spared);
        let has_made = eviction::make_room();
        self.spared.set(outer);
        has_made
    }

    /// The flows for which `wanted` returns true.
    pub(super) fn select(&self, wanted: impl Fn(&Target) -> bool) -> Vec<Rc<Target>> {
        let table = self.table.borrow();
        table.values().filter(|flow| wanted(flow)).cloned().collect()
    }

    /// Records a datagram from the far side.
    pub(super) fn touch(&self, slot: Slot, now: Instant) {
        self.table.borrow_mut().touch(slot, now);
    }

    /// Records a datagram from the target.
    pub(super) fn answer(&self, slot: Slot) {
        self.table.borrow_mut().answer(slot, Instant::now());
    }

    pub(super) fn remove(&self, slot: Slot) {
        let gone = self.table.borrow_mut().remove(slot);
        // This may drop the last reference to the flow, so the table must not be borrowed.
        drop(gone);
    }

    /// Starts or wakes the task that ends idle flows.
    fn watch(self: &Rc<Self>) {
        if !self.has_task.replace(true) {
            let table: Rc<dyn Evict> = Rc::<Self>::clone(self);
            eviction::register(Rc::downgrade(&table));
            let (targets, wanted) = (Rc::downgrade(self), Box::pin(WANTED.notified()));
            tokio::task::spawn_local(Sweep { targets, wanted });
            return;
        }
        let due = self.table.borrow().next_idle(self.times.get());
        if due.is_some_and(|due| !self.timer.borrow().covers(due)) {
            self.waker.wake();
        }
    }

    fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.note(cx);
        loop {
            let due = self.table.borrow().next_idle(self.times.get());
            if due.is_none() {
                self.has_task.set(false);
                return Poll::Ready(());
            }
            ready!(self.timer.borrow_mut().poll(cx, due));
            let now = Instant::now();
            for _ in 0..idle::BUDGET {
                let idle = self.table.borrow_mut().take_idle(now, self.times.get());
                let Some(flow) = idle else { break };
                flow.settings.stats.count_idle();
                flow.end(Some(ResetCode::Timeout));
            }
            if self.table.borrow().next_idle(self.times.get()).is_some_and(|due| due <= now) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

impl Evict for FlowTargets {
    fn candidate(&self) -> Option<Candidate> {
        self.table.borrow().candidate(self.spared.get(), Instant::now())
    }

    fn evict(&self, candidate: Candidate) -> bool {
        let gone = self.table.borrow_mut().evict(candidate);
        gone.is_some_and(|flow| flow.evict())
    }
}

/// Ends idle flows, and evicts a few for other workers. The task ends when there are no flows.
struct Sweep {
    targets: Weak<FlowTargets>,
    wanted: Pin<Box<Notified<'static>>>,
}

impl Future for Sweep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(targets) = self.targets.upgrade() else { return Poll::Ready(()) };
        while self.wanted.as_mut().poll(cx).is_ready() {
            self.wanted.set(WANTED.notified());
            for _ in 0..FOR_OTHERS {
                let Some(candidate) = targets.candidate() else { break };
                targets.evict(candidate);
            }
        }
        targets.poll_idle(cx)
    }
}
