//! An entrance: a listening address whose visitors become streams of a session. On a server an
//! entrance belongs to a published service, on a client to a forward. Both use the same code.
//!
//! ```text
//!   accepted on worker w --> live link on w? ------------------> stream
//!                              | no
//!                              +--> worker with a live link ----> socket handed over --> stream
//!                              | none
//!                              +--> held until a link is live: at most 10 s in all, over workers
//!                                   and flaps, at most 1,024 visitors per session
//! ```
//!
//! The socket of a visitor has a seat in the share that the client has of the descriptors
//! ([`relay::shares`]). A visitor beyond the share waits in the kernel's queue, or is refused.
//!
//! A visitor whose address may not visit (`allow_from`, `deny_from`) is turned away at once.
//!
//! A name has an entrance without a listener: a door finds the entrance and lets the visitor in by
//! [`visit`]. A visitor that speaks HTTP gets a page where another visitor is reset.
//!
//! A visitor is judged by the rules of its moment. Where the rules have changed while a visitor was
//! held or on its way to another worker, or since the last request of a kept connection, the
//! visitor goes back to its door ([`Lead`]).
//!
//! A Unix socket has one worker that accepts all visitors and hands them to the workers in turn.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::link::{Lease, Link};
use bytes::BytesMut;
use h1::Tracker;
use net::udp::Steering;
use ops::socket_file::SocketFile;
use proto::control::FlowTimes;
use proto::greeting::Features;
use proto::{Budget, ResetCode, Target};
use relay::{
    Connectors, Detached, FlowBounds, FlowHandler, FlowSettings, Handler, Holder, Http, Leaving,
    Links, Listening, ListeningFlows, ListeningUnix, Onward, Permit, Proxy, ProxyKind, Settings,
    Socket, Timeouts, Watcher,
};
use tokio::time::{Instant, sleep, sleep_until};
use transport::{FlowConnector as _, FlowInlet, FlowOutlet, LocalFuture, OpenError};

use crate::health::Health;
use crate::listeners::{Listener, Listeners};
use crate::names::{Services, Space};
use crate::route::{Aim, ProxyTerms, Route};
use crate::session::{Handle, Session, Worker};
use crate::watch::EntranceWatch;
use crate::{descriptors, guesses};

/// The time for which a visitor is held in all while its name or a link of the session is absent.
pub(crate) const HOLD: Duration = Duration::from_secs(10);

/// Visitors held per session: more than a browser opens, and few enough that a flood of visitors
/// costs little.
const HELD_MAX: u32 = 1024;

/// The part of an entrance that all workers share. The route decides which session gets the
/// visitors.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// Unique in this process.
    pub(crate) id: u64,
    /// The listening address, as a URL.
    pub(crate) address: String,
    /// The time-outs of its streams.
    pub(crate) timeouts: Timeouts,
    /// The destination of its visitors.
    pub(crate) route: Arc<Route>,
    /// Whether the target serves, as its visitors find out.
    pub(crate) health: Health,
    /// Leads the peers of a UDP port to the workers.
    pub(crate) steering: Option<Arc<Steering>>,
    /// How many flows its peers may have.
    pub(crate) bounds: Arc<FlowBounds>,
}

/// Returns a new id for an entrance.
pub(crate) fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

impl Entrance {
    /// The name in logs and status.
    pub(crate) fn name(&self) -> String {
        self.route.name()
    }

    /// Whether its visitors may make flows: it is a UDP port, or a SOCKS5 proxy.
    fn carries_flows(&self) -> bool {
        let aim = self.route.aim.load();
        let is_socks = aim.proxy.as_ref().is_some_and(|terms| terms.kind == ProxyKind::Socks5);
        self.steering.is_some() || is_socks
    }

    /// Leads the peers of a UDP port to the workers that have a link of the session. Flows that
    /// exist keep their worker.
    pub(crate) fn steer(&self, session: &Session) {
        let Some(steering) = &self.steering else { return };
        let workers = session.flow_workers();
        // Without a link no worker can use a datagram, whoever reads it.
        if !workers.is_empty()
            && let Err(error) = steering.assign(&workers)
        {
            tracing::warn!(
                client = self.route.session.load().name, address = self.address, %error,
                "the kernel does not lead the datagrams of {} to the workers with links: {error}",
                self.address
            );
        }
    }
}

/// An entrance that is open on one worker.
#[derive(Debug)]
pub(crate) struct OpenEntrance {
    /// The shared part.
    pub(crate) entrance: Arc<Entrance>,
    /// The listener, which closes on drop. `None` before this worker listens, and on workers that
    /// do not accept.
    listening: Option<Guard>,
    /// The settings that its streams on this worker share.
    pub(crate) settings: Rc<Settings>,
    /// The same of its flows, if it is a UDP port or a SOCKS5 proxy.
    pub(crate) flows: Option<Rc<FlowSettings>>,
    /// The proxy for its visitors, if they name their targets, and the terms that it has.
    proxy: RefCell<Option<(Arc<ProxyTerms>, Rc<Proxy>)>>,
}

impl OpenEntrance {
    /// The name under which its streams are listed: the name of a service, the address of a
    /// forward.
    pub(crate) fn label(&self) -> String {
        let aim = self.entrance.route.aim.load();
        match aim.target {
            Target::Forward(_) | Target::Reported(_) => self.entrance.address.clone(),
            Target::Service(_) | Target::Measure(_) => aim.name.clone(),
        }
    }
}

/// Closes the listener on drop.
#[derive(Debug)]
enum Guard {
    Tcp(#[expect(dead_code, reason = "held for its drop")] Listening),
    Udp(ListeningFlows),
    /// The file is removed first: a visitor that comes meanwhile finds no file, rather than a
    /// socket that nobody accepts from.
    Unix(
        #[expect(dead_code, reason = "held for its drop")] Option<SocketFile>,
        #[expect(dead_code, reason = "held for its drop")] ListeningUnix,
    ),
}

/// Lets this worker take visitors of the entrance. Until the worker listens, these are visitors
/// that other workers accept.
fn open(worker: &Worker, entrance: Arc<Entrance>) {
    let room = descriptors::room();
    let watcher: Rc<dyn Watcher> = Rc::new(EntranceWatch(Arc::clone(&entrance)));
    let flows = entrance.carries_flows().then(|| {
        let (times, watcher) = (entrance.route.aim.load().flows, Some(Rc::clone(&watcher)));
        let bounds = Arc::clone(&entrance.bounds);
        Rc::new(FlowSettings { times, bounds, room, watcher, ..FlowSettings::default() })
    });
    let (timeouts, watcher) = (entrance.timeouts, Some(watcher));
    let budget: Option<Rc<dyn Budget>> = Some(Rc::<Lease>::clone(&worker.state.budget));
    let settings = Settings { timeouts, room, watcher, budget, ..Settings::default() };
    let settings = Rc::new(settings);
    let (id, proxy) = (entrance.id, RefCell::default());
    let open = OpenEntrance { entrance, listening: None, settings, flows, proxy };
    worker.state.entrances.borrow_mut().insert(id, open);
}

/// Starts to accept visitors on this worker.
fn listen(worker: &Rc<Worker>, id: u64, listener: Listener) -> std::io::Result<()> {
    let mut entrances = worker.state.entrances.borrow_mut();
    // The entrance was closed meanwhile; the listener closes with this return.
    let Some(open) = entrances.get_mut(&id) else { return Ok(()) };
    let room = open.settings.room;
    if let (Listener::Udp(socket), Some(flows)) = (&listener, &open.flows) {
        let door = Rc::new(FlowDoor {
            worker: Rc::clone(worker),
            entrance: Arc::clone(&open.entrance),
            times: Cell::new(flows.times),
        });
        let steering = open.entrance.steering.clone();
        let listening = relay::listen_flows(socket.try_clone()?, steering, door, Rc::clone(flows))?;
        open.listening = Some(Guard::Udp(listening));
        return Ok(());
    }
    let door = Rc::new(Door {
        worker: Rc::clone(worker),
        entrance: Arc::clone(&open.entrance),
        settings: Rc::clone(&open.settings),
        turn: Cell::new(0),
    });
    open.listening = Some(match listener {
        Listener::Tcp(socket) => Guard::Tcp(relay::listen(socket, door, room)?),
        // Its entrance has the settings of flows.
        Listener::Udp(_) => return Err(std::io::ErrorKind::Unsupported.into()),
        Listener::Unix(unix) => {
            let listening = relay::listen_unix(unix.socket, &open.entrance.address, door, room)?;
            Guard::Unix(unix.file, listening)
        }
    });
    Ok(())
}

/// Opens an entrance on all workers. No worker accepts before all workers are ready, because a
/// worker without a link hands its first visitor to another worker.
pub(crate) async fn open_everywhere(
    handles: &[Handle],
    entrance: &Arc<Entrance>,
    listeners: Listeners,
) -> std::io::Result<()> {
    for handle in handles {
        let entrance = Arc::clone(entrance);
        handle.call(move |worker| open(worker, entrance)).await.map_err(std::io::Error::other)?;
    }
    let id = entrance.id;
    for (handle, listener) in handles.iter().zip(listeners.by_worker()) {
        handle
            .call(move |worker| listen(worker, id, listener))
            .await
            .map_err(std::io::Error::other)??;
    }
    Ok(())
}

/// Ends the flows of an entrance that leads elsewhere now. A peer that goes on sending gets a flow
/// that leads there.
pub(crate) async fn renew_flows(handles: &[Handle], id: u64) {
    for handle in handles {
        // A worker that has stopped has no flows.
        let renewed = handle.call(move |worker| {
            if let Some(open) = worker.state.entrances.borrow().get(&id)
                && let Some(Guard::Udp(listening)) = &open.listening
            {
                listening.renew();
            }
        });
        let _ = renewed.await;
    }
}

/// Closes an entrance on all workers. The port is free when the future is ready.
pub(crate) async fn close_everywhere(handles: &[Handle], id: u64) {
    for handle in handles {
        // A worker that has stopped has closed the entrance.
        let closed = handle.call(move |worker| {
            let open = worker.state.entrances.borrow_mut().remove(&id);
            if let Some(open) = &open {
                worker.state.remember(open);
                if let Some(steering) = &open.entrance.steering {
                    steering.close();
                }
            }
        });
        let _ = closed.await;
    }
}

/// The handler of accepted visitors on one worker.
struct Door {
    worker: Rc<Worker>,
    entrance: Arc<Entrance>,
    settings: Rc<Settings>,
    turn: Cell<usize>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door({})", self.entrance.name())
    }
}

/// Opens the flows of a UDP port on one worker.
struct FlowDoor {
    worker: Rc<Worker>,
    entrance: Arc<Entrance>,
    /// The idle times in force.
    times: Cell<FlowTimes>,
}

impl fmt::Debug for FlowDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowDoor({})", self.entrance.name())
    }
}

impl FlowHandler for FlowDoor {
    fn open(
        &self,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), ResetCode> {
        let Entrance { id, route, .. } = &*self.entrance;
        let aim = route.aim.load();
        if self.times.replace(aim.flows) != aim.flows
            && let Some(open) = self.worker.state.entrances.borrow().get(id)
            && let Some(Guard::Udp(listening)) = &open.listening
        {
            listening.set_times(aim.flows);
        }
        if !aim.visitors.permit(peer.ip()) {
            return Err(ResetCode::Denied);
        }
        let link = self.worker.state.flow_link(&route.session.load());
        let link = link.ok_or(ResetCode::Shutdown)?;
        let permit = route.gate.load().admit().ok_or(ResetCode::Limit)?;
        let (target, priority) = (aim.target.clone(), aim.priority);
        let open = proto::Open { target, visitor: Some(peer), priority };
        let inlet = link.open_flow(open, outlet).map_err(|error| match error {
            OpenError::Closed => ResetCode::Shutdown,
            OpenError::TooOld => ResetCode::Unknown,
            OpenError::Limit => ResetCode::Limit,
        })?;
        Ok((inlet, Some(permit)))
    }
}

/// The links of a proxy on one worker. There are none any more for visitors that were admitted on
/// other terms than those in force.
#[derive(Clone)]
struct ProxyLinks {
    worker: Rc<Worker>,
    entrance: Arc<Entrance>,
    terms: Arc<ProxyTerms>,
}

impl fmt::Debug for ProxyLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyLinks({})", self.entrance.name())
    }
}

impl ProxyLinks {
    fn is_in_force(&self) -> bool {
        let is_open = self.worker.state.entrances.borrow().contains_key(&self.entrance.id);
        let aim = self.entrance.route.aim.load();
        let has = |terms: &Arc<ProxyTerms>| Arc::ptr_eq(terms, &self.terms) || *terms == self.terms;
        is_open && aim.proxy.as_ref().is_some_and(has)
    }
}

impl Links for ProxyLinks {
    fn now(&self) -> Option<Connectors> {
        if !self.is_in_force() {
            return None;
        }
        let link = self.worker.state.live_link(&self.entrance.route.session.load())?;
        Some(connectors(&link))
    }

    fn soon(&self, patience: Duration) -> LocalFuture<'static, Option<Connectors>> {
        let links = self.clone();
        Box::pin(async move {
            let deadline = Instant::now() + patience;
            loop {
                let session = links.entrance.route.session.load_full();
                let revived = session.revived.notified();
                if let Some(connectors) = links.now() {
                    return Some(connectors);
                }
                if !links.is_in_force() {
                    return None;
                }
                tokio::select! {
                    () = revived => {}
                    () = sleep_until(deadline) => return None,
                    // A reload may lead the forward to another session.
                    () = sleep(Duration::from_millis(200)) => {}
                }
            }
        })
    }
}

/// The two ways into a link.
pub(crate) fn connectors(link: &Link) -> Connectors {
    let reports = link.features().have(Features::FLOWS);
    Connectors { streams: Rc::new(link.clone()), flows: Rc::new(link.clone()), reports }
}

/// The proxy of an entrance on this worker. `None`: the target is that of the entrance.
fn proxy_of(
    worker: &Rc<Worker>,
    entrance: &Arc<Entrance>,
    terms: &Arc<ProxyTerms>,
) -> Option<Rc<Proxy>> {
    let entrances = worker.state.entrances.borrow();
    let open = entrances.get(&entrance.id)?;
    let mut known = open.proxy.borrow_mut();
    if let Some((of, proxy)) = &*known
        && Arc::ptr_eq(of, terms)
    {
        return Some(Rc::clone(proxy));
    }
    let (of, at) = (Rc::clone(worker), Arc::clone(entrance));
    let links = ProxyLinks { worker: of, entrance: at, terms: Arc::clone(terms) };
    let priority = entrance.route.aim.load().priority;
    let settings = Rc::clone(&open.settings);
    let flows = open.flows.as_ref().map(|flows| Rc::clone(&flows.stats)).unwrap_or_default();
    let links = Rc::new(links);
    let label = format!("forward {}", entrance.address);
    let users = terms.credentials().map(|users| users.braked(guesses::brake(), &label));
    let proxy = Proxy::new(terms.kind, users, priority, links, settings, flows);
    *known = Some((Arc::clone(terms), Rc::clone(&proxy)));
    Some(proxy)
}

/// The way on which a visitor came to an entrance.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    /// To a port of the entrance.
    Port,
    /// By a name.
    Name(NameVisitor),
    /// As a request of the HTTP proxy that was judged by these rules. A client that takes its names
    /// over with the same rules serves the request.
    Request(Arc<Aim>),
}

/// A visitor of a name, on its way to a service.
#[derive(Clone, Debug)]
pub(crate) struct NameVisitor {
    /// The door through which it came.
    pub(crate) door: Arc<dyn NameDoor>,
    /// The rules that led it to the entrance.
    pub(crate) lead: Lead,
    /// The bytes that were read from the socket already.
    pub(crate) first: BytesMut,
}

/// A visitor on its way into an entrance.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) socket: Socket,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) came: Came,
    /// The time until which the visitor may be held. It does not change on the way.
    pub(crate) until: Instant,
}

/// The rules by which a door has led a visitor to an entrance.
#[derive(Clone, Debug)]
pub(crate) struct Lead {
    /// Whether the visitor speaks HTTP or TLS.
    pub(crate) space: Space,
    /// The host in the form in which names are looked up.
    pub(crate) host: Box<str>,
    /// The generation of the table of names before the look-up.
    pub(crate) generation: u64,
    /// The edition of the route.
    pub(crate) edition: u64,
    /// Requests and responses of HTTP are tracked. Otherwise all bytes go to the service of the
    /// first request.
    pub(crate) tracked: bool,
    /// The name of the field that names the host, instead of `Host`.
    pub(crate) route_header: Option<Arc<str>>,
}

/// A door of visitors that name a host.
pub(crate) trait NameDoor: fmt::Debug + Send + Sync {
    /// Takes a connection that leaves the stream of its service.
    fn onward(self: Arc<Self>, worker: &Rc<Worker>, leaving: Leaving);

    /// Answers a visitor in place of a service, and closes its connection.
    fn answer(&self, worker: &Worker, socket: Socket, answer: Answer);

    /// The generation of the table of names.
    fn generation(&self) -> u64;

    /// Whether a new visitor of the same host is led in the same way.
    fn leads(&self, lead: &Lead, peer: Option<SocketAddr>) -> bool;

    /// Judges a visitor again, of whom the bytes `first` were read already. It may be held until
    /// `until`.
    fn again(
        self: Arc<Self>,
        worker: &Rc<Worker>,
        connection: (Socket, Option<SocketAddr>),
        space: Space,
        first: BytesMut,
        until: Instant,
    );
}

impl Came {
    /// The visitor, if it speaks HTTP.
    fn http(&self) -> Option<&NameVisitor> {
        match self {
            Self::Name(visitor) if visitor.lead.space == Space::Http => Some(visitor),
            Self::Name(_) | Self::Port | Self::Request(_) => None,
        }
    }

    /// Whether the rules that led the visitor to the entrance are in force.
    fn is_current(&self, entrance: &Entrance, peer: Option<SocketAddr>) -> bool {
        match self {
            // A port has one entrance, whose lists are compared when the visitor arrives.
            Self::Port => true,
            Self::Name(NameVisitor { door, lead, .. }) => {
                door.generation() == lead.generation || door.leads(lead, peer)
            }
            Self::Request(aim) => Arc::ptr_eq(aim, &entrance.route.aim.load()),
        }
    }
}

/// Why a visitor of a name is answered by the server and not by a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The address of the visitor may not visit.
    Forbidden,
    /// The client has as many streams as it may have.
    Busy,
    /// The client has its share of the descriptors.
    Full,
    /// The service or its client cannot be reached.
    Down(ResetCode),
}

/// Leads the connections of one stream back to their door.
#[derive(Debug)]
struct Back {
    worker: Rc<Worker>,
    door: Arc<dyn NameDoor>,
    lead: Lead,
    peer: Option<SocketAddr>,
    /// The generation for which the lead was found to be the same.
    generation: Cell<u64>,
}

impl Onward for Back {
    fn onward(&self, leaving: Leaving) {
        Arc::clone(&self.door).onward(&self.worker, leaving);
    }

    fn is_current(&self) -> bool {
        let generation = self.door.generation();
        if generation == self.generation.get() {
            return true;
        }
        let is_same = self.door.leads(&self.lead, self.peer);
        if is_same {
            self.generation.set(generation);
        }
        is_same
    }
}

/// Lets a visitor in that a door has led to this entrance.
pub(crate) fn visit(worker: &Rc<Worker>, entrance: &Arc<Entrance>, mut guest: Guest) {
    // Without settings the entrance was closed meanwhile.
    let settings = settings_of(worker, entrance);
    let Some(settings) = settings else {
        return turn_away(worker, guest, &Rc::default(), Answer::Down(ResetCode::Shutdown));
    };
    if entrance.route.gate.load().holder().is_some_and(|holder| !guest.socket.move_to(holder)) {
        tracing::debug!(service = entrance.name(), "the client has its share of the descriptors");
        return turn_away(worker, guest, &settings, Answer::Full);
    }
    let Some(guest) = admitted(worker, entrance, &settings, guest) else { return };
    enter(worker, entrance, &settings, guest);
}

/// Moves the seat of a visitor to the client of these services, for a visitor whose requests go to
/// them. False: the client has its share of the descriptors; the refusal is counted by nobody,
/// because no service of the client was asked.
pub(crate) fn takes(services: &Services, socket: &mut Socket) -> bool {
    let gate = services.first().map(|first| first.entrance.route.gate.load());
    gate.as_ref().and_then(|gate| gate.holder()).is_none_or(|holder| socket.move_to(holder))
}

/// Refuses a visitor and counts the refusal.
fn turn_away(worker: &Worker, guest: Guest, settings: &Rc<Settings>, answer: Answer) {
    let code = match answer {
        Answer::Forbidden => ResetCode::Denied,
        Answer::Busy | Answer::Full => ResetCode::Limit,
        Answer::Down(code) => code,
    };
    let Guest { socket, came, .. } = guest;
    match came.http() {
        None if answer == Answer::Forbidden => relay::bar_socket(socket, settings),
        None => relay::refuse_socket(socket, settings, code),
        Some(http) => {
            if answer == Answer::Forbidden {
                settings.stats.count_barred();
            } else {
                settings.stats.count_refused(code);
            }
            http.door.answer(worker, socket, answer);
        }
    }
}

impl Handler for Door {
    fn handle(&self, mut socket: Socket, peer: Option<SocketAddr>) {
        let worker = &self.worker;
        let seat = match self.entrance.route.gate.load().holder() {
            Some(holder) => seat(holder, &socket, peer).map(Some),
            None => Some(None),
        };
        let guest = |socket| Guest { socket, peer, came: Came::Port, until: Instant::now() + HOLD };
        let Some(seat) = seat else {
            tracing::debug!(service = self.entrance.name(), visitor = ?peer, "no descriptor is left for the visitor");
            return turn_away(worker, guest(socket), &self.settings, Answer::Full);
        };
        seat.into_iter().for_each(|seat| socket.sit(seat));
        let Some(guest) = admitted(worker, &self.entrance, &self.settings, guest(socket)) else {
            return;
        };
        let to = match guest.socket {
            Socket::Tcp(_) => None,
            Socket::Unix(_) => self.next_worker(),
        };
        match to.filter(|to| *to != worker.index).and_then(|to| worker.peers.get(to)) {
            None => enter(worker, &self.entrance, &self.settings, guest),
            Some(handle) => {
                let Some(visitor) = Visitor::new(&self.entrance, guest) else { return };
                let handle = handle.clone();
                tokio::task::spawn_local(hand_over(handle, visitor));
            }
        }
    }

    fn has_room(&self) -> bool {
        self.entrance.route.gate.load().holder().is_none_or(|holder| holder.has_room())
    }
}

/// A seat for an accepted visitor, if both the holder and the source of the visitor have room.
pub(crate) fn seat(
    holder: &Arc<Holder>,
    socket: &Socket,
    peer: Option<SocketAddr>,
) -> Option<relay::Seat> {
    let source = descriptors::source(peer);
    holder.bears().then(|| holder.seat(socket, source)).flatten()
}

impl Door {
    /// The next worker with a live link, for a visitor of a socket that only this worker accepts
    /// from.
    fn next_worker(&self) -> Option<usize> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        self.entrance.route.session.load().live_worker(turn % self.worker.peers.len())
    }
}

/// A visitor on its way to another worker.
struct Visitor {
    entrance: Arc<Entrance>,
    socket: Detached,
    peer: Option<SocketAddr>,
    came: Came,
    until: Instant,
}

impl Visitor {
    /// Detaches the socket of the visitor from this thread.
    fn new(entrance: &Arc<Entrance>, guest: Guest) -> Option<Self> {
        let Guest { socket, peer, came, until } = guest;
        match socket.detach() {
            Ok(socket) => Some(Self { entrance: Arc::clone(entrance), socket, peer, came, until }),
            Err(error) => {
                tracing::debug!(service = entrance.name(), %error, "visitor lost");
                None
            }
        }
    }

    /// Attaches the socket of the visitor to this thread.
    fn attach(self) -> std::io::Result<Guest> {
        let Self { socket, peer, came, until, .. } = self;
        Ok(Guest { socket: socket.attach()?, peer, came, until })
    }
}

/// A visitor whose address may visit. Another visitor is turned away, before anything
/// but the listener has spent anything on it. A visitor without an address came over a Unix socket,
/// whose permissions decide.
fn admitted(
    worker: &Worker,
    entrance: &Entrance,
    settings: &Rc<Settings>,
    guest: Guest,
) -> Option<Guest> {
    let (aim, peer) = (entrance.route.aim.load(), guest.peer);
    if peer.is_none_or(|peer| aim.visitors.permit(peer.ip())) {
        return Some(guest);
    }
    tracing::debug!(service = aim.name, visitor = ?peer, "the address of the visitor may not visit");
    turn_away(worker, guest, settings, Answer::Forbidden);
    None
}

async fn hand_over(to: Handle, visitor: Visitor) {
    // A worker that has stopped drops the job and thus the socket.
    let _ = to.run(|worker| arrive(worker, visitor)).await;
}

fn enter(worker: &Rc<Worker>, entrance: &Arc<Entrance>, settings: &Rc<Settings>, guest: Guest) {
    let session = entrance.route.session.load();
    let Some(link) = worker.state.live_link(&session) else {
        if let Some(visitor) = Visitor::new(entrance, guest) {
            tokio::task::spawn_local(elsewhere(Rc::clone(worker), visitor));
        }
        return;
    };
    let Some(permit) = entrance.route.gate.load().admit() else {
        tracing::debug!(service = entrance.name(), "limit of streams reached");
        return turn_away(worker, guest, settings, Answer::Busy);
    };
    let aim = entrance.route.aim.load();
    let Guest { socket, peer, came, until } = guest;
    // A connection that comes from another service has the setting of that service.
    let is_onward = came.http().is_some_and(|http| !http.first.is_empty());
    if is_onward || aim.keepalive != net::socket::KEEPALIVE {
        socket.keep_alive(aim.keepalive);
    }
    if let Some(terms) = &aim.proxy {
        // Without an open entrance the forward was closed meanwhile.
        if let Some(proxy) = proxy_of(worker, entrance, terms) {
            let patience = until.saturating_duration_since(Instant::now());
            relay::serve_proxy(socket, peer, &proxy, Some(permit), patience);
        }
        return;
    }
    let open = proto::Open { target: aim.target.clone(), visitor: peer, priority: aim.priority };
    let outcome = match came {
        Came::Name(NameVisitor { door, lead, first }) if lead.space == Space::Http => {
            let tracker =
                lead.tracked.then(|| Tracker::new(lead.route_header.as_deref().map(Rc::from)));
            let onward = Rc::new(Back {
                worker: Rc::clone(worker),
                door: Arc::clone(&door),
                generation: Cell::new(lead.generation),
                lead,
                peer,
            });
            let http = Http { tracker, first, onward };
            let outcome = relay::serve_http(socket, &link, open, settings, Some(permit), http);
            outcome.map_err(|(socket, error)| {
                door.answer(worker, socket, Answer::Down(ResetCode::Shutdown));
                error
            })
        }
        Came::Name(_) | Came::Port | Came::Request(_) => {
            relay::serve_visitor(socket, &link, open, settings, Some(permit))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(service = entrance.name(), %error, "visitor refused");
    }
}

/// Hands a visitor to a worker with a live link. Waits for a live link when there is none.
async fn elsewhere(worker: Rc<Worker>, visitor: Visitor) {
    let Visitor { entrance, came, peer, until, .. } = &visitor;
    let is_current = || came.is_current(entrance, *peer);
    let to = live_worker(worker.index, &entrance.route, *until, is_current).await;
    if !is_current() {
        return back(&worker, visitor);
    }
    let Some(to) = to else {
        tracing::debug!(service = visitor.entrance.name(), "no live link to the client");
        return refuse(&worker, visitor);
    };
    let Some(handle) = worker.peers.get(to) else { return };
    hand_over(handle.clone(), visitor).await;
}

impl Visitor {
    fn is_current(&self) -> bool {
        self.came.is_current(&self.entrance, self.peer)
    }
}

/// Sends a visitor back to its door, because the rules have changed that led it here. A request of
/// the HTTP proxy fails: it was admitted by the former rules.
fn back(worker: &Rc<Worker>, visitor: Visitor) {
    let entrance = Arc::clone(&visitor.entrance);
    tracing::debug!(service = entrance.name(), "the rules changed while a visitor waited");
    let guest = match visitor.attach() {
        Ok(guest) => guest,
        Err(error) => {
            return tracing::debug!(service = entrance.name(), %error, "visitor lost");
        }
    };
    let Guest { socket, peer, came, until } = guest;
    match came {
        Came::Name(NameVisitor { door, lead, first }) => {
            door.again(worker, (socket, peer), lead.space, first, until);
        }
        came @ (Came::Port | Came::Request(_)) => {
            let settings = settings_of(worker, &entrance).unwrap_or_default();
            let guest = Guest { socket, peer, came, until };
            turn_away(worker, guest, &settings, Answer::Down(ResetCode::Shutdown));
        }
    }
}

/// Waits for a worker with a live link of the session to which `route` leads, from worker `from` on.
/// `None` also when the rules that led the visitor to the route are no longer in force.
async fn live_worker(
    from: usize,
    route: &Route,
    until: Instant,
    is_current: impl Fn() -> bool,
) -> Option<usize> {
    let mut session = route.session.load_full();
    let mut held = None;
    loop {
        let revived = session.revived.notified();
        // A link that comes and goes must not keep the visitor between workers for ever.
        if Instant::now() >= until {
            return None;
        }
        if let Some(to) = session.live_worker(from) {
            return Some(to);
        }
        if held.is_none() {
            held = Some(Held::new(&session)?);
        }
        tokio::select! {
            () = revived => {}
            () = sleep_until(until) => return None,
            // A new process of the client may have taken over, so the route may name another
            // session.
            () = sleep(Duration::from_millis(200)) => {}
        }
        if !is_current() {
            return None;
        }
        session = route.session.load_full();
    }
}

/// A place among the held visitors of a session. Dropping it frees the place.
struct Held(Arc<Session>);

impl Held {
    fn new(session: &Arc<Session>) -> Option<Self> {
        if session.held.fetch_add(1, Ordering::Relaxed) >= HELD_MAX {
            session.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(Arc::clone(session)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a visitor that another worker accepted.
fn arrive(worker: &Rc<Worker>, visitor: Visitor) {
    if !visitor.is_current() {
        return back(worker, visitor);
    }
    let Some(settings) = settings_of(worker, &visitor.entrance) else {
        // The entrance was closed meanwhile.
        return refuse(worker, visitor);
    };
    let entrance = Arc::clone(&visitor.entrance);
    match visitor.attach() {
        Ok(guest) => {
            // The lists may have changed while the visitor was held.
            if let Some(guest) = admitted(worker, &entrance, &settings, guest) {
                enter(worker, &entrance, &settings, guest);
            }
        }
        Err(error) => tracing::debug!(service = entrance.name(), %error, "visitor lost"),
    }
}

fn refuse(worker: &Worker, visitor: Visitor) {
    // The refusal is counted only while the entrance exists. The visitor is refused in any case.
    let settings = settings_of(worker, &visitor.entrance).unwrap_or_default();
    if let Ok(guest) = visitor.attach() {
        turn_away(worker, guest, &settings, Answer::Down(ResetCode::Shutdown));
    }
}

pub(crate) fn settings_of(worker: &Worker, entrance: &Entrance) -> Option<Rc<Settings>> {
    let entrances = worker.state.entrances.borrow();
    entrances.get(&entrance.id).map(|open| Rc::clone(&open.settings))
}

#[cfg(test)]
mod tests {
    use proto::{Priority, Visitors};
    use relay::Gate;

    use super::*;
    use crate::route::Aim;

    fn route(session: &Arc<Session>) -> Arc<Route> {
        let aim = Aim {
            name: "ssh".into(),
            target: Target::Service("ssh".into()),
            priority: Priority::Normal,
            visitors: Visitors::default(),
            http: None,
            flows: FlowTimes::default(),
            keepalive: net::socket::KEEPALIVE,
            proxy: None,
        };
        Route::new(aim, session, Gate::new(None))
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_is_held_10_s_in_all_however_often_a_link_comes_and_goes() {
        let session = Session::new("home", 2);
        let route = route(&session);
        let begun = Instant::now();
        let until = begun + HOLD;
        // Each time that a link comes, it is gone before the visitor arrives at its worker.
        let flaps = async {
            for _ in 0..100 {
                sleep(Duration::from_secs(4)).await;
                session.set_live(1, true);
                tokio::task::yield_now().await;
                sleep(Duration::from_millis(1)).await;
                session.set_live(1, false);
            }
        };
        let visitor = async {
            let mut moves = 0;
            while live_worker(0, &route, until, || true).await.is_some() {
                moves += 1;
                sleep(Duration::from_millis(2)).await;
            }
            (moves, begun.elapsed())
        };
        let (moves, held) = tokio::select! {
            () = flaps => panic!("the visitor is still held"),
            held = visitor => held,
        };
        assert_eq!((moves, held), (2, HOLD));
        // The time is over, although a link is live now.
        session.set_live(1, true);
        assert_eq!(live_worker(0, &route, until, || true).await, None);
        assert_eq!(live_worker(0, &route, Instant::now() + HOLD, || true).await, Some(1));
    }
}
