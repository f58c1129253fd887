//! The visitor's reaction to events of a link: it opens streams and takes none.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ::link::{End, Link, Owner, State};
use proto::control::ControlMessage;
use proto::{Open, ResetCode};
use relay::refuse_stream;
use transport::{Inlet, Outlet};

use super::Peer;
use crate::session::Worker;

/// The owner of a link to a private service.
pub(super) struct VisitorOwner {
    worker: Rc<Worker>,
    peer: Arc<Peer>,
}

impl fmt::Debug for VisitorOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitorOwner({})", self.peer.service)
    }
}

impl VisitorOwner {
    pub(super) fn new(worker: &Rc<Worker>, peer: &Arc<Peer>) -> Rc<Self> {
        Rc::new(Self { worker: Rc::clone(worker), peer: Arc::clone(peer) })
    }

    /// Notes a new link, before its first carrier. `None`: the last link has ended.
    pub(super) fn begin(&self, link: Option<&Link>) {
        if let Some(link) = link {
            self.worker.state.add_link(self.worker.index, &self.peer.session, link);
        }
    }
}

impl Owner for VisitorOwner {
    fn accept(&self, _: &Link, _: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        refuse_stream(&*inlet, None, ResetCode::Denied)
    }

    fn message(&self, _: &Link, message: ControlMessage) {
        match message {
            // What the other client says to find a direct path. This version looks for none.
            ControlMessage::Signal(_)
            // This end has no services here, and the link handles the others itself.
            | ControlMessage::Register(_)
            | ControlMessage::Registered(_)
            | ControlMessage::Strained(_)
            | ControlMessage::Invite(_)
            | ControlMessage::Invited(_)
            | ControlMessage::FlowOpen(_)
            | ControlMessage::FlowClose(_) => {}
        }
    }

    fn changed(&self, link: &Link, state: State) {
        let (worker, session, serial) = (&self.worker, &self.peer.session, link.serial());
        let service = &self.peer.service;
        match state {
            State::Live => worker.state.set_live(worker.index, session, serial, true),
            State::Stalled => {
                tracing::info!(
                    link = serial, %service,
                    "carrier lost: link {serial} to the private service {service} waits for its \
                     next connection"
                );
                worker.state.set_live(worker.index, session, serial, false);
            }
            State::GoingAway => worker.state.set_live(worker.index, session, serial, false),
            State::Ended(end) => {
                worker.state.remove_link(worker.index, session, serial);
                match end {
                    End::Closed | End::Retired => {
                        tracing::debug!(link = serial, %service, "link {serial} has ended: {end}");
                    }
                    End::ByPeer | End::Expired | End::Forgotten => {
                        tracing::info!(
                            link = serial, %service,
                            "link {serial} to the private service {service} has ended: {end}"
                        );
                    }
                    End::Violation(_) | End::Accused(_) | End::Panicked => {
                        tracing::error!(
                            link = serial, %service,
                            "link {serial} to the private service {service} has ended: {end}"
                        );
                    }
                }
            }
        }
    }
}
