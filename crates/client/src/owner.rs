//! The client's reaction to events of its links: streams become connections to targets.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use link::client::Report;
use link::{End, Link, Owner, State};
use ops::events::Changed;
use ops::status;
use ops::status::LinkState;
use proto::control::ControlMessage;
use proto::greeting::Name;
use proto::{Measure, Open, ResetCode, Target, VisitorFields};
use relay::{refuse_stream, with_fields};
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use super::detour;
use super::links::Links;
use super::outage::{LastLine, Weight};
use super::register::register;
use super::services::service;
use super::shared::ClientShared;
use super::trouble::Trouble;
use super::uplink::Uplink;
use node::session::{Handle, Worker, note_stall};
use peer::visit::VisitKey;
use targets::{Introduction, Local, trial};

/// The owner of successive links in one of the N slots for links of a session.
pub(super) struct ClientOwner {
    worker: Rc<Worker>,
    shared: Arc<ClientShared>,
    uplink: Arc<Uplink>,
    links: Arc<Links>,
    last_line: RefCell<LastLine>,
    /// When the link in use lost its carrier or ended.
    lost: Cell<Option<Instant>>,
    serial: Cell<u64>,
}

impl fmt::Debug for ClientOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientOwner(link {})", self.serial.get())
    }
}

impl ClientOwner {
    pub(super) fn new(
        worker: &Rc<Worker>,
        shared: &Arc<ClientShared>,
        uplink: &Arc<Uplink>,
        links: &Arc<Links>,
    ) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(worker),
            shared: Arc::clone(shared),
            uplink: Arc::clone(uplink),
            links: Arc::clone(links),
            last_line: RefCell::default(),
            lost: Cell::default(),
            serial: Cell::new(0),
        })
    }

    /// Finds a service of the configuration in force that the server's visitors reach. A private
    /// service is not among them.
    fn service(&self, name: &str) -> Option<Rc<Local>> {
        let found = service(&self.worker, &self.shared, name).filter(|local| !local.is_private);
        found.filter(|_| self.uplink.may_reach(&self.shared.config, name))
    }

    /// Whether a flow to a service may go on with the socket of a flow that came by another server.
    /// A server that does not publish the service takes nothing over from the servers that do.
    fn may_roam(&self, service: &str) -> bool {
        self.shared.uplinks.are_several() && self.uplink.published.has(service)
    }

    /// Tests the targets of a service for the server. A server causes no more connections than a
    /// visitor does, and learns only whether there is an answer.
    fn test(&self, name: &Name, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let config = self.shared.config.load();
        let mut services = config.services.iter();
        let is_it =
            |service: &&config::Service| service.name == name.as_str() && service.private.is_none();
        if !self.uplink.may_reach(&self.shared.config, name.as_str()) {
            return refuse_stream(&*inlet, None, ResetCode::Unknown);
        }
        let Some(service) = services.find(is_it).cloned() else {
            return refuse_stream(&*inlet, None, ResetCode::Unknown);
        };
        let Some(place) = trial::Place::take() else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        probes::serve_test(inlet, async move { trial::test(&service, place).await })
    }

    /// The header for a stream of this service.
    fn header(&self, link: &Link, how: &Introduction, service: &str, open: &Open) -> Bytes {
        let server = how.is_direct.then(|| link.peer_address()).flatten().map(|at| at.ip());
        let visitor = open.visitor.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |v| v.ip());
        let public = self.uplink.places.of(service, &how.asked, visitor, server);
        let fields = open.fields.as_ref().map(VisitorFields::bytes).unwrap_or_default();
        with_fields(how.version, open.visitor, public, fields)
    }

    /// Records a new link, before its first carrier. `None`: the last link has ended.
    pub(super) fn begin(&self, link: Option<&Link>) {
        let Some(link) = link else { return };
        self.serial.set(link.serial());
        self.worker.state.add_link(self.worker.index, &self.links.session, link);
        register(link, &self.shared, &self.uplink);
    }

    /// Logs a report of the keeper of the link.
    pub(super) fn report(&self, report: &Report<'_>) {
        if self.links.are_retired() {
            return;
        }
        match report {
            Report::Unreachable { path, error, .. } => {
                let trouble = Trouble::new(&path.url, error);
                let text = trouble.text.clone();
                if self.links.fail(&text) {
                    return;
                }
                self.uplink.published.note_trouble(Some(trouble));
                let (is_refusal, now) = (error.is_refusal(), Instant::now());
                let weight = self.uplink.published.outage(|outage| {
                    outage.failed(&mut self.last_line.borrow_mut(), &text, is_refusal, now)
                });
                match weight {
                    Some(Weight::News) => {
                        tracing::info!("lost the server: {text}; trying again");
                    }
                    Some(Weight::Warning) => {
                        tracing::warn!("cannot connect to {text}; trying again");
                    }
                    Some(Weight::LongAway(away)) => {
                        let away = status::duration(away.as_secs());
                        tracing::warn!("the server has been away for {away}: {text}; trying again");
                    }
                    None => {}
                }
            }
            Report::NotBetter { link, path, error, pause } => {
                let pause = pause.as_secs();
                tracing::debug!(link, ?path, %error, pause, "a better path failed");
            }
            Report::Connected { link, path, resumed, reason } => {
                self.uplink.published.note_trouble(None);
                if self.links.choice.is_some() {
                    self.shared.measured.link_is_on(*link, &path.url);
                }
                *self.last_line.borrow_mut() = None;
                let what = if *resumed { "resumed over" } else { "is connected to" };
                let lost = if *link == self.serial.get() { self.lost.take() } else { None };
                let again = lost.map_or_else(String::new, |lost| {
                    format!(" again, after {:.1} s", lost.elapsed().as_secs_f32())
                });
                let path = &path.url;
                match reason {
                    Some(reason) => {
                        // A new link has moved from no path.
                        if *resumed {
                            self.uplink.note_move(reason.name());
                        }
                        tracing::info!(
                            link, path, %reason,
                            "link {link} {what} {path}{again}, because {reason}"
                        );
                    }
                    None => tracing::info!(link, "link {link} {what} {path}{again}"),
                }
                self.tell(*link, LinkState::Up, None);
            }
        }
    }

    /// Reports a state change of the link.
    fn tell(&self, link: u64, state: LinkState, reason: Option<String>) {
        let peer = || self.links.session.name.clone();
        self.shared.events.tell(|| Changed::Link { peer: peer(), link, state, reason });
    }

    /// Records that a link has lost its carrier.
    fn note_loss(&self, serial: u64) {
        // A link that retires has a successor.
        if self.links.are_retired() || serial != self.serial.get() {
            return;
        }
        let now = Instant::now();
        self.lost.set(self.lost.get().or(Some(now)));
        self.uplink.published.outage(|outage| outage.lost(now));
    }

    /// Logs the end of a link.
    fn tell_end(&self, link: u64, end: &End) {
        self.tell(link, LinkState::Ended, Some(end.to_string()));
        match end {
            End::Closed => tracing::debug!(link, "link closed"),
            End::Retired => {
                tracing::info!(link, "link {link} has retired: its last stream has ended");
            }
            // The server is stopping or was restarted.
            End::ByPeer | End::Forgotten => {
                self.note_loss(link);
                tracing::info!(link, "link {link} ended: {end}; its streams were reset");
            }
            End::Expired => {
                self.note_loss(link);
                if self.uplink.published.outage(|outage| outage.is_long(Instant::now())) {
                    tracing::warn!(link, "link {link} ended: {end}; its streams were reset");
                } else {
                    tracing::info!(link, "link {link} ended: {end}; its streams were reset");
                }
            }
            End::Violation(_) | End::Accused(_) | End::Panicked => {
                tracing::error!(link, "link {link} ended: {end}; its streams were reset");
            }
        }
    }
}

impl Owner for ClientOwner {
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let (name, mark) = match &open.target {
            Target::Service(name) => (name, None),
            Target::Marked { service, mark } => (service, Some(*mark)),
            Target::Measure(Measure::Echo) => return probes::serve_echo(inlet),
            Target::Measure(Measure::Target { service }) => return self.test(service, inlet),
            Target::Private { client, service } => {
                if !self.uplink.may_reach(&self.shared.config, service.as_str()) {
                    return refuse_stream(&*inlet, None, ResetCode::Unknown);
                }
                let (visitor, service) = (client.clone(), service.clone());
                let whose = VisitKey { visitor, service };
                return self.shared.host.take(&self.worker, &self.shared.home(), whose, inlet);
            }
            // A server dials for clients and serves their speed tests; a client does neither.
            Target::Forward(_)
            | Target::Reported(_)
            | Target::Detour(_)
            | Target::Hop(_)
            | Target::Ask(_)
            | Target::Measure(Measure::Sink | Measure::Source { .. }) => {
                return refuse_stream(&*inlet, None, ResetCode::Denied);
            }
        };
        match self.service(name) {
            Some(local) => {
                let header = local.header.as_ref().map(|how| self.header(link, how, name, &open));
                local.serve(open.visitor.into(), header, mark, inlet)
            }
            None => refuse_stream(&*inlet, None, ResetCode::Unknown),
        }
    }

    fn accept_flow(
        &self,
        _link: &Link,
        open: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        let Target::Service(name) = &open.target else {
            // A server dials for clients; a client does not.
            inlet.close(ResetCode::Denied);
            return None;
        };
        match self.service(name) {
            Some(local) if self.may_roam(name) => {
                local.serve_roaming_flow(self.uplink.id, open.visitor.into(), inlet)
            }
            Some(local) => local.serve_flow(open.visitor.into(), inlet),
            None => {
                inlet.close(ResetCode::Unknown);
                None
            }
        }
    }

    fn message(&self, link: &Link, message: ControlMessage) {
        match message {
            ControlMessage::Registered(_) if self.links.are_retired() => {}
            // The answer to an older set; the answer to the present set follows.
            ControlMessage::Registered(registered)
                if registered.generation < self.uplink.generation() => {}
            ControlMessage::Invited(invited) => self.shared.invites.answered(invited),
            ControlMessage::Registered(registered) => {
                self.uplink.places.note(&registered);
                let config = self.shared.config.load();
                let services = self.uplink.services(&config).into_iter();
                let all: HashMap<_, _> = services
                    .map(|service| (service.name.as_str(), service.asks_for_passwords()))
                    .collect();
                let ours = |name: &str| all.get(name).copied();
                let server = (&*self.links.session.name, self.links.plan.host());
                self.uplink.published.apply(&registered, server, ours);
                self.uplink.note_answer(registered.generation);
            }
            // Only servers accept registrations and invitations; signals are for links between
            // clients, and messages of nodes for links between nodes.
            ControlMessage::Register(_)
            | ControlMessage::Invite(_)
            | ControlMessage::Signal(_)
            | ControlMessage::Node(_) => {}
            ControlMessage::Stun(ports) => self.uplink.note_stun(ports),
            ControlMessage::Homes(_) if self.links.are_retired() => {}
            ControlMessage::Homes(offer) => {
                self.shared.homes.note(&self.uplink.label(), link.serial(), offer);
            }
            // The link handles these messages itself and does not pass them on.
            ControlMessage::Strained(_)
            | ControlMessage::FlowOpen(_)
            | ControlMessage::FlowClose(_) => {}
        }
    }

    fn answers(&self, link: &Link, answers: bool) {
        self.worker.state.set_answers(
            self.worker.index,
            &self.links.session,
            link.serial(),
            answers,
        );
        if answers {
            self.shared.uplinks.detours.is_heard(link.serial());
        } else {
            detour::link_is_silent(&self.shared, link.serial());
        }
        self.shared.uplinks.stirred.notify_one();
    }

    fn changed(&self, link: &Link, state: State) {
        let _stirs = Stirs(&self.shared);
        let (worker, session, serial) = (&self.worker, &self.links.session, link.serial());
        match state {
            State::Live => {
                self.shared.uplinks.detours.is_heard(serial);
                worker.state.set_live(worker.index, session, serial, true);
            }
            State::Stalled => {
                self.note_loss(serial);
                detour::link_is_silent(&self.shared, serial);
                let server = session.name.as_str();
                tracing::info!(
                    link = serial,
                    server,
                    "carrier lost: link {serial} to {server} has no connection; its streams wait \
                     for the next connection"
                );
                self.tell(serial, LinkState::Stalled, None);
                worker.state.set_live(worker.index, session, serial, false);
                note_stall(worker, session, serial);
            }
            State::GoingAway => {
                self.tell(serial, LinkState::GoingAway, None);
                worker.state.set_live(worker.index, session, serial, false);
                self.shared.visits.uplink_retires();
            }
            State::Ended(end) => {
                self.tell_end(serial, &end);
                self.shared.uplinks.detours.is_heard(serial);
                self.shared.measured.link_has_ended(serial);
                self.shared.homes.forget(serial);
                worker.state.remove_link(worker.index, session, serial);
            }
        }
    }
}

/// Tells the task that decides about servers, on drop, that a link has changed.
struct Stirs<'a>(&'a ClientShared);

impl Drop for Stirs<'_> {
    fn drop(&mut self) {
        self.0.uplinks.stirred.notify_one();
        self.0.note_loss();
    }
}

/// The counters of the services over all workers.
pub(super) async fn counts(handles: &[Handle]) -> Vec<status::Service> {
    let mut all = Vec::new();
    for handle in handles {
        let part = handle.call(|worker| survey::services(worker)).await;
        // A worker that has stopped counts nothing.
        survey::merge(&mut all, part.unwrap_or_default());
    }
    all
}
