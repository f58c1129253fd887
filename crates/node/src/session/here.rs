//! Visitors whose targets this process dials itself, as for a proxy. No link carries their
//! connections and flows.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use ops::status::{StreamKind, StreamNumber};
use proto::ResetCode;
use relay::{Announced, ConnectionTable, Permit, Settings, Socket, refuse_socket};
use transport::{FlowInlet, FlowOutlet};

use super::Worker;

/// An admitted visitor, its address, and the header that a load balancer put in front of its bytes.
pub type Admitted = (Socket, Option<SocketAddr>, Option<Box<Announced>>);

/// Connects admitted visitors to targets that this process dials.
pub trait ServesHere {
    /// Connects a visitor of the entry `name` to a target.
    fn serve(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        visitor: Admitted,
        settings: &Rc<Settings>,
        permit: Permit,
    );

    /// Connects a flow of a visitor to a target of the entry `name`.
    ///
    /// # Errors
    /// The entry is no longer in the configuration.
    fn serve_flow(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, ResetCode>;
}

/// The connections and flows of a worker that no link carries, and the handler of new ones.
#[derive(Default)]
pub struct Here {
    connections: Rc<ConnectionTable>,
    flows: Rc<ConnectionTable>,
    by: RefCell<Option<Rc<dyn ServesHere>>>,
}

impl std::fmt::Debug for Here {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Here").finish_non_exhaustive()
    }
}

impl Here {
    /// Sets the handler; from now on this process serves visitors itself.
    pub fn start(&self, by: Rc<dyn ServesHere>) {
        *self.by.borrow_mut() = Some(by);
    }

    /// As [`ServesHere::serve`]; without a handler, the visitor is refused.
    pub fn serve(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        visitor: Admitted,
        settings: &Rc<Settings>,
        permit: Permit,
    ) {
        let by = self.by.borrow().clone();
        match by {
            Some(by) => by.serve(worker, name, visitor, settings, permit),
            None => refuse_socket(visitor.0, settings, ResetCode::Unknown),
        }
    }

    /// As [`ServesHere::serve_flow`].
    pub fn serve_flow(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, ResetCode> {
        let by = self.by.borrow().clone();
        by.ok_or(ResetCode::Unknown)?.serve_flow(worker, name, peer, outlet)
    }

    /// The connections, or the flows, of this worker.
    pub fn table(&self, kind: StreamKind) -> &Rc<ConnectionTable> {
        match kind {
            StreamKind::Stream => &self.connections,
            StreamKind::Flow => &self.flows,
        }
    }

    /// Aborts a connection or a flow of worker `index`. False: none has this number.
    pub fn abort(&self, index: usize, wanted: StreamNumber) -> bool {
        let StreamNumber { kind, number: entry, .. } = wanted;
        number(index, kind, entry) == wanted && self.table(kind).abort(entry)
    }
}

/// The number by which users refer to a connection or a flow of worker `index`. The worker takes
/// the place of the link.
pub fn number(index: usize, kind: StreamKind, number: u32) -> StreamNumber {
    let link = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
    StreamNumber { link, kind, number }
}
