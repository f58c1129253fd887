//! The client's reaction to events of its links: streams become connections to targets.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use config::ClientConfig;
use link::client::Report;
use link::{End, Link, Owner, State};
use ops::status;
use proto::control::ControlMessage;
use proto::{Measure, Open, ResetCode, Target};
use relay::{
    Caller, ProxyVersion, Settings, TargetAddr, Timeouts, Watcher, connect_stream, proxy_header,
    refuse_stream,
};
use transport::{Inlet, Outlet};

use super::ClientShared;
use super::links::Links;
use super::outage::{Told, Weight};
use super::register::register;
use super::trouble::Trouble;
use crate::health::Healths;
use crate::session::{Handle, Worker};
use crate::watch::TargetWatch;
use crate::{descriptors, probes, survey};

/// The owner of successive links: one of the N places for links of a session.
pub(super) struct ClientOwner {
    worker: Rc<Worker>,
    shared: Arc<ClientShared>,
    links: Arc<Links>,
    services: RefCell<Services>,
    told: RefCell<Told>,
    /// When the link in use lost its carrier or ended.
    lost: Cell<Option<Instant>>,
    serial: Cell<u64>,
}

/// A service on one worker.
#[derive(Debug)]
struct Local {
    target: TargetAddr,
    settings: Rc<Settings>,
    /// The header that tells the target the visitor's address.
    header: Option<Introduction>,
}

/// How a target learns the visitor's address.
#[derive(Debug)]
struct Introduction {
    version: ProxyVersion,
    /// The public addresses that the client asks for.
    asked: Vec<config::Public>,
    /// No proxy stands on a path to the server, so the address of a carrier is the server's.
    is_direct: bool,
}

impl fmt::Debug for ClientOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientOwner(link {})", self.serial.get())
    }
}

/// The services of one configuration.
struct Services {
    of: Arc<ClientConfig>,
    known: HashMap<String, Rc<Local>>,
}

impl Services {
    fn new(worker: &Worker, healths: &Healths, of: Arc<ClientConfig>) -> Self {
        let room = descriptors::room();
        let is_direct = of.servers.iter().all(|path| path.proxy.is_none());
        let local = |service: &config::Service| {
            let target = target(service)?;
            let timeouts = Timeouts {
                dial: service.timeouts.dial.duration(),
                idle: service.timeouts.idle.duration(),
                half_close: service.timeouts.half_close.duration(),
            };
            let stats = worker.state.service_stats(&service.name);
            let to = service.target.to_string();
            let health = healths.of(&service.name, &to);
            let watcher: Rc<dyn Watcher> =
                Rc::new(TargetWatch { service: service.name.clone(), target: to, health });
            let watcher = Some(watcher);
            let settings = Settings { timeouts, stats, room, watcher, ..Settings::default() };
            let settings = Rc::new(settings);
            let header = service.proxy_protocol.map(|version| Introduction {
                version: proxy_version(version),
                asked: service.public.clone(),
                is_direct,
            });
            let local = Local { target, settings, header };
            Some((service.name.clone(), Rc::new(local)))
        };
        Self { known: of.services.iter().filter_map(local).collect(), of }
    }
}

impl ClientOwner {
    pub(super) fn new(
        worker: Rc<Worker>,
        shared: Arc<ClientShared>,
        links: Arc<Links>,
    ) -> Rc<Self> {
        let services =
            RefCell::new(Services::new(&worker, &shared.healths, shared.config.load_full()));
        let (told, lost, serial) = (RefCell::default(), Cell::default(), Cell::new(0));
        Rc::new(Self { worker, shared, links, services, told, lost, serial })
    }

    /// Finds a service of the configuration in force.
    fn service(&self, name: &str) -> Option<Rc<Local>> {
        let mut services = self.services.borrow_mut();
        let now = self.shared.config.load();
        if !Arc::ptr_eq(&services.of, &now) {
            *services = Services::new(&self.worker, &self.shared.healths, Arc::clone(&now));
        }
        services.known.get(name).cloned()
    }

    /// The header for a stream of this service.
    fn header(&self, link: &Link, how: &Introduction, service: &str, open: &Open) -> Bytes {
        let server = link.peer_address().filter(|_| how.is_direct).map(|address| address.ip());
        let visitor = open.visitor.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |v| v.ip());
        let public = self.shared.places.of(service, &how.asked, visitor, server);
        proxy_header(how.version, open.visitor, public)
    }

    /// Notes a new link, before its first carrier. `None`: the last link has ended.
    pub(super) fn begin(&self, link: Option<&Link>) {
        let Some(link) = link else { return };
        self.serial.set(link.serial());
        self.worker.state.add_link(&self.links.session, link);
        register(link, &self.shared);
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
                self.shared.published.note_trouble(Some(trouble));
                let (is_refusal, now) = (error.is_refusal(), Instant::now());
                let weight = self.shared.published.outage(|outage| {
                    outage.failed(&mut self.told.borrow_mut(), &text, is_refusal, now)
                });
                match weight {
                    Some(Weight::News) => {
                        tracing::info!(
                            "lost the server, which is away at present: {text}; trying again"
                        );
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
            Report::Connected { link, path, resumed, reason } => {
                self.shared.published.note_trouble(None);
                *self.told.borrow_mut() = None;
                let what = if *resumed { "resumed over" } else { "is connected to" };
                let lost = if *link == self.serial.get() { self.lost.take() } else { None };
                let again = lost.map_or_else(String::new, |lost| {
                    format!(" again, after {:.1} s", lost.elapsed().as_secs_f32())
                });
                let path = &path.url;
                match reason {
                    Some(reason) => {
                        tracing::info!(
                            link, path, %reason,
                            "link {link} {what} {path}{again}, because {reason}"
                        );
                    }
                    None => tracing::info!(link, "link {link} {what} {path}{again}"),
                }
            }
        }
    }

    /// Notes that a link has no carrier any more.
    fn note_loss(&self, serial: u64) {
        // A link that retires has a successor.
        if self.links.are_retired() || serial != self.serial.get() {
            return;
        }
        let now = Instant::now();
        self.lost.set(self.lost.get().or(Some(now)));
        self.shared.published.outage(|outage| outage.lost(now));
    }

    /// Logs the end of a link.
    fn tell_end(&self, link: u64, end: &End) {
        match end {
            End::Closed => tracing::debug!(link, "link closed"),
            End::Retired => {
                tracing::info!(link, "link {link} has retired: its last stream has ended");
            }
            // A server that stops or was started again.
            End::ByPeer | End::Forgotten => {
                self.note_loss(link);
                tracing::info!(link, "link {link} ended: {end}; its streams were reset");
            }
            End::Expired => {
                self.note_loss(link);
                if self.shared.published.outage(|outage| outage.is_long(Instant::now())) {
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

pub(super) const fn proxy_version(version: config::ProxyProtocol) -> ProxyVersion {
    match version {
        config::ProxyProtocol::V1 => ProxyVersion::V1,
        config::ProxyProtocol::V2 => ProxyVersion::V2,
    }
}

/// The address that streams of a service are connected to. `None`: the service takes no streams, or
/// its target is no address.
pub(super) fn target(service: &config::Service) -> Option<TargetAddr> {
    match &service.target {
        config::Target::Unix(address) => Some(TargetAddr::Unix(address.clone())),
        config::Target::Tcp { host, port } | config::Target::Udp { host, port } => {
            let host = match host {
                config::Host::Ip(ip) => ip.to_string(),
                config::Host::Name(name) => name.clone(),
            };
            service.carries(config::Over::Tcp).then_some(TargetAddr::Tcp { host, port: *port })
        }
        config::Target::Socks5 | config::Target::HttpProxy | config::Target::Files(_) => None,
    }
}

impl Owner for ClientOwner {
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let name = match &open.target {
            Target::Service(name) => name,
            Target::Measure(Measure::Echo) => return probes::serve_echo(inlet),
            // A server dials for clients and serves their speed tests; a client does neither.
            Target::Forward(_)
            | Target::Reported(_)
            | Target::Measure(Measure::Sink | Measure::Source { .. }) => {
                return refuse_stream(&*inlet, None, ResetCode::Denied);
            }
        };
        match self.service(name) {
            Some(local) => {
                let header = local.header.as_ref().map(|how| self.header(link, how, name, &open));
                let caller = Caller { visitor: open.visitor, header, ..Caller::default() };
                connect_stream(local.target.clone(), caller, inlet, &local.settings, None)
            }
            None => refuse_stream(&*inlet, None, ResetCode::Unknown),
        }
    }

    fn message(&self, _link: &Link, message: ControlMessage) {
        match message {
            ControlMessage::Registered(_) if self.links.are_retired() => {}
            // The answer to an older set; the answer to the present set follows.
            ControlMessage::Registered(registered)
                if registered.generation < self.shared.generation.load(Ordering::Acquire) => {}
            ControlMessage::Registered(registered) => {
                self.shared.places.note(&registered);
                self.shared.published.apply(&registered, &self.links.session.name);
            }
            // Only servers take registrations.
            ControlMessage::Register(_) => {}
            // The link handles these messages itself and does not pass them on.
            ControlMessage::Strained(_)
            | ControlMessage::FlowOpen(_)
            | ControlMessage::FlowClose(_) => {}
        }
    }

    fn changed(&self, link: &Link, state: State) {
        let (worker, session, serial) = (&self.worker, &self.links.session, link.serial());
        match state {
            State::Live => worker.state.set_live(worker.index, session, serial, true),
            State::Stalled => {
                self.note_loss(serial);
                let server = session.name.as_str();
                tracing::info!(
                    link = serial,
                    server,
                    "carrier lost: link {serial} to {server} has no connection; its streams wait \
                     for the next connection"
                );
                worker.state.set_live(worker.index, session, serial, false);
            }
            State::GoingAway => worker.state.set_live(worker.index, session, serial, false),
            State::Ended(end) => {
                self.tell_end(serial, &end);
                worker.state.remove_link(worker.index, session, serial);
            }
        }
    }
}

/// The counters of the services over all workers.
pub(super) async fn counts(handles: &[Handle]) -> Vec<status::Service> {
    let mut all = Vec::new();
    for handle in handles {
        let part = handle.call(|worker| worker.state.service_counts()).await;
        // A worker that has stopped counts nothing.
        survey::merge(&mut all, part.unwrap_or_default());
    }
    all
}
