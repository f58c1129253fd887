//! The return path: answers of the far side go to the peer, from the address to which the peer
//! sent.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use net::SocketOptions;
use proto::ResetCode;
use tokio::time::Instant;
use transport::FlowOutlet;

use super::{Flow, NearFlows, NearSocket};
use crate::admit::Way;
use crate::flows::table::Slot;
use crate::flows::{DropReason, FlowSettings, FlowStats};
use crate::watch::Purpose;
use crate::{End, Gate, Visit, Visitor, pace};

/// The outlet of a flow.
pub(crate) struct Reply<S: NearSocket> {
    flows: Weak<NearFlows<S>>,
    to: S::To,
    pub(super) peer: SocketAddr,
    stats: Rc<FlowStats>,
    /// The gate whose byte rates apply to the flow.
    gate: OnceCell<Arc<Gate>>,
    /// The code point of the answers ([`net::dscp`]).
    dscp: Cell<u8>,
    /// For the access log.
    pub(super) visit: Option<Box<Visit>>,
    /// `None` until the flow is in the table.
    pub(super) slot: Cell<Option<Slot>>,
    /// The turn in which the flow was last refreshed.
    turn: Cell<u64>,
    /// Why the flow has ended.
    pub(super) closed: Cell<Option<ResetCode>>,
    pub(super) is_answered: Cell<bool>,
    /// The number of datagrams that were sent to the far side before its first answer.
    pub(super) unanswered: Cell<usize>,
}

impl<S: NearSocket> fmt::Debug for Reply<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.peer)
    }
}

impl<S: NearSocket> Reply<S> {
    pub(super) fn new(flows: &Rc<NearFlows<S>>, to: S::To, peer: SocketAddr) -> Rc<Self> {
        let FlowSettings { stats, watcher, .. } = &*flows.settings;
        let visit = watcher.as_ref().filter(|watcher| watcher.wants_visits());
        Rc::new(Self {
            flows: Rc::downgrade(flows),
            to,
            peer,
            stats: Rc::clone(stats),
            gate: OnceCell::new(),
            dscp: Cell::default(),
            visit: visit.map(|_| Box::new(Visit::new(Visitor::At(peer), Purpose::Log))),
            slot: Cell::new(None),
            turn: Cell::new(0),
            closed: Cell::new(None),
            is_answered: Cell::new(false),
            unanswered: Cell::new(0),
        })
    }

    /// Applies the rates of this gate to the flow.
    pub(super) fn obey(&self, gate: &Arc<Gate>) {
        let _ = self.gate.set(Arc::clone(gate));
    }

    /// Charges this number of bytes to the rates in force. Returns false if they exceed a rate.
    pub(super) fn may_pass(&self, way: Way, bytes: usize) -> bool {
        self.gate.get().is_none_or(|gate| pace::take_now(gate, way, bytes, true))
    }

    pub(super) fn count_dropped(&self, reason: DropReason, count: usize) {
        self.stats.count_dropped(reason, count);
    }

    pub(super) fn report_end(&self, end: End) {
        let flows = self.flows.upgrade();
        let watcher = flows.as_ref().and_then(|flows| flows.settings.watcher.as_ref());
        if let (Some(visit), Some(watcher)) = (&self.visit, watcher) {
            visit.note(end);
            watcher.ended(visit);
        }
    }

    /// Reports that the far side refused the flow.
    fn refused(&self, flows: &NearFlows<S>, code: ResetCode) {
        let FlowSettings { stats, watcher, .. } = &*flows.settings;
        // A defect of the far side gives no information about the target.
        let Some(watcher) = watcher.as_ref().filter(|_| code != ResetCode::Internal) else {
            return;
        };
        watcher.refused(code);
        if stats.complaints.ready() {
            watcher.complain_of_refusal(code, stats.dropped(DropReason::of_refusal(code)).max(1));
        }
    }
}

impl<S: NearSocket> FlowOutlet for Reply<S> {
    fn obey(&self, options: &SocketOptions) {
        self.dscp.set(options.dscp);
    }

    fn deliver(&self, datagram: Bytes) {
        let Some(flows) = self.flows.upgrade() else { return };
        let size = datagram.len();
        if !self.may_pass(Way::Down, size) {
            return self.stats.count_dropped(DropReason::Rate, 1);
        }
        let is_open = self.closed.get().is_none();
        if !is_open || !flows.socket.send(&self.to, self.dscp.get(), datagram, &self.stats) {
            return self.stats.count_dropped(DropReason::Late, 1);
        }
        if let Some(visit) = &self.visit {
            visit.count_written(size);
        }
        if let Some(slot) = self.slot.get()
            && flows.socket.begins_turn(&self.turn)
        {
            flows.table.borrow_mut().answer(slot, Instant::now());
        }
        if !self.is_answered.replace(true)
            && let Some(watcher) = &flows.settings.watcher
        {
            watcher.served();
        }
    }

    fn close(&self, code: ResetCode) {
        if self.closed.get().is_some() {
            return;
        }
        self.closed.set(Some(code));
        let Some(flows) = self.flows.upgrade() else { return };
        let refused = Flow::refused(code, Instant::now()).filter(|_| !self.is_answered.get());
        let is_refusal = refused.is_some();
        if is_refusal {
            // The datagrams sent before the refusal reached no target.
            self.stats.count_dropped(DropReason::of_refusal(code), self.unanswered.take());
        }
        if let Some(slot) = self.slot.take() {
            let mut table = flows.table.borrow_mut();
            let ended = match refused {
                Some(refused) => table.value(slot).map(|flow| std::mem::replace(flow, refused)),
                None => table.remove(slot),
            };
            drop(table);
            // The link has ended the flow, so the inlet has nothing to close.
            drop(ended);
        }
        self.report_end(if is_refusal {
            End::Refused(code)
        } else if code == ResetCode::Timeout {
            End::IDLE
        } else if code == ResetCode::Shutdown {
            End::Cut
        } else {
            End::FarSide(code)
        });
        if is_refusal {
            self.refused(&flows, code);
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn counted_in(&self) -> *const () {
        self.stats.identity()
    }
}
