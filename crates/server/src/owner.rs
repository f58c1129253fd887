//! The server's reaction to events of its links.

use std::cell::Cell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use config::Over;
use link::{End, Link, Owner, State};
use logging::{AUDIT, RepeatLimit};
use net::resolve::Lookups;
use ops::events::Changed;
use ops::status::LinkState;
use proto::control::{ControlMessage, Invite, InviteOutcome, Invited, Register, Timeouts};
use proto::greeting::Features;
use proto::{Measure, Open, ResetCode, Special, Target};
use relay::{
    Allow, Caller, Destination, FlowCaller, FlowSettings, FlowTargets, Permit, Report, Settings,
    TargetAddr, Watcher, connect_flow, connect_stream, refuse_stream,
};
use tokio::sync::Notify;
use tracing::field::display;
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use super::private::Joins;
use super::registry::Registry;
use node::descriptors;
use node::entrance::ForwardWatch;
use node::session::{Served, Session, Worker, note_stall};

/// The owner of one link of a client.
pub(super) struct ServerOwner {
    worker: Rc<Worker>,
    registry: Arc<Registry>,
    serial: u64,
    /// See [`Client::source`](super::clients::Client).
    source: Option<IpAddr>,
    asked: Rc<Asked>,
    /// A request for an invitation is pending.
    invites: Rc<Cell<bool>>,
    /// Shared by the forwarded streams of this link.
    settings: Rc<Settings>,
    /// Shared by the streams of this link that lead to other servers.
    detours: Rc<Settings>,
    /// Shared by the forwarded flows of this link.
    flows: Rc<FlowSettings>,
    flow_targets: Rc<FlowTargets>,
    /// The streams to private services of other clients.
    joins: Joins,
    /// Limits the log lines about denied targets.
    denied: Rc<RepeatLimit<(TargetRight, TargetAddr)>>,
}

/// The right that a stream to a target on this side needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TargetRight {
    /// `allow.forward`
    Forward,
    /// `allow.via`
    Via,
}

impl TargetRight {
    /// The list of the right, as a key and as a flag of `tunnel allow`.
    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Via => "via",
        }
    }

    /// The stream in messages.
    const fn what(self) -> &'static str {
        match self {
            Self::Forward => "a forward",
            Self::Via => "a path through this server",
        }
    }
}

impl fmt::Debug for ServerOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerOwner(link {})", self.serial)
    }
}

impl ServerOwner {
    /// Compares the processes of a client after a link of the session has stopped or resumed
    /// answering, if that changes which process serves.
    fn rank(&self, session: &Session) {
        if session.answers() == session.is_displaced() {
            self.registry.rank_soon(session);
        }
    }

    /// The owner of a link of the client `name`.
    pub(super) fn new(
        worker: Rc<Worker>,
        registry: Arc<Registry>,
        serial: u64,
        name: &str,
    ) -> Rc<Self> {
        let lookups = Lookups::on(&registry.shared().names, name);
        let client = registry.shared().clients.find(name);
        let holder = client.and_then(|client| client.gate.holder().cloned());
        let watch = |what: TargetRight| -> Rc<dyn Watcher> {
            Rc::new(ForwardWatch { what: what.what(), client: name.to_owned() })
        };
        let watcher = watch(TargetRight::Forward);
        let (room, watcher) = (descriptors::room(), Some(watcher));
        let client = registry.shared().clients.find(name);
        let flows = FlowSettings {
            bounds: client.map(|client| Arc::clone(&client.dialled)).unwrap_or_default(),
            room,
            lookups: lookups.clone(),
            watcher: watcher.clone(),
            ..FlowSettings::default()
        };
        let dials = worker.state.dials.of(name);
        let source = registry.shared().clients.find(name).and_then(|client| client.source);
        let joins = Joins::new(&worker, &registry);
        let settings = |watcher| Settings {
            // The client's end of a forward enforces the timeouts, which are in its file.
            timeouts: Timeouts::default().without_limits(),
            room,
            holder: holder.clone(),
            lookups: lookups.clone(),
            watcher,
            dials: dials.clone(),
            ..Settings::default()
        };
        let stats = Rc::clone(&worker.state.of::<Served>().detours);
        let detours = Rc::new(Settings { stats, ..settings(Some(watch(TargetRight::Via))) });
        let settings = Rc::new(settings(watcher));
        Rc::new(Self {
            worker,
            registry,
            joins,
            serial,
            source,
            asked: Rc::default(),
            invites: Rc::default(),
            settings,
            detours,
            flows: Rc::new(flows),
            flow_targets: Rc::default(),
            denied: Rc::new(RepeatLimit::new()),
        })
    }

    /// Dials a target on this side for a client. The rights are checked for the name, and again for
    /// every address to which the name resolves.
    fn forward(&self, text: &str, inlet: Box<dyn Inlet>, report: Report) -> Rc<dyn Outlet> {
        let refuse = |code| refuse_stream(&*inlet, Some(&self.settings), code);
        match self.may_dial(text, Over::Tcp, TargetRight::Forward) {
            Err(code) => refuse(code),
            Ok((target, allow, permit)) => {
                let caller = Caller { allow: Some(allow), report, ..Caller::default() };
                connect_stream(target, caller, inlet, &self.settings, Some(permit))
            }
        }
    }

    /// Dials another server for a client, whose link with that server the stream carries. The far
    /// side learns when the connection exists, before the first byte of the other server.
    fn lead(&self, text: &str, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let refuse = |code| refuse_stream(&*inlet, Some(&self.detours), code);
        match self.may_dial(text, Over::Tcp, TargetRight::Via) {
            Err(code) => refuse(code),
            Ok((TargetAddr::Unix(_), ..)) => refuse(ResetCode::Denied),
            Ok((target, allow, permit)) => {
                let report = Report::Connected;
                let caller = Caller { allow: Some(allow), report, ..Caller::default() };
                connect_stream(target, caller, inlet, &self.detours, Some(permit))
            }
        }
    }

    /// Like [`Self::forward`], for a flow.
    fn forward_flow(
        &self,
        text: &str,
        visitor: Option<SocketAddr>,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        match self.may_dial(text, Over::Udp, TargetRight::Forward) {
            Err(code) => {
                inlet.close(code);
                None
            }
            Ok((target, allow, permit)) => {
                let (allow, permit) = (Some(allow), Some(permit));
                let caller =
                    FlowCaller { allow, visitor: visitor.into(), permit, ..FlowCaller::default() };
                Some(connect_flow(target, caller, inlet, &self.flows, &self.flow_targets))
            }
        }
    }

    /// The target of a stream or a flow of a client over this protocol, and the rule for it.
    fn may_dial(
        &self,
        text: &str,
        over: Over,
        right: TargetRight,
    ) -> Result<(TargetAddr, Allow, Permit), ResetCode> {
        let target = text.parse::<TargetAddr>().map_err(|_| ResetCode::Unknown)?;
        let of = match target {
            TargetAddr::Udp { .. } => Over::Udp,
            TargetAddr::Tcp { .. } | TargetAddr::Unix(_) => Over::Tcp,
        };
        if of != over {
            return Err(ResetCode::Unknown);
        }
        let session = self.registry.session_of(self.serial).ok_or(ResetCode::Shutdown)?;
        let client = self.registry.shared().clients.find(&session.name);
        let client = client.ok_or(ResetCode::Denied)?;
        let permit = client.gate.admit().ok_or(ResetCode::Limit)?;
        let rights = match right {
            TargetRight::Forward => client.forward.clone(),
            TargetRight::Via => client.via.clone(),
        };
        let name = session.name.clone();
        let (asked, denied) = (target.clone(), Rc::clone(&self.denied));
        let allow = Allow::new(move |destination| {
            let (permitted, place) = match (&asked, destination) {
                (_, Destination::Name(host, port)) => {
                    (rights.may_permit(over, host, port), format!("{host}:{port}"))
                }
                (TargetAddr::Tcp { host, port }, Destination::Tcp(ip, _))
                | (TargetAddr::Udp { host, port }, Destination::Udp(ip, _)) => {
                    let permitted = rights.permits(over, host, (ip, *port), &net::own::is_own);
                    (permitted, format!("{host}:{port} ({ip})"))
                }
                (TargetAddr::Unix(address), Destination::Unix(_)) => {
                    (rights.permits_unix(address), format!("unix:{}", address.place()))
                }
                (
                    TargetAddr::Tcp { .. } | TargetAddr::Udp { .. } | TargetAddr::Unix(_),
                    Destination::Tcp(..) | Destination::Udp(..) | Destination::Unix(_),
                ) => (false, String::new()),
            };
            let key = || (right, asked.clone());
            if !permitted && denied.pass(key(), Instant::now()).is_some() {
                tracing::warn!(
                    target: AUDIT,
                    client = name,
                    "{} of client {name} to {place} is not allowed; add it to allow.{} of this client{}",
                    right.what(),
                    right.name(),
                    command(&name, right, &needed(&asked, destination)).unwrap_or_default()
                );
            }
            permitted
        });
        Ok((target, allow, permit))
    }

    fn measure(&self, measure: Measure, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let refuse = |code| refuse_stream(&*inlet, Some(&self.settings), code);
        let Some(session) = self.registry.session_of(self.serial) else {
            return refuse(ResetCode::Shutdown);
        };
        let client = self.registry.shared().clients.find(&session.name);
        let Some(client) = client.filter(|client| client.speedtest || measure == Measure::Echo)
        else {
            return refuse(ResetCode::Denied);
        };
        let Some(permit) = client.gate.admit() else { return refuse(ResetCode::Limit) };
        probes::serve(measure, &session, inlet, &self.settings, permit)
    }

    /// Carries out the request for an invitation. A link has at most one pending request.
    fn invite(&self, link: &Link, invite: Invite) {
        let request = invite.request;
        let answer = move |link: &Link, outcome| {
            let message = ControlMessage::Invited(Invited { request, outcome });
            if !link.send_message(&message) {
                tracing::debug!(link = link.serial(), "the answer to an invitation has no room");
            }
        };
        if self.invites.replace(true) {
            return answer(link, InviteOutcome::Refused(BUSY.to_owned()));
        }
        let (registry, serial) = (Arc::clone(&self.registry), self.serial);
        let (link, invites) = (link.clone(), Rc::clone(&self.invites));
        tokio::task::spawn_local(async move {
            if let Some(session) = registry.session_of(serial) {
                answer(&link, registry.invite(&session.name, invite).await);
            }
            invites.set(false);
        });
    }

    /// Accepts a registration. One task of the link answers registrations, so later registrations
    /// wait in the registry, where the newest replaces the previous.
    fn register(&self, link: &Link, register: Register) {
        let generation = register.generation;
        if !self.registry.offer(self.serial, register, &self.worker.state.budget) {
            return;
        }
        let asked = &self.asked;
        let is_idle = asked.generation.get().is_none() && !asked.is_busy.get();
        asked.generation.set(asked.generation.get().max(Some(generation)));
        if is_idle {
            let (registry, link) = (Arc::clone(&self.registry), link.clone());
            let (asked, serial) = (Rc::clone(asked), self.serial);
            asked.is_busy.set(true);
            tokio::task::spawn_local(async move {
                answer(&registry, &link, serial, &asked).await;
                asked.is_busy.set(false);
            });
        }
    }
}

/// The answer to a request while another request of the link is pending.
const BUSY: &str = "another request of this client is under way; try again";

/// The registrations of a link that are not answered yet.
#[derive(Debug, Default)]
struct Asked {
    /// The newest generation.
    generation: Cell<Option<u64>>,
    /// The task of [`answer`] is running.
    is_busy: Cell<bool>,
    /// The link has ended.
    ended: Notify,
}

/// Answers the registrations of a link until none is pending.
async fn answer(registry: &Registry, link: &Link, serial: u64, asked: &Asked) {
    while asked.generation.get().is_some() {
        let turn = tokio::select! {
            turn = registry.turn(serial) => turn,
            () = asked.ended.notified() => return,
        };
        let (Some((session, turn)), Some(generation)) = (turn, asked.generation.take()) else {
            return;
        };
        let Some(registered) = registry.register(&session, turn, generation).await else {
            continue;
        };
        if !link.send_message(&ControlMessage::Registered(registered)) && !link.has_ended() {
            tracing::warn!(
                client = session.name,
                link = serial,
                "the answer to the registration of services over link {serial} is too long to be sent"
            );
        }
    }
}

/// The target that a right has to name: the address itself, where a right to its name or to its
/// network does not cover it.
fn needed(asked: &TargetAddr, destination: Destination<'_>) -> TargetAddr {
    match (asked, destination) {
        (TargetAddr::Tcp { port, .. }, Destination::Tcp(ip, _)) if Special::of(ip).is_some() => {
            TargetAddr::Tcp { host: ip.to_string(), port: *port }
        }
        (TargetAddr::Udp { port, .. }, Destination::Udp(ip, _)) if Special::of(ip).is_some() => {
            TargetAddr::Udp { host: ip.to_string(), port: *port }
        }
        _ => asked.clone(),
    }
}

/// The command that grants the right to a target. `None`: the client chose a text that a shell
/// would interpret, and a user might run the command.
fn command(client: &str, right: TargetRight, target: &TargetAddr) -> Option<String> {
    let place = match target {
        TargetAddr::Tcp { host, port } | TargetAddr::Udp { host, port } if host.contains(':') => {
            format!("[{host}]:{port}")
        }
        TargetAddr::Tcp { host, port } | TargetAddr::Udp { host, port } => format!("{host}:{port}"),
        TargetAddr::Unix(address) => format!("unix:{}", address.place()),
    };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-:/@[]".contains(&b);
    // A shell would expand the brackets of an IPv6 address.
    let quote = if place.contains('[') { "'" } else { "" };
    let flag = right.name();
    place
        .bytes()
        .all(is_plain)
        .then(|| format!(", or run here: tunnel allow {client} --{flag} {quote}{place}{quote}"))
}

impl Owner for ServerOwner {
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        match open.target {
            Target::Forward(text) => self.forward(&text, inlet, Report::Nothing),
            Target::Reported(text) => self.forward(&text, inlet, Report::Connected),
            Target::Detour(text) => self.lead(&text, inlet),
            Target::Measure(measure) => self.measure(measure, inlet),
            // Only nodes have hops and questions.
            Target::Hop(_) | Target::Ask(_) => refuse_stream(&*inlet, None, ResetCode::Unknown),
            Target::Private { client, service } => match self.registry.session_of(self.serial) {
                Some(session) => {
                    let visitor = (session.name.as_str(), link.peer_address());
                    self.joins.join(visitor, (client, service), inlet)
                }
                None => refuse_stream(&*inlet, None, ResetCode::Shutdown),
            },
            // Only clients have services.
            Target::Service(_) | Target::Marked { .. } => {
                refuse_stream(&*inlet, None, ResetCode::Unknown)
            }
        }
    }

    fn accept_flow(
        &self,
        _link: &Link,
        open: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        match open.target {
            Target::Forward(text) => self.forward_flow(&text, open.visitor, inlet),
            // Only clients have services, and there are no flows of other kinds.
            Target::Service(_)
            | Target::Reported(_)
            | Target::Detour(_)
            | Target::Hop(_)
            | Target::Ask(_)
            | Target::Marked { .. }
            | Target::Measure(_)
            | Target::Private { .. } => {
                inlet.close(ResetCode::Unknown);
                None
            }
        }
    }

    fn message(&self, link: &Link, message: ControlMessage) {
        match message {
            ControlMessage::Register(register) => self.register(link, register),
            ControlMessage::Invite(invite) => self.invite(link, invite),
            // Not requested; ignored.
            ControlMessage::Registered(_)
            | ControlMessage::Strained(_)
            | ControlMessage::Invited(_)
            | ControlMessage::Signal(_)
            | ControlMessage::Node(_)
            | ControlMessage::Homes(_)
            | ControlMessage::Stun(_) => {}
            // The link handles these messages itself and does not pass them on.
            ControlMessage::FlowOpen(_) | ControlMessage::FlowClose(_) => {}
        }
    }

    fn answers(&self, link: &Link, answers: bool) {
        if let Some(session) = self.registry.session_of(self.serial) {
            self.worker.state.set_answers(self.worker.index, &session, link.serial(), answers);
            self.rank(&session);
        }
    }

    fn changed(&self, link: &Link, state: State) {
        let Some(session) = self.registry.session_of(self.serial) else { return };
        let worker = &self.worker;
        let (name, serial) = (session.name.as_str(), self.serial);
        let source = self.source.map(display);
        let tell = |state, reason| {
            let events = &self.registry.shared().events;
            events.tell(|| Changed::Link { peer: name.to_owned(), link: serial, state, reason });
        };
        match state {
            State::Live => {
                worker.state.set_live(worker.index, &session, serial, true);
                self.rank(&session);
                // Direct paths exist only between clients that support private services.
                let wants = link.features().have(Features::PRIVATE);
                if let Some(message) = self.registry.shared().stun.message().filter(|_| wants) {
                    // Without the ports a client finds fewer paths; the next link announces them
                    // again.
                    let _ = link.send_message(&message);
                }
                if let Some(message) = self.registry.offer_of_homes(name) {
                    // A client that does not hear of the nodes has one home.
                    let _ = link.send_message(&message);
                }
            }
            State::Stalled => {
                tracing::info!(
                    client = name,
                    link = serial,
                    source,
                    "carrier lost: link {serial} of client {name} waits for its next connection"
                );
                tell(LinkState::Stalled, None);
                worker.state.set_live(worker.index, &session, serial, false);
                note_stall(worker, &session, serial);
                self.rank(&session);
            }
            State::GoingAway => {
                tell(LinkState::GoingAway, None);
                tracing::info!(
                    client = name,
                    link = serial,
                    source,
                    "link {serial} of client {name} takes no more streams; its open streams go on"
                );
                worker.state.set_live(worker.index, &session, serial, false);
            }
            State::Ended(end) => {
                tell(LinkState::Ended, Some(end.to_string()));
                match end {
                    End::Closed | End::Retired | End::ByPeer | End::Expired | End::Forgotten => {
                        tracing::info!(
                            client = name,
                            link = serial,
                            source,
                            "link {serial} of client {name} ended: {end}"
                        );
                    }
                    End::Violation(_) | End::Accused(_) | End::Panicked => {
                        tracing::error!(
                            client = name,
                            link = serial,
                            source,
                            "link {serial} of client {name} ended: {end}"
                        );
                    }
                }
                self.asked.ended.notify_one();
                worker.state.remove_link(worker.index, &session, serial);
                let registry = Arc::clone(&self.registry);
                tokio::task::spawn_local(async move { registry.link_ended(serial).await });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_no_text_that_a_shell_would_run() {
        let shown = |text: &str| command("home", TargetRight::Forward, &text.parse().unwrap());
        let end = |right: &str| Some(format!(", or run here: tunnel allow home --forward {right}"));
        assert_eq!(shown("tcp://127.0.0.1:22"), end("127.0.0.1:22"));
        assert_eq!(shown("tcp://[::1]:22"), end("'[::1]:22'"));
        assert_eq!(shown("unix:///run/app.sock"), end("unix:/run/app.sock"));
        let via = command("home", TargetRight::Via, &"tcp://fra.example.com:7000".parse().unwrap());
        let line = ", or run here: tunnel allow home --via fra.example.com:7000";
        assert_eq!(via.as_deref(), Some(line));
        for hostile in ["unix:///run/$(id)", "unix:///a b", "unix:///a'", "unix:///a;b"] {
            assert_eq!(shown(hostile), None, "{hostile}");
        }
    }
}
