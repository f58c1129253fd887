//! The socket of a flow outlives the flow, where the flow has an entry in a directory:
//!
//! ```text
//!   Open ──the visitor's next flow wants the socket──> Closed; the socket goes to the next flow
//!   Open ──the link ends──> parked: Open without a link ──the same──> Closed
//!                              │ idle, evicted, or the service leads elsewhere
//!                              ▼
//!                           Closed, with the socket
//! ```
//!
//! The target sees one port of a visitor that comes by another server or over another link. A
//! parked flow keeps its places in the table and in the bounds, and passes nothing on. Answers of
//! the target do not keep it from becoming idle.

use std::rc::Rc;
use std::sync::Arc;

use net::udp::{DetachedSocket, FlowSocket};
use proto::ResetCode;

use super::flow::{State, Target};
use super::follow;
use super::moved::MovedSocket;
use crate::Permit;

impl Target {
    /// Gives the socket to the next flow of the visitor, and ends this flow; at the far side as
    /// well. The far side opens another flow if the visitor sends there again. `None`: the flow has
    /// no socket now, and goes on. No table may be borrowed.
    pub(super) fn release(&self) -> Option<MovedSocket> {
        let (socket, target, local, port) = match self.state.replace(State::Closed) {
            State::Open { socket, target, local, port } => (socket, target, local, port),
            other @ (State::Looking | State::Closed) => {
                self.state.replace(other);
                return None;
            }
        };
        socket.flush_last(&*self.settings.stats);
        let socket = match Rc::try_unwrap(socket) {
            Ok(socket) => socket,
            Err(socket) => {
                self.state.replace(State::Open { socket, target, local, port });
                return None;
            }
        };
        let slots = self.slot.take().and_then(|slot| self.flows.take_slots(slot));
        let (permit, others) = (self.permit.take(), self.others.take());
        self.leave(Some(ResetCode::Shutdown));
        Some(MovedSocket {
            socket: detached(socket)?,
            address: self.address.borrow().clone(),
            target,
            local,
            port,
            slots: slots?,
            permit,
            others,
            is_answered: self.is_answered.get(),
        })
    }

    /// Goes on with the socket of the former flow, and sends the datagrams that have waited.
    /// Returns false if the socket is of no use here: it leads to another target.
    pub(super) fn adopt(self: &Rc<Self>, moved: MovedSocket) -> bool {
        if *self.address.borrow() != moved.address {
            return false;
        }
        let MovedSocket { socket, target, local, port, slots, others, is_answered, .. } = moved;
        let Ok(socket) = socket.attach() else { return false };
        if !self.flows.add_moved(self, slots) {
            return false;
        }
        follow::start(&self.flows);
        self.enter();
        self.settings.stats.count_roamed();
        self.is_answered.set(is_answered);
        self.others.replace(others);
        if let Some(slot) = self.slot.get().filter(|_| is_answered) {
            self.flows.answer(slot);
        }
        tracing::debug!(target = ?target, "a flow goes on with the socket of its visitor");
        let socket = Rc::new(socket);
        self.state.replace(State::Open { socket: Rc::clone(&socket), target, local, port });
        self.send_waiting(&socket);
        true
    }

    /// Records the permit of a flow that is admitted after its begin.
    pub(super) fn admitted(&self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            let _ = self.gate.set(Arc::clone(permit.gate()));
            self.permit.set(Some(permit));
        }
    }

    /// Keeps the socket after the end of the link, for the next flow of the visitor. Returns false
    /// if there is nothing to keep: a visitor without an answer has no conversation that could go
    /// on.
    pub(super) fn park(&self) -> bool {
        let entry = self.entry.borrow();
        let Some(entry) = entry.as_ref().filter(|_| self.is_answered.get()) else { return false };
        let socket = match &*self.state.borrow() {
            State::Open { socket, .. } => Rc::clone(socket),
            State::Looking | State::Closed => return false,
        };
        socket.flush_last(&*self.settings.stats);
        entry.park();
        drop(self.inlet.take());
        drop(self.permit.take());
        if self.is_counted.take() {
            self.settings.stats.leave();
        }
        true
    }

    /// Whether the flow waits for the next flow of its visitor, without a link.
    pub(super) fn is_parked(&self) -> bool {
        self.inlet.borrow().is_none()
    }
}

/// The socket outside of the runtime; `None`: the socket is closed.
fn detached(socket: FlowSocket) -> Option<DetachedSocket> {
    let detached = socket.detach();
    if let Err(error) = &detached {
        tracing::debug!(%error, "the socket of a flow cannot move");
    }
    detached.ok()
}
