//! Limits a link of another node to streams and flows that lead to clients of this node, and to
//! messages of the cluster.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ::link::{End, Link, Owner, State};
use cluster::names::NodeId;
use cluster::wire::{self, BadMessage};
use node::session::{Session, Worker};
use proto::control::ControlMessage;
use proto::greeting::Features;
use proto::{Hop, LinkId, Open, ResetCode, Target};
use relay::refuse_stream;
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use crate::serves::{HopStream, NodeAsks};
use crate::shared::NodeShared;

/// The owner of a link of another node.
pub(super) struct IncomingOwner {
    worker: Rc<Worker>,
    shared: Arc<NodeShared>,
    node: NodeId,
    id: LinkId,
    session: Arc<Session>,
    /// A message of the link could not be read. The next ones are most likely of the same version.
    has_complained: Cell<bool>,
}

impl fmt::Debug for IncomingOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IncomingOwner({})", self.node)
    }
}

impl IncomingOwner {
    pub(super) fn new(
        worker: &Rc<Worker>,
        shared: &Arc<NodeShared>,
        (id, node): (LinkId, &NodeId),
        session: &Arc<Session>,
    ) -> Rc<Self> {
        let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
        let (node, session) = (node.clone(), Arc::clone(session));
        Rc::new(Self { worker, shared, node, id, session, has_complained: Cell::new(false) })
    }

    /// Logs that a message cannot be read: once for a link where somebody should look.
    fn complain(&self, link: &Link, error: &BadMessage) {
        let (node, link) = (&self.node, link.serial());
        if self.has_complained.replace(true) {
            tracing::debug!(%node, link, "a message of node {node} is dropped: {error}");
        } else {
            tracing::warn!(%node, link, "messages of node {node} are dropped: {error}");
        }
    }
}

/// The hop that a stream or a flow requests. `None`: another node may open nothing else.
fn hop(link: &Link, open: Open) -> Option<(Hop, HopStream)> {
    let Open { target, visitor, priority, fields } = open;
    match target {
        Target::Hop(hop) if link.features().have(Features::NODES) => {
            Some((hop, HopStream { visitor, priority, fields }))
        }
        Target::Hop(_)
        | Target::Ask(_)
        | Target::Service(_)
        | Target::Marked { .. }
        | Target::Forward(_)
        | Target::Reported(_)
        | Target::Detour(_)
        | Target::Measure(_)
        | Target::Private { .. } => None,
    }
}

impl Owner for IncomingOwner {
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        if let Target::Ask(question) = &open.target
            && link.features().have(Features::NODES)
        {
            let (from, question, client) = (self.node.clone(), question.clone(), open.visitor);
            let asks = NodeAsks { from, question, client };
            return self.shared.serves.answer(&self.worker, asks, inlet);
        }
        match hop(link, open) {
            Some((hop, stream)) => {
                self.shared.serves.stream(&self.worker, &self.node, hop, stream, inlet)
            }
            None => refuse_stream(&*inlet, None, ResetCode::Unknown),
        }
    }

    fn accept_flow(
        &self,
        link: &Link,
        open: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        let Some((hop, flow)) = hop(link, open) else {
            inlet.close(ResetCode::Unknown);
            return None;
        };
        self.shared.serves.flow(&self.worker, &self.node, hop, flow, inlet)
    }

    fn message(&self, link: &Link, message: ControlMessage) {
        match message {
            ControlMessage::Node(bytes) => match wire::decode(&bytes) {
                Ok(message) => self.shared.table.message(self.node.clone(), message),
                Err(error) => self.complain(link, &error),
            },
            // A node has no services and no invitations here, and the link handles the others
            // itself.
            ControlMessage::Register(_)
            | ControlMessage::Registered(_)
            | ControlMessage::Strained(_)
            | ControlMessage::Signal(_)
            | ControlMessage::Invite(_)
            | ControlMessage::Invited(_)
            | ControlMessage::FlowOpen(_)
            | ControlMessage::FlowClose(_)
            | ControlMessage::Homes(_)
            | ControlMessage::Stun(_) => {}
        }
    }

    fn answers(&self, link: &Link, answers: bool) {
        self.worker.state.set_answers(self.worker.index, &self.session, link.serial(), answers);
    }

    fn changed(&self, link: &Link, state: State) {
        let (worker, session, serial) = (&self.worker, &self.session, link.serial());
        match state {
            State::Live => worker.state.set_live(worker.index, session, serial, true),
            State::Stalled | State::GoingAway => {
                worker.state.set_live(worker.index, session, serial, false);
            }
            State::Ended(end) => {
                self.shared.incomings.forget(self.id);
                worker.state.remove_link(worker.index, session, serial);
                let node = &self.node;
                match end {
                    End::Closed | End::Retired | End::ByPeer | End::Expired | End::Forgotten => {
                        tracing::info!(
                            %node, link = serial,
                            "link {serial} of node {node} has ended: {end}"
                        );
                    }
                    End::Violation(_) | End::Accused(_) | End::Panicked => {
                        tracing::error!(
                            %node, link = serial,
                            "link {serial} of node {node} has ended: {end}"
                        );
                    }
                }
            }
        }
    }
}
