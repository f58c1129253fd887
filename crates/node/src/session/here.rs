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
pub type Admitted = (Socket, Option<SocketAddr>, Option<Box<Announced>>);

/// Joins admitted visitors with targets of this process.
pub trait ServesHere {
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
    /// This process serves visitors from now on.
    pub fn start(&self, by: Rc<dyn ServesHere>) {
        *self.by.borrow_mut() = Some(by);
    }

    /// As [`ServesHere::serve`]; refuses where nothing serves.
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

    /// Ends a connection or a flow of worker `index`. False: nothing has this number.
    pub fn abort(&self, index: usize, wanted: StreamNumber) -> bool {
        let StreamNumber { kind, number: entry, .. } = wanted;
        number(index, kind, entry) == wanted && self.table(kind).abort(entry)
    }
}

/// The number by which people name a connection or a flow of worker `index`. The worker stands
/// where the link stands elsewhere.
pub fn number(index: usize, kind: StreamKind, number: u32) -> StreamNumber {
    let link = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
    StreamNumber { link, kind, number }
}
