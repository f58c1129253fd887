//! One port for everything: carriers of clients, TLS by name, HTTP by name, and a default target.
//!
//! ```text
//!   silence, until either side speaks ────────────> default target
//!   other bytes ──────────────────────────────────> default target
//!   TLS   ── ALPN of carriers ────────────────────> carrier (tls)
//!         ── name of a service ───────────────────> as a door for TLS
//!         ── otherwise ───────────────────────────> carrier (wss), with the server's certificate
//!   HTTP  ── WebSocket at the path, of a carrier ─> carrier (ws)
//!         ── offer of WebRTC at its path ─────────> as a carrier (ws)
//!         ── otherwise ───────────────────────────> as a door for HTTP
//! ```
//!
//! A silent visitor may be for the default target and wait for its first bytes, or be for a name
//! and have lost its first packet. So the target is dialled after a delay, and the side that sends
//! first decides.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h1::{Head, HeadSniffer, Looked};
use net::resolve::Lookups;
use proto::{Budget, ResetCode, Visitors};
use relay::sniff::tls::{Hello, HelloSniffer};
use relay::sniff::{First, FirstSniffer, Sniff};
use relay::{
    Dialled, FirstWord, Gate, Handler, Room, Settings, Socket, Straight, TargetAddr, Timeouts,
};
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{ALPN, Incoming, Listener, Transport};
use transport_ws::SUBPROTOCOL;

use super::doors::{Doors, PATIENCE};
use super::port::{Port, Undecided, settled_holder};
use super::{http, tls};
use families::MuxCarriers;
use node::accept::lists;
use node::names::Space;
use node::session::Served;

/// The only ALPN protocol that carriers of `wss://` offer.
const HTTP: &[u8] = b"http/1.1";

/// The maximum number of carriers whose handshake has not begun. The accept loop takes them
/// immediately.
const CARRIERS_MAX: usize = 1024;

/// The settings of a `mux://` port besides names.
#[derive(Clone, Debug)]
pub struct Everything {
    /// The carriers.
    pub carriers: MuxCarriers,
    /// Carriers without TLS are permitted.
    pub plain: bool,
    /// The target of all other connections.
    pub default: Option<TargetAddr>,
    /// Limits the connections to the default target, over all workers.
    pub gate: Arc<Gate>,
    /// The silence after which the default target is dialled.
    pub silence: Duration,
    /// The timeouts of a connection to the default target.
    pub timeouts: Timeouts,
}

/// A `mux://` port on one worker.
#[derive(Debug)]
pub(super) struct MuxPort {
    pub(super) port: Port,
    pub(super) shared: Rc<Shared>,
}

/// The state that the decisions of one port on one worker share.
#[derive(Debug)]
pub(super) struct Shared {
    everything: Everything,
    carriers: Carriers,
    default: Option<Rc<Straight>>,
}

impl MuxPort {
    /// The port, and the listener of the carriers among its connections.
    pub(super) fn new(
        port: Port,
        everything: Everything,
        address: SocketAddr,
        url: &str,
        room: Room,
    ) -> (Self, Box<dyn Listener>) {
        let carriers = Carriers::default();
        let listener = Box::new(CarrierListener { carriers: carriers.clone(), address });
        let state = &port.worker.state;
        let default = everything.default.clone().map(|target| {
            let lookups = Lookups::of_targets();
            let budget: Rc<dyn Budget> = Rc::new(state.portion.clone());
            let timeouts = everything.timeouts;
            let settings = Settings { timeouts, room, lookups, ..Settings::default() };
            let settings = Rc::new(Settings { budget: Some(Rc::clone(&budget)), ..settings });
            Straight::new(target, settings, budget)
        });
        if let Some(default) = &default {
            state.of::<Served>().defaults.borrow_mut().push((url.to_owned(), Rc::clone(default)));
        }
        (Self { port, shared: Rc::new(Shared { everything, carriers, default }) }, listener)
    }
}

impl Handler for MuxPort {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        let shared = Rc::clone(&self.shared);
        self.port.take(socket, peer, move |visitor| decide(shared, visitor));
    }
}

/// The protocol of a connection, by its first bytes.
enum Found {
    Tls(Hello),
    /// A WebSocket of a carrier, or an offer of WebRTC.
    WebSocket,
    Http(http::First),
    Other,
}

async fn decide(shared: Rc<Shared>, visitor: Undecided) {
    let Some(peer) = visitor.peer else { return };
    if shared.everything.default.is_some() {
        let spoken = relay::look(&visitor.socket, |_| Some(()));
        match timeout(shared.everything.silence, spoken).await {
            Ok(Ok(Some(()))) => {}
            // A visitor that left at once, as port scanners do, is not forwarded to the target.
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => return shared.silent(visitor, peer),
        }
    }
    let mut sniffer = Sniffer::new(&visitor, &shared);
    let look = relay::look(&visitor.socket, |bytes| sniffer.look(bytes));
    if let Ok(Ok(found)) = timeout(PATIENCE, look).await {
        // A visitor may have ended its direction before its bytes were classified.
        shared.lead(visitor, peer, found.unwrap_or(Found::Other), None).await;
    }
}

impl Shared {
    /// Routes a visitor whose first bytes are classified. The default target may be connected
    /// already.
    async fn lead(
        &self,
        visitor: Undecided,
        peer: SocketAddr,
        found: Found,
        target: Option<Dialled>,
    ) {
        match found {
            Found::Tls(hello) => self.tls(visitor, peer, &hello).await,
            Found::Http(first) => http::admit(visitor, first).await,
            Found::WebSocket => {
                let carriers = &self.everything.carriers;
                self.carry(visitor, |socket| carriers.ws(socket, peer));
            }
            Found::Other => self.to_default(visitor, target),
        }
    }

    /// Dials the default target for a silent visitor. Until the target sends a byte, the visitor
    /// may still be for another destination. The connection no longer counts as undecided at the
    /// port: it counts toward the limit of connections to the default target.
    fn silent(self: &Rc<Self>, visitor: Undecided, peer: SocketAddr) {
        let Some((default, visitor)) = self.settle(visitor) else { return };
        let Some(permit) = self.everything.gate.admit() else {
            tracing::debug!(visitor = ?visitor.peer, "limit of connections to the default target");
            return default.refuse(visitor.socket, ResetCode::Limit);
        };
        let shared = Rc::clone(self);
        spawn_local(async move {
            let mut sniffer = Sniffer::new(&visitor, &shared);
            match default.first_word(&visitor.socket, |bytes| sniffer.look(bytes)).await {
                FirstWord::Target(target) => {
                    let Undecided { socket, peer, .. } = visitor;
                    default.serve_dialled(socket, peer, Some(permit), target);
                }
                FirstWord::Visitor(found, target) => {
                    drop(permit);
                    let target = target.filter(|_| matches!(found, Found::Other));
                    shared.lead(visitor, peer, found, target).await;
                }
                FirstWord::Nobody(code) => default.refuse(visitor.socket, code),
            }
        });
    }

    async fn tls(&self, visitor: Undecided, peer: SocketAddr, hello: &Hello) {
        let carriers = &self.everything.carriers;
        if hello.offers(ALPN) {
            return self.carry(visitor, |socket| carriers.tls(socket, peer));
        }
        // A carrier of `wss://` has the name of the server, so it does not wait for a service.
        let is_carrier =
            carriers.path().is_some() && matches!(&*hello.alpn, [only] if **only == *HTTP);
        let Some(visitor) = tls::admit(visitor, hello, !is_carrier).await else { return };
        if carriers.path().is_none() {
            return tls::refuse(visitor);
        }
        self.carry(visitor, |socket| carriers.wss(socket, peer));
    }

    /// Hands a connection to the accept loop of carriers.
    fn carry(
        &self,
        visitor: Undecided,
        carrier: impl FnOnce(tokio::net::TcpStream) -> Option<Box<dyn Incoming>>,
    ) {
        let Socket::Tcp(socket) = visitor.socket else { return };
        // Connections before their log-in have their own limit.
        if let Some(carrier) = carrier(socket.leave_seat()) {
            self.carriers.push(carrier);
        }
    }

    /// The default target for a visitor, whose descriptor counts from now on toward those of all
    /// default targets.
    fn settle(&self, mut visitor: Undecided) -> Option<(Rc<Straight>, Undecided)> {
        let Some(default) = &self.default else {
            tracing::debug!(visitor = ?visitor.peer, "a connection is for nobody, and there is no default target");
            return None;
        };
        // The target has no service, and so no lists of its own.
        if !lists::permit(&Visitors::default(), visitor.peer) {
            default.bar(visitor.socket);
            return None;
        }
        if !visitor.socket.move_to(settled_holder()) {
            tracing::debug!(visitor = ?visitor.peer, "the default target has its share of the descriptors");
            relay::drop_socket(visitor.socket);
            return None;
        }
        Some((Rc::clone(default), visitor))
    }

    /// Connects a visitor with the default target.
    fn to_default(&self, visitor: Undecided, target: Option<Dialled>) {
        let Some((default, visitor)) = self.settle(visitor) else { return };
        let permit = self.everything.gate.admit();
        if permit.is_none() {
            tracing::debug!(visitor = ?visitor.peer, "limit of connections to the default target");
        }
        let Undecided { socket, peer, .. } = visitor;
        match target {
            Some(target) => default.serve_dialled(socket, peer, permit, target),
            None => default.serve(socket, peer, permit),
        }
    }
}

/// Classifies the first bytes of a connection.
struct Sniffer {
    first: FirstSniffer,
    found: Option<First>,
    hello: HelloSniffer,
    head: HeadSniffer,
    peer: Option<SocketAddr>,
    /// The path of carriers without TLS.
    path: Option<Box<str>>,
    /// The path of WebRTC offers without TLS.
    offers: Option<Arc<str>>,
    doors: Arc<Doors>,
}

impl Sniffer {
    fn new(visitor: &Undecided, shared: &Shared) -> Self {
        let everything = &shared.everything;
        let path = everything.carriers.path().filter(|_| everything.plain);
        Self {
            first: FirstSniffer::default(),
            found: None,
            hello: HelloSniffer::default(),
            head: visitor.doors.head_sniffer(),
            peer: visitor.peer,
            path: path.map(Box::from),
            offers: everything.carriers.offers().filter(|_| everything.plain),
            doors: Arc::clone(&visitor.doors),
        }
    }

    /// Whether a WebSocket at the path of carriers is a carrier. A published site may have its own
    /// WebSocket there, but not with the subprotocol of carriers.
    fn is_carrier(&self, head: &Head, bytes: &[u8]) -> bool {
        // The listener of carriers serves the page for browsers.
        let is_page = |host: &str| self.doors.hosts.is_of_browsers(host);
        if self.path.is_some() && head.host.as_deref().is_some_and(is_page) {
            return true;
        }
        let path = bytes.get(head.path.clone());
        if !head.websocket || self.path.as_ref().is_none_or(|ours| path != Some(ours.as_bytes())) {
            return false;
        }
        !self.is_published(head) || offers_carrier(bytes.get(..head.length).unwrap_or_default())
    }

    /// Whether a request is a WebRTC request. A published site owns all of its paths; a site that
    /// may still be published, just after a start, owns those of requests without an offer.
    fn is_offer(&self, head: &Head, bytes: &[u8]) -> bool {
        let Some(offers) = &self.offers else { return false };
        let path = bytes.get(head.path.clone()).unwrap_or_default();
        let behind = path.strip_prefix(offers.as_bytes());
        if !behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(b"/")) {
            return false;
        }
        let names = self.doors.names();
        let is_present = |host: &str| names.find(Space::Http, host).is_some();
        !self.is_published(head)
            || (!head.host.as_deref().is_some_and(is_present)
                && brings_offer(bytes.get(..head.length).unwrap_or_default()))
    }

    /// Whether a site has the host, or may still be published.
    fn is_published(&self, head: &Head) -> bool {
        let names = self.doors.names();
        head.host.as_deref().is_some_and(|host| {
            names.find(Space::Http, host).is_some() || names.is_awaited(Space::Http, host)
        })
    }

    fn look(&mut self, bytes: &[u8]) -> Option<Found> {
        if self.found.is_none() {
            self.found = self.first.look(bytes);
        }
        match self.found? {
            First::Tls => match self.hello.look(bytes) {
                Sniff::More => None,
                Sniff::Found(hello) => Some(Found::Tls(hello)),
                Sniff::Not => Some(Found::Other),
            },
            First::Http | First::Http2 => {
                let first = http::first(&mut self.head, (&self.doors, self.peer), bytes)?;
                let is_carrier = match &first.looked {
                    Looked::Head(head) => {
                        self.is_carrier(head, bytes) || self.is_offer(head, bytes)
                    }
                    Looked::More | Looked::Http2 | Looked::Bad(_) | Looked::Not => false,
                };
                Some(if is_carrier { Found::WebSocket } else { Found::Http(first) })
            }
            // A carrier without TLS and without WebSocket is not for a public port.
            First::TunnelGreeting | First::Other => Some(Found::Other),
        }
    }
}

/// Whether the header of a WebSocket request offers the subprotocol of carriers.
fn offers_carrier(head: &[u8]) -> bool {
    let mut offers = false;
    let _ = h1::lines(head, |name, value| {
        let mut offered = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        offers |= name.eq_ignore_ascii_case("sec-websocket-protocol")
            && offered.any(|one| one == SUBPROTOCOL.as_bytes());
    });
    offers
}

/// Whether a request header announces a session description.
fn brings_offer(head: &[u8]) -> bool {
    let mut brings = false;
    let _ = h1::lines(head, |name, value| {
        let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
        brings |= name.eq_ignore_ascii_case("content-type")
            && kind.trim_ascii().eq_ignore_ascii_case(b"application/sdp");
    });
    brings
}

/// The queue of carriers from a port to the accept loop of the same worker.
#[derive(Clone, Default)]
struct Carriers(Rc<RefCell<Handover>>);

#[derive(Default)]
struct Handover {
    carriers: VecDeque<Box<dyn Incoming>>,
    waker: Option<Waker>,
}

impl Carriers {
    fn push(&self, carrier: Box<dyn Incoming>) {
        let mut waiting = self.0.borrow_mut();
        if waiting.carriers.len() >= CARRIERS_MAX {
            waiting.carriers.pop_front();
        }
        waiting.carriers.push_back(carrier);
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Carriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Carriers({})", self.0.borrow().carriers.len())
    }
}

/// The listener of the carriers among the connections of a port.
#[derive(Debug)]
struct CarrierListener {
    carriers: Carriers,
    address: SocketAddr,
}

impl Listener for CarrierListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let mut waiting = self.carriers.0.borrow_mut();
        if let Some(carrier) = waiting.carriers.pop_front() {
            return Poll::Ready(Ok(carrier));
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn local_addr(&self) -> SocketAddr {
        self.address
    }

    fn transport(&self) -> Transport {
        transport_tcp::TLS
    }
}
