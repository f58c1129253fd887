//! Reacts to events of a link to another node: this node opens its streams, and accepts none.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ::link::{End, Link, Owner, State};
use node::session::{Worker, note_stall};
use proto::control::ControlMessage;
use proto::greeting::Features;
use proto::{Open, ResetCode};
use relay::refuse_stream;
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use super::remote::Remote;
use super::trouble;

/// The owner of the links of one worker to another node.
pub(super) struct OutgoingOwner {
    worker: Rc<Worker>,
    remote: Arc<Remote>,
}

impl fmt::Debug for OutgoingOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutgoingOwner({})", self.remote.node)
    }
}

impl OutgoingOwner {
    pub(super) fn new(worker: &Rc<Worker>, remote: &Arc<Remote>) -> Rc<Self> {
        Rc::new(Self { worker: Rc::clone(worker), remote: Arc::clone(remote) })
    }

    /// Records a new link, before its first carrier. `None`: the last link has ended.
    pub(super) fn begin(&self, link: Option<&Link>) {
        if let Some(link) = link {
            self.worker.state.add_link(self.worker.index, &self.remote.session, link);
        }
    }

    /// Whether the links of this worker carry the messages of the cluster.
    fn is_first(&self) -> bool {
        self.worker.index == 0
    }

    /// Records whether a link takes streams and messages.
    fn set_live(&self, link: &Link, is_live: bool) {
        let (worker, serial) = (&self.worker, link.serial());
        worker.state.set_live(worker.index, &self.remote.session, serial, is_live);
        if self.is_first() {
            self.remote.news.note(serial, is_live);
        }
    }
}

impl Owner for OutgoingOwner {
    fn accept(&self, _: &Link, _: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        // The other node has links of its own for its streams.
        refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    fn accept_flow(
        &self,
        _: &Link,
        _: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        inlet.close(ResetCode::Unknown);
        None
    }

    fn message(&self, _: &Link, message: ControlMessage) {
        match message {
            // The other node has links of its own for its messages. The link handles the messages
            // about flows and its speed itself, and the others concern clients.
            ControlMessage::Node(_)
            | ControlMessage::Register(_)
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
        let (worker, serial) = (&self.worker, link.serial());
        worker.state.set_answers(worker.index, &self.remote.session, serial, answers);
        if self.is_first() {
            self.remote.news.note(serial, answers && !link.is_going_away());
        }
    }

    fn changed(&self, link: &Link, state: State) {
        let (worker, session) = (&self.worker, &self.remote.session);
        let (node, serial) = (&self.remote.node, link.serial());
        match state {
            State::Live if !link.features().have(Features::NODES) => {
                self.remote.fail(trouble::too_old(node), true);
            }
            State::Live => self.set_live(link, true),
            State::Stalled => {
                tracing::info!(
                    link = serial, %node,
                    "carrier lost: link {serial} to node {node} waits for its next connection"
                );
                self.set_live(link, false);
                note_stall(worker, session, serial);
            }
            State::GoingAway => self.set_live(link, false),
            State::Ended(end) => {
                worker.state.remove_link(worker.index, session, serial);
                if self.is_first() {
                    self.remote.news.ended(serial);
                }
                match end {
                    End::Closed | End::Retired => {
                        tracing::debug!(link = serial, %node, "link {serial} to node {node} has ended: {end}");
                    }
                    End::ByPeer | End::Expired | End::Forgotten => {
                        tracing::info!(
                            link = serial, %node,
                            "link {serial} to node {node} has ended: {end}; its streams were reset"
                        );
                    }
                    End::Violation(_) | End::Accused(_) | End::Panicked => {
                        tracing::error!(
                            link = serial, %node,
                            "link {serial} to node {node} has ended: {end}; its streams were reset"
                        );
                    }
                }
            }
        }
    }
}
