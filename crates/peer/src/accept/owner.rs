//! Limits a visitor's link to the streams and flows of its one service. Everything else is refused.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ::link::{End, Link, Owner, State};
use proto::control::ControlMessage;
use proto::{LinkId, Open, ResetCode, Target};
use relay::{Visitor, refuse_stream};
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use super::proof::may_visit;
use crate::direct::offer::Offers;
use crate::home::Home;
use crate::visit::VisitKey;
use node::session::{Session, Worker};
use targets::Local;

/// The owner of a link of a visitor.
pub(super) struct PeerOwner {
    worker: Rc<Worker>,
    shared: Arc<dyn Home>,
    whose: VisitKey,
    /// The name of the visitor, which its streams share.
    client: Arc<str>,
    id: LinkId,
    session: Arc<Session>,
    offers: Offers,
}

impl fmt::Debug for PeerOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerOwner({:?})", self.whose)
    }
}

impl PeerOwner {
    pub(super) fn new(
        worker: &Rc<Worker>,
        shared: &Arc<dyn Home>,
        whose: &VisitKey,
        id: LinkId,
        session: &Arc<Session>,
    ) -> Rc<Self> {
        let offers = Offers::new(worker, shared, whose, session);
        let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
        let (whose, session) = (whose.clone(), Arc::clone(session));
        let client = whose.visitor.as_str().into();
        Rc::new(Self { worker, shared, whose, client, id, session, offers })
    }

    /// The visitor of a stream or a flow. The client at the other end of the link reports the
    /// address.
    fn visitor(&self, open: &Open) -> Visitor {
        Visitor::Of { client: Arc::clone(&self.client), claimed: open.visitor }
    }

    /// The service, if the visitor requests it.
    fn service(&self, open: &Open) -> Result<Rc<Local>, ResetCode> {
        let service = self.whose.service.as_str();
        if !is_of(service, &open.target) {
            return Err(ResetCode::Denied);
        }
        if !may_visit(&self.shared.config().load(), &self.whose) {
            return Err(ResetCode::Unknown);
        }
        self.shared.service(&self.worker, service).ok_or(ResetCode::Unknown)
    }
}

/// Whether the target of a stream or a flow is this service. The visitor may request any target,
/// but a peer link reaches only the service of its token.
fn is_of(service: &str, target: &Target) -> bool {
    match target {
        Target::Service(name) => name == service,
        Target::Forward(_)
        | Target::Reported(_)
        | Target::Detour(_)
        | Target::Hop(_)
        | Target::Ask(_)
        | Target::Marked { .. }
        | Target::Measure(_)
        | Target::Private { .. } => false,
    }
}

impl Owner for PeerOwner {
    fn accept(&self, _: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        match self.service(&open) {
            Ok(local) => local.serve(self.visitor(&open), None, None, inlet),
            Err(code) => refuse_stream(&*inlet, None, code),
        }
    }

    fn accept_flow(
        &self,
        _: &Link,
        open: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        match self.service(&open) {
            Ok(local) => local.serve_flow(self.visitor(&open), inlet),
            Err(code) => {
                inlet.close(code);
                None
            }
        }
    }

    fn message(&self, link: &Link, message: ControlMessage) {
        match message {
            ControlMessage::Signal(signal) => self.offers.hear(link, signal),
            // A visitor has no services here, and the link handles the others itself.
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
        self.worker.state.set_answers(self.worker.index, &self.session, link.serial(), answers);
    }

    fn changed(&self, link: &Link, state: State) {
        let (worker, session, serial) = (&self.worker, &self.session, link.serial());
        match state {
            State::Live => {
                // The carrier may be a standby that has taken over.
                if let Some(peer) = link.active_peer() {
                    session.paths.moved(link, peer.transport);
                }
                worker.state.set_live(worker.index, session, serial, true);
            }
            State::Stalled | State::GoingAway => {
                worker.state.set_live(worker.index, session, serial, false);
            }
            State::Ended(end) => {
                self.shared.host().forget(self.id);
                self.offers.end();
                self.session.paths.ended(link);
                worker.state.remove_link(worker.index, session, serial);
                let VisitKey { visitor, service } = &self.whose;
                let (client, service) = (visitor.as_str(), service.as_str());
                match end {
                    End::Closed | End::Retired | End::ByPeer | End::Expired | End::Forgotten => {
                        tracing::info!(
                            client,
                            service,
                            link = serial,
                            "the visit of client {client} at {service} has ended: {end}"
                        );
                    }
                    End::Violation(_) | End::Accused(_) | End::Panicked => {
                        tracing::error!(
                            client,
                            service,
                            link = serial,
                            "the visit of client {client} at {service} has ended: {end}"
                        );
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Measure;
    use proto::greeting::Name;

    use super::*;

    #[test]
    fn a_forged_open_of_a_visitor_reaches_nothing_but_its_service() {
        assert!(is_of("ssh", &Target::Service("ssh".to_owned())));
        let name = |text| Name::new(text).unwrap();
        for target in [
            Target::Service("web".to_owned()),
            Target::Service("SSH".to_owned()),
            Target::Service("ssh/web".to_owned()),
            Target::Service(String::new()),
            Target::Forward("tcp://127.0.0.1:22".to_owned()),
            Target::Reported("tcp://127.0.0.1:22".to_owned()),
            Target::Detour("tcp://127.0.0.1:22".to_owned()),
            Target::Private { client: name("laptop"), service: name("ssh") },
            Target::Measure(Measure::Echo),
            Target::Hop(proto::Hop {
                client: name("laptop"),
                instance: 1,
                generation: 1,
                service: name("ssh"),
                claim: 1,
                mark: None,
                visitor: None,
            }),
        ] {
            assert!(!is_of("ssh", &target), "{target:?}");
        }
    }
}
