//! The way back: what the far side answers goes to the peer, from the address that the peer sent to.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use net::udp::Route;
use proto::ResetCode;
use tokio::time::Instant;
use transport::FlowOutlet;

use super::{Flow, Visitors};
use crate::flows::table::Slot;
use crate::flows::{DropReason, FlowSettings, FlowStats};
use crate::{End, Visit};

/// The outlet of a flow.
pub(super) struct Reply {
    visitors: Weak<Visitors>,
    route: Route,
    pub(super) peer: SocketAddr,
    stats: Rc<FlowStats>,
    /// For the access log.
    pub(super) visit: Option<Box<Visit>>,
    /// `None` until the flow is in the table.
    pub(super) slot: Cell<Option<Slot>>,
    /// The turn in which the flow was last refreshed.
    turn: Cell<u64>,
    /// Why the flow has ended.
    pub(super) closed: Cell<Option<ResetCode>>,
    pub(super) is_answered: Cell<bool>,
    /// Datagrams that went to the far side before its first answer.
    pub(super) unanswered: Cell<usize>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.peer)
    }
}

impl Reply {
    pub(super) fn new(visitors: &Rc<Visitors>, route: Route, peer: SocketAddr) -> Rc<Self> {
        let FlowSettings { stats, watcher, .. } = &*visitors.settings;
        let visit = watcher.as_ref().filter(|watcher| watcher.wants_visits());
        Rc::new(Self {
            visitors: Rc::downgrade(visitors),
            route,
            peer,
            stats: Rc::clone(stats),
            visit: visit.map(|_| Box::new(Visit::new(Some(peer)))),
            slot: Cell::new(None),
            turn: Cell::new(0),
            closed: Cell::new(None),
            is_answered: Cell::new(false),
            unanswered: Cell::new(0),
        })
    }

    pub(super) fn tell_end(&self, end: End) {
        let visitors = self.visitors.upgrade();
        let watcher = visitors.as_ref().and_then(|visitors| visitors.settings.watcher.as_ref());
        if let (Some(visit), Some(watcher)) = (&self.visit, watcher) {
            visit.note(end);
            watcher.ended(visit);
        }
    }

    /// The far side refused the flow.
    fn refused(&self, visitors: &Visitors, code: ResetCode) {
        let FlowSettings { stats, watcher, .. } = &*visitors.settings;
        // A defect of the far side says nothing about the target.
        let Some(watcher) = watcher.as_ref().filter(|_| code != ResetCode::Internal) else {
            return;
        };
        watcher.refused(code);
        if stats.complaints.ready() {
            watcher.complain_of_refusal(code, stats.dropped(DropReason::of_refusal(code)).max(1));
        }
    }
}

impl FlowOutlet for Reply {
    fn deliver(&self, datagram: Bytes) {
        let Some(visitors) = self.visitors.upgrade() else { return };
        let socket = visitors.socket.borrow().clone();
        let Some(socket) = socket.filter(|_| self.closed.get().is_none()) else {
            return self.stats.count_dropped(DropReason::Late, 1);
        };
        if let Some(visit) = &self.visit {
            visit.count_written(datagram.len());
        }
        if let Some(slot) = self.slot.get()
            && self.turn.replace(visitors.turn.get()) != visitors.turn.get()
        {
            visitors.table.borrow_mut().answer(slot, Instant::now());
        }
        // Datagrams that wait have woken the task.
        let is_first = !socket.has_unsent();
        socket.send(self.route, datagram, &*self.stats);
        if is_first {
            visitors.waker.wake();
        }
        if !self.is_answered.replace(true)
            && let Some(watcher) = &visitors.settings.watcher
        {
            watcher.served();
        }
    }

    fn close(&self, code: ResetCode) {
        if self.closed.get().is_some() {
            return;
        }
        self.closed.set(Some(code));
        let Some(visitors) = self.visitors.upgrade() else { return };
        let refused = Flow::refused(code, Instant::now()).filter(|_| !self.is_answered.get());
        let is_refusal = refused.is_some();
        if is_refusal {
            // Those that the refusal meets reached nobody.
            self.stats.count_dropped(DropReason::of_refusal(code), self.unanswered.take());
        }
        if let Some(slot) = self.slot.take() {
            let mut table = visitors.table.borrow_mut();
            let ended = match refused {
                Some(refused) => table.value(slot).map(|flow| std::mem::replace(flow, refused)),
                None => table.remove(slot),
            };
            drop(table);
            // The link has ended the flow, so the inlet has nothing to close.
            drop(ended);
        }
        self.tell_end(if is_refusal {
            End::Refused(code)
        } else if code == ResetCode::Timeout {
            End::Idle
        } else if code == ResetCode::Shutdown {
            End::Cut
        } else {
            End::FarSide(code)
        });
        if is_refusal {
            self.refused(&visitors, code);
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn counted_in(&self) -> *const () {
        self.stats.identity()
    }
}
