//! Visitors whose targets this process dials itself: those of a proxy. No link carries their
//! connections and flows.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use ops::status::{StreamKind, StreamNumber};
use proto::ResetCode;
use relay::{Announced, ConnectionTable, Permit, Settings, Socket, refuse_socket};
use transport::{FlowInlet, FlowOutlet};

use super::Worker;

/// An admitted visitor, its address, and the header that a load balancer has put in front of the
/// bytes of the visitor.
pub(crate) type Admitted = (Socket, Option<SocketAddr>, Option<Box<Announced>>);

/// Joins admitted visitors with targets of this process.
pub(crate) trait ServesHere {
    /// Connects a visitor of the entry `name` with a target.
    fn serve(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        visitor: Admitted,
        settings: &Rc<Settings>,
        permit: Permit,
    );

    /// Joins a flow of a visitor with a target of the entry `name`.
    ///
    /// # Errors
    /// The entry has left the configuration.
    fn serve_flow(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, ResetCode>;
}

/// The connections and flows of a worker that no link carries, and what serves new ones.
#[derive(Default)]
pub(crate) struct Here {
    connections: Rc<ConnectionTable>,
    flows: Rc<ConnectionTable>,
    by: RefCell<Option<Rc<dyn ServesHere>>>,
}

impl Here {
    /// This process serves visitors from now on.
    pub(crate) fn start(&self, by: Rc<dyn ServesHere>) {
        *self.by.borrow_mut() = Some(by);
    }

    /// As [`ServesHere::serve`]; refuses where nothing serves.
    pub(crate) fn serve(
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
    pub(crate) fn serve_flow(
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
    pub(crate) fn table(&self, kind: StreamKind) -> &Rc<ConnectionTable> {
        match kind {
            StreamKind::Stream => &self.connections,
            StreamKind::Flow => &self.flows,
        }
    }

    /// Ends a connection or a flow of worker `index`. False: nothing has this number.
    pub(crate) fn abort(&self, index: usize, wanted: StreamNumber) -> bool {
        let StreamNumber { kind, number: entry, .. } = wanted;
        number(index, kind, entry) == wanted && self.table(kind).abort(entry)
    }
}

/// The number by which people name a connection or a flow of worker `index`. The worker stands
/// where the link stands elsewhere.
pub(crate) fn number(index: usize, kind: StreamKind, number: u32) -> StreamNumber {
    let link = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
    StreamNumber { link, kind, number }
}
