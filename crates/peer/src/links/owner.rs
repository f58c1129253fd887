//! The visitor's reaction to events of a link: it opens streams and accepts none.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ::link::{End, Link, Owner, State};
use config::{PeerPath, Proof, Visit};
use proto::control::ControlMessage;
use proto::{Open, ResetCode};
use relay::refuse_stream;
use transport::{Inlet, Outlet};

use super::Peer;
use crate::direct::seek::Seeker;
use node::session::{Worker, is_direct};

/// The owner of a link to a private service.
pub(super) struct VisitorOwner {
    worker: Rc<Worker>,
    peer: Arc<Peer>,
    /// Searches direct paths; `None`: the link must be relayed.
    seeker: Option<Rc<Seeker>>,
    /// Streams begin only on a direct path.
    only_direct: bool,
    /// A certificate is the proof of this client, not a token.
    by_certificate: bool,
}

impl fmt::Debug for VisitorOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitorOwner({})", self.peer.service)
    }
}

impl VisitorOwner {
    pub(super) fn new(
        worker: &Rc<Worker>,
        peer: &Arc<Peer>,
        seeker: Option<&Rc<Seeker>>,
        visit: &Visit,
    ) -> Rc<Self> {
        let (worker, peer, seeker) = (Rc::clone(worker), Arc::clone(peer), seeker.cloned());
        let only_direct = visit.p2p == PeerPath::Direct;
        let by_certificate = matches!(visit.proof, Proof::Certificate(_));
        Rc::new(Self { worker, peer, seeker, only_direct, by_certificate })
    }

    /// Records a new link, before its first carrier. `None`: the last link has ended.
    pub(super) fn begin(&self, link: Option<&Link>) {
        if let Some(link) = link {
            self.worker.state.add_link(self.worker.index, &self.peer.session, link);
        }
    }

    /// Records that the link has another carrier.
    pub(super) fn moved(&self, link: &Link) {
        let (worker, session, serial) = (&self.worker, &self.peer.session, link.serial());
        let Some(peer) = link.active_peer() else { return };
        session.paths.moved(link, peer.transport);
        let takes = !self.only_direct || is_direct(peer.transport);
        worker.state.set_live(worker.index, session, serial, takes);
    }

    pub(super) const fn only_direct(&self) -> bool {
        self.only_direct
    }

    pub(super) const fn by_certificate(&self) -> bool {
        self.by_certificate
    }

    fn stalled(&self) {
        if let Some(seeker) = &self.seeker {
            seeker.stalled();
        }
    }
}

impl Owner for VisitorOwner {
    fn accept(&self, _: &Link, _: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        refuse_stream(&*inlet, None, ResetCode::Denied)
    }

    fn message(&self, _: &Link, message: ControlMessage) {
        match message {
            ControlMessage::Signal(signal) => {
                if let Some(seeker) = &self.seeker {
                    seeker.hear(signal);
                }
            }
            // This end has no services here, and the link handles the others itself.
            ControlMessage::Register(_)
            | ControlMessage::Registered(_)
            | ControlMessage::Strained(_)
            | ControlMessage::Invite(_)
            | ControlMessage::Invited(_)
            | ControlMessage::FlowOpen(_)
            | ControlMessage::FlowClose(_)
            | ControlMessage::Node(_)
            | ControlMessage::Homes(_)
            | ControlMessage::Stun(_) => {}
        }
    }

    fn answers(&self, link: &Link, answers: bool) {
        self.worker.state.set_answers(
            self.worker.index,
            &self.peer.session,
            link.serial(),
            answers,
        );
    }

    fn changed(&self, link: &Link, state: State) {
        let (worker, session, serial) = (&self.worker, &self.peer.session, link.serial());
        let service = &self.peer.service;
        match state {
            State::Live => {
                if let Some(seeker) = &self.seeker {
                    seeker.live(link);
                }
                self.moved(link);
            }
            State::Stalled => {
                self.stalled();
                tracing::info!(
                    link = serial, %service,
                    "carrier lost: link {serial} to the private service {service} waits for its \
                     next connection"
                );
                worker.state.set_live(worker.index, session, serial, false);
            }
            State::GoingAway => worker.state.set_live(worker.index, session, serial, false),
            State::Ended(end) => {
                self.stalled();
                session.paths.ended(link);
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
