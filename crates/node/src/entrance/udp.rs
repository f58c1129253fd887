//! Flows of a UDP port: each peer has a flow over a link of the worker that reads its datagrams, or
//! to a target of a proxy.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use net::SocketOptions;
use proto::ResetCode;
use proto::control::FlowTimes;
use relay::{FlowHandler, Permit, open_error_code};
use transport::{FlowConnector as _, FlowInlet, FlowOutlet};

use super::Entrance;
use super::guard::Guard;
use crate::accept::{self, Guest};
use crate::backends::Picked;
use crate::entrance::Entrances;
use crate::session::{Here, Session, Worker};

/// Opens the flows of a UDP port on one worker.
pub(super) struct FlowAcceptor {
    pub(super) worker: Rc<Worker>,
    pub(super) entrance: Arc<Entrance>,
    /// The idle times in force.
    pub(super) times: Cell<FlowTimes>,
}

impl fmt::Debug for FlowAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowAcceptor({})", self.entrance.name())
    }
}

impl FlowHandler for FlowAcceptor {
    fn is_announcer(&self, peer: SocketAddr) -> bool {
        self.entrance.announcers.contain(Some(peer))
    }

    fn open(
        &self,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), ResetCode> {
        let Entrance { id, backends, .. } = &*self.entrance;
        let is_live = |session: &Session| self.worker.state.flow_link(session).is_some();
        let backend = backends.pick_flow(peer, is_live).ok_or(ResetCode::Denied)?;
        let aim = &backend.picked.aim;
        if self.times.replace(aim.terms.flows) != aim.terms.flows
            && let Some(open) = self.worker.state.of::<Entrances>().0.borrow().get(id)
            && let Some(Guard::Udp(listening)) = &open.listening
        {
            listening.set_times(aim.terms.flows);
        }
        let guest = FlowGuest { peer, outlet: &*outlet };
        if backend.session.is_here() {
            let permit = accept::admit(&backend, &guest).ok_or(ResetCode::Limit)?;
            let inlet =
                self.worker.state.of::<Here>().serve_flow(&self.worker, &aim.name, peer, outlet)?;
            return Ok((inlet, Some(permit)));
        }
        let link = self.worker.state.flow_link(&backend.session);
        // A silent node is not waited for: the client may be at another node by now.
        let link = link.filter(|_| !backend.is_elsewhere() || backend.takes_visitors());
        let Some(link) = link else {
            backends.demand(self.worker.index);
            return Err(ResetCode::Shutdown);
        };
        let permit = accept::admit(&backend, &guest).ok_or(ResetCode::Limit)?;
        let (target, priority) = (aim.opens(), aim.terms.priority);
        let link = self.worker.state.link_of_class(&backend.session, link, priority);
        let open = proto::Open { target, visitor: Some(peer), priority, fields: None };
        let outlet: Rc<dyn FlowOutlet> = if backends.have_others() {
            let (entrance, picked) = (Arc::clone(&self.entrance), Arc::clone(&backend.picked));
            Rc::new(Movable { outlet, entrance, picked })
        } else {
            outlet
        };
        let inlet = link.open_flow(open, outlet).map_err(open_error_code)?;
        Ok((inlet, Some(permit)))
    }
}

/// A flow whose backend is picked.
struct FlowGuest<'a> {
    peer: SocketAddr,
    outlet: &'a dyn FlowOutlet,
}

impl Guest for FlowGuest<'_> {
    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn obey(&self, options: &SocketOptions) {
        self.outlet.obey(options);
    }
}

/// The flow of a peer of a port that another client, or another node, may serve later. It ends when
/// its link is silent and another can serve: the next datagram of the peer begins a flow there.
#[derive(Debug)]
struct Movable {
    outlet: Rc<dyn FlowOutlet>,
    entrance: Arc<Entrance>,
    /// The backend that has the flow.
    picked: Arc<Picked>,
}

impl FlowOutlet for Movable {
    fn deliver(&self, datagram: Bytes) {
        self.outlet.deliver(datagram);
    }

    fn close(&self, code: ResetCode) {
        self.entrance.backends.note_refusal(&self.picked, code);
        self.outlet.close(code);
    }

    fn silent(&self) {
        if self.entrance.backends.had_better_leave(self.picked.session, self.peer()) {
            tracing::debug!(
                service = self.entrance.name(), peer = ?self.peer(),
                "the flow of a silent link ends; the next datagram goes over another link"
            );
            self.outlet.close(ResetCode::Shutdown);
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.outlet.peer()
    }

    fn obey(&self, options: &SocketOptions) {
        self.outlet.obey(options);
    }

    fn counted_in(&self) -> *const () {
        self.outlet.counted_in()
    }
}
