//! The flows of a link: the link side of each flow, and the outlets by key.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use proto::{FlowCounts, FlowDrops, FlowId, FlowKey, Open, ResetCode};
use transport::{FlowConnector, FlowInlet, FlowOutlet, OpenError};

use crate::inner::{Inner, Link};

/// The link side of a flow.
pub(crate) struct LinkFlow {
    link: Rc<Inner>,
    key: FlowKey,
    closed: Cell<bool>,
}

impl fmt::Debug for LinkFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkFlow({} of link {})", self.key.id(), self.link.serial)
    }
}

impl FlowInlet for LinkFlow {
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize {
        let mut bytes = 0;
        let counted = datagrams.inspect(|datagram| bytes += datagram.len() as u64);
        let now = crate::now();
        let dropped = self.link.machine.borrow_mut().send_datagrams(now, self.key, counted);
        self.link.sent.set(self.link.sent.get() + bytes);
        self.link.commanded();
        dropped
    }

    fn close(&self, code: ResetCode) {
        if !self.closed.replace(true) {
            self.link.machine.borrow_mut().close_flow(self.key, code);
            self.link.commanded();
        }
    }
}

impl Drop for LinkFlow {
    fn drop(&mut self) {
        // The peer may have closed the flow already. Then the call has no effect.
        self.close(ResetCode::Aborted);
    }
}

impl FlowConnector for Link {
    fn open_flow(
        &self,
        open: Open,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, OpenError> {
        let inner = &self.inner;
        if inner.ended.get().is_some() || inner.retirement.going_away.get() {
            return Err(OpenError::Closed);
        }
        let mut machine = inner.machine.borrow_mut();
        if !machine.has_flows() {
            return Err(OpenError::TooOld);
        }
        let key = machine.open_flow(&open).ok_or(OpenError::Limit)?;
        let goes = machine.is_going_away();
        drop(machine);
        inner.put_flow(key, outlet);
        let (link, flow) = (inner.serial, key.id().raw());
        tracing::debug!(link, flow, to = ?open.target, visitor = ?open.visitor, "flow opened");
        if goes {
            // That was the last id: the owner must be notified before the next visitor arrives.
            inner.drive(crate::now());
        } else {
            inner.commanded();
        }
        Ok(Box::new(LinkFlow { link: Rc::clone(inner), key, closed: Cell::new(false) }))
    }
}

impl Link {
    /// The number of open flows.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.inner.machine.borrow().flow_count()
    }

    /// The number of flow slots, which never decreases.
    #[must_use]
    pub fn flow_slots(&self) -> usize {
        self.inner.machine.borrow().flow_slots()
    }

    /// The flows in these slots; see [`Self::streams`].
    #[must_use]
    pub fn flows(&self, slots: Range<usize>) -> Vec<(FlowCounts, Option<Rc<dyn FlowOutlet>>)> {
        let (outlets, machine) = (self.inner.flows.borrow(), self.inner.machine.borrow());
        let outlet = |index: usize, id| {
            let (of, outlet) = outlets.get(index)?.as_ref()?;
            (*of == id).then(|| Rc::clone(outlet))
        };
        let flow = |index| machine.flow(index).map(|flow| (flow, outlet(index, flow.id)));
        slots.filter_map(flow).collect()
    }

    /// Calls `show` with the slot and the counters of each flow in these slots that has an outlet.
    pub fn each_flow(
        &self,
        slots: Range<usize>,
        mut show: impl FnMut(usize, &FlowCounts, &dyn FlowOutlet),
    ) {
        let (outlets, machine) = (self.inner.flows.borrow(), self.inner.machine.borrow());
        for index in slots {
            let (Some(flow), Some(Some((of, outlet)))) = (machine.flow(index), outlets.get(index))
            else {
                continue;
            };
            if *of == flow.id {
                show(index, &flow, &**outlet);
            }
        }
    }

    /// The counters of received datagrams that this end dropped.
    #[must_use]
    pub fn flow_drops(&self) -> FlowDrops {
        self.inner.machine.borrow().flow_drops()
    }

    /// Closes a flow at both ends. Returns false if there is no such flow.
    #[must_use]
    pub fn abort_flow(&self, id: FlowId) -> bool {
        let flows = self.inner.flows.borrow();
        let index = flows.iter().position(|slot| slot.as_ref().is_some_and(|(of, _)| *of == id));
        let outlet = index.and_then(|index| flows[index].as_ref().map(|(_, o)| Rc::clone(o)));
        drop(flows);
        // The owner of the socket drops the flow, and the drop closes the flow at the peer.
        outlet.is_some_and(|outlet| {
            outlet.close(ResetCode::Aborted);
            true
        })
    }
}

impl Inner {
    /// Accepts a flow that the peer opened.
    pub(crate) fn accept_flow(self: &Rc<Self>, key: FlowKey, open: Open) {
        let (link, flow) = (self.serial, key.id().raw());
        let (to, visitor) = (&open.target, open.visitor);
        tracing::debug!(link, flow, ?to, ?visitor, "flow opened by the other side");
        let inlet = LinkFlow { link: Rc::clone(self), key, closed: Cell::new(false) };
        let outlet = self.owner.accept_flow(&self.handle(), open, Box::new(inlet));
        let Some(outlet) = outlet else { return };
        if self.ended.get().is_some() {
            return outlet.close(ResetCode::Shutdown);
        }
        self.put_flow(key, outlet);
    }

    /// Delivers a datagram. A flow without an outlet is being closed.
    pub(crate) fn deliver_datagram(&self, key: FlowKey, bytes: Bytes) {
        self.recent_small.moved(None, bytes.len());
        self.received.set(self.received.get() + bytes.len() as u64);
        if let Some(outlet) = self.flow_outlet(key) {
            outlet.deliver(bytes);
        }
    }

    /// Handles the end of a flow.
    pub(crate) fn flow_closed(self: &Rc<Self>, key: FlowKey, code: ResetCode, by_peer: bool) {
        tracing::debug!(link = self.serial, flow = key.id().raw(), reason = %code, "flow closed");
        let mut flows = self.flows.borrow_mut();
        let slot =
            flows.get_mut(key.index()).and_then(|slot| slot.take_if(|(id, _)| *id == key.id()));
        // The drop of the outlet may call back into the link.
        drop(flows);
        if let Some((_, outlet)) = slot
            && by_peer
        {
            outlet.close(code);
        }
        self.end_if_over();
    }

    fn put_flow(&self, key: FlowKey, outlet: Rc<dyn FlowOutlet>) {
        let mut flows = self.flows.borrow_mut();
        if flows.len() <= key.index() {
            flows.resize_with(key.index() + 1, || None);
        }
        let former = flows[key.index()].replace((key.id(), outlet));
        drop(flows);
        drop(former);
    }

    fn flow_outlet(&self, key: FlowKey) -> Option<Rc<dyn FlowOutlet>> {
        let flows = self.flows.borrow();
        let (id, outlet) = flows.get(key.index())?.as_ref()?;
        (*id == key.id()).then(|| Rc::clone(outlet))
    }
}
