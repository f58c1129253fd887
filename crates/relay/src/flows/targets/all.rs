//! All flows to the targets of one service: their table, and the task that ends idle ones.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use proto::ResetCode;
use proto::control::FlowTimes;
use tokio::time::Instant;

use super::flow::Target;
use crate::flows::FlowSettings;
use crate::flows::idle::{self, IdleTimer};
use crate::flows::table::{Slot, Source, Table};
use crate::flows::waking::TaskWaker;

/// The flows to the targets of one service (or of the forwards of one link) on one worker.
#[derive(Default)]
pub struct FlowTargets {
    table: RefCell<Table<Rc<Target>>>,
    times: Cell<FlowTimes>,
    timer: RefCell<IdleTimer>,
    waker: TaskWaker,
    has_task: Cell<bool>,
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

    /// Adds a flow, with the caps and times of its settings. Returns false if there is no place.
    pub(super) fn add(self: &Rc<Self>, flow: &Rc<Target>, source: Option<Source>) -> bool {
        let FlowSettings { caps, times, stats, .. } = &*flow.settings;
        self.times.set(*times);
        let inserted = {
            let mut table = self.table.borrow_mut();
            table.set_caps(*caps);
            table.insert(None, source, Rc::clone(flow), Instant::now())
        };
        let Ok((slot, gone)) = inserted else { return false };
        flow.slot.set(Some(slot));
        if let Some(gone) = gone {
            stats.count_evicted();
            gone.end(Some(ResetCode::Limit));
        }
        self.watch_idle();
        true
    }

    /// Ends the flow that was never answered and is unused for longest, but not `spared`.
    pub(super) fn make_room(&self, spared: Slot) -> bool {
        let gone = self.table.borrow_mut().evict_unanswered(spared);
        let Some(gone) = gone else { return false };
        gone.settings.stats.count_evicted();
        gone.end(Some(ResetCode::Limit));
        true
    }

    /// The far side sent a datagram.
    pub(super) fn touch(&self, slot: Slot) {
        self.table.borrow_mut().touch(slot, Instant::now());
    }

    /// The target sent a datagram.
    pub(super) fn answer(&self, slot: Slot) {
        self.table.borrow_mut().answer(slot, Instant::now());
    }

    pub(super) fn remove(&self, slot: Slot) {
        let gone = self.table.borrow_mut().remove(slot);
        // The last owner of a flow may be here.
        drop(gone);
    }

    /// Sees to it that a task ends idle flows.
    fn watch_idle(self: &Rc<Self>) {
        if !self.has_task.replace(true) {
            tokio::task::spawn_local(Sweep(Rc::downgrade(self)));
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

/// Ends idle flows. The task lives while there are flows.
struct Sweep(Weak<FlowTargets>);

impl Future for Sweep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.upgrade().map_or(Poll::Ready(()), |targets| targets.poll_idle(cx))
    }
}
