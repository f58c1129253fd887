//! One port for everything: carriers of clients, TLS by name, HTTP by name, and a default target.
//!
//! ```text
//!   silence, other bytes ─────────────────────────> default target
//!   TLS   ── ALPN of carriers ────────────────────> carrier (tls)
//!         ── name of a service ───────────────────> as a door for TLS
//!         ── otherwise ───────────────────────────> carrier (wss), with the server's certificate
//!   HTTP  ── WebSocket at the path ───────────────> carrier (ws)
//!         ── otherwise ───────────────────────────> as a door for HTTP
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h1::{HeadSniffer, Looked};
use link::Lease;
use net::resolve::Lookups;
use proto::Budget;
use relay::sniff::tls::{Hello, HelloSniffer};
use relay::sniff::{First, FirstSniffer, Sniff};
use relay::{Gate, Handler, Room, Settings, Socket, Straight, TargetAddr, Timeouts};
use tokio::time::timeout;
use transport::{ALPN, Incoming, Listener, Transport};

use super::{PATIENCE, Port, Undecided, http, settled_holder, tls};
use crate::transports::MuxCarriers;

/// The protocol inside TLS that carriers of `wss://` offer, and nothing else.
const HTTP: &[u8] = b"http/1.1";

/// Carriers that wait for their handshake to begin. The accept loop takes them at once.
const CARRIERS_MAX: usize = 1024;

/// What a `mux://` port does beside serving names.
#[derive(Clone, Debug)]
pub(in crate::server) struct Everything {
    /// The carriers.
    pub(in crate::server) carriers: MuxCarriers,
    /// Carriers without TLS are permitted.
    pub(in crate::server) plain: bool,
    /// The target of all other connections.
    pub(in crate::server) default: Option<TargetAddr>,
    /// Limits the connections to the default target, over all workers.
    pub(in crate::server) gate: Arc<Gate>,
    /// The silence after which a connection goes to the default target.
    pub(in crate::server) silence: Duration,
    /// The times of a connection to the default target.
    pub(in crate::server) timeouts: Timeouts,
}

/// A `mux://` port on one worker.
#[derive(Debug)]
pub(super) struct MuxPort {
    pub(super) port: Port,
    pub(super) shared: Rc<Shared>,
}

/// What the decisions of one port on one worker share.
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
            let budget: Rc<dyn Budget> = Rc::<Lease>::clone(&state.budget);
            let timeouts = everything.timeouts;
            let settings = Settings { timeouts, room, lookups, ..Settings::default() };
            let settings = Rc::new(Settings { budget: Some(Rc::clone(&budget)), ..settings });
            Straight::new(target, settings, budget)
        });
        if let Some(default) = &default {
            state.server.defaults.borrow_mut().push((url.to_owned(), Rc::clone(default)));
        }
        (Self { port, shared: Rc::new(Shared { everything, carriers, default }) }, listener)
    }
}

impl Handler for MuxPort {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        let Some(peer) = peer else { return };
        if let Some(visitor) = self.port.visitor(socket, Some(peer)) {
            self.port.decide(Some(peer), decide(Rc::clone(&self.shared), visitor, peer));
        }
    }
}

/// What the first bytes of a connection are.
enum Found {
    Tls(Hello),
    /// A WebSocket at the path of carriers.
    WebSocket,
    Http(http::First),
    Other,
}

async fn decide(shared: Rc<Shared>, visitor: Undecided, peer: SocketAddr) {
    if shared.everything.default.is_some() {
        let spoken = relay::look(&visitor.socket, |_| Some(()));
        match timeout(shared.everything.silence, spoken).await {
            Ok(Ok(Some(()))) => {}
            // A visitor that left at once, as port scanners do, is none of the target's business.
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => return shared.to_default(visitor),
        }
    }
    let mut sniffer = Sniffer::new(&visitor, &shared);
    let look = relay::look(&visitor.socket, |bytes| sniffer.look(bytes));
    match timeout(PATIENCE, look).await {
        Ok(Ok(Some(Found::Tls(hello)))) => shared.tls(visitor, peer, &hello).await,
        Ok(Ok(Some(Found::Http(first)))) => http::admit(visitor, first).await,
        Ok(Ok(Some(Found::WebSocket))) => {
            let carriers = &shared.everything.carriers;
            shared.carry(visitor, |socket| carriers.ws(socket, peer));
        }
        // The visitor has ended its direction before its bytes were decided.
        Ok(Ok(Some(Found::Other) | None)) => shared.to_default(visitor),
        Ok(Err(_)) | Err(_) => {}
    }
}

impl Shared {
    async fn tls(&self, visitor: Undecided, peer: SocketAddr, hello: &Hello) {
        let carriers = &self.everything.carriers;
        if hello.offers(ALPN) {
            return self.carry(visitor, |socket| carriers.tls(socket, peer));
        }
        // A carrier of wss:// has the name of the server, for which no service is waited for.
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
        // Connections before their log-in have a limit of their own.
        if let Some(carrier) = carrier(socket.leave_seat()) {
            self.carriers.push(carrier);
        }
    }

    /// Connects a visitor with the default target.
    fn to_default(&self, visitor: Undecided) {
        let Some(default) = &self.default else {
            tracing::debug!(visitor = ?visitor.peer, "a connection is for nobody, and there is no default target");
            return;
        };
        let mut visitor = visitor;
        if !visitor.socket.move_to(settled_holder()) {
            tracing::debug!(visitor = ?visitor.peer, "the default target has its share of the descriptors");
            return relay::drop_socket(visitor.socket);
        }
        let permit = self.everything.gate.admit();
        if permit.is_none() {
            tracing::debug!(visitor = ?visitor.peer, "limit of connections to the default target");
        }
        let Undecided { socket, peer, .. } = visitor;
        default.serve(socket, peer, permit);
    }
}

/// Looks at the first bytes of a connection.
struct Sniffer {
    first: FirstSniffer,
    found: Option<First>,
    hello: HelloSniffer,
    head: HeadSniffer,
    peer: Option<SocketAddr>,
    /// The path of carriers without TLS.
    path: Option<Box<str>>,
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
        }
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
                let first = http::first(&mut self.head, self.peer, bytes)?;
                let is_carrier = match &first.looked {
                    Looked::Head(head) if head.websocket => {
                        let path = bytes.get(head.path.clone());
                        self.path.as_ref().is_some_and(|ours| path == Some(ours.as_bytes()))
                    }
                    Looked::Head(_)
                    | Looked::More
                    | Looked::Http2
                    | Looked::Bad(_)
                    | Looked::Not => false,
                };
                Some(if is_carrier { Found::WebSocket } else { Found::Http(first) })
            }
            // A carrier without TLS and without WebSocket is not for a public port.
            First::TunnelGreeting | First::Other => Some(Found::Other),
        }
    }
}

/// Carriers on their way from a port to the accept loop of the same worker.
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
