//! HTTP by name. The head of the first request decides; then the byte path carries the connection
//! and tracks its requests ([`h1`]), unless the service has options that need the proxy.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h1::{Doubt, Head, HeadSniffer, Looked};
use proto::HttpOptions;
use relay::{Handler, Leaving, Socket, Why};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::{Doors, PATIENCE, Port, UNDECIDED_STATE, Undecided, answer, settled_holder, site, tls};
use crate::entrance::{self, Answer, Came, Guest, HOLD, Lead, NameDoor, NameVisitor};
use crate::names::{Kind, Published, Services, Space};
use crate::session::Worker;

/// The path of the challenges of ACME (RFC 8555 section 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The name under which a request of HTTP/1.0 without a host is looked for. No host has this name,
/// so only a service for all hosts is found.
const HOSTLESS: &str = "-";

/// A door for HTTP on one worker.
#[derive(Debug)]
pub(super) struct HttpPort(pub(super) Port);

impl Handler for HttpPort {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        if let Some(visitor) = self.0.visitor(socket, peer) {
            self.0.decide(peer, decide(visitor));
        }
    }
}

async fn decide(visitor: Undecided) {
    let mut sniffer = visitor.doors.head_sniffer();
    let look = relay::look(&visitor.socket, |bytes| first(&mut sniffer, bytes));
    match timeout(PATIENCE, look).await {
        Ok(Ok(Some(first))) => admit(visitor, first).await,
        // The visitor left, or said nothing that an answer would help.
        Ok(Ok(None) | Err(_)) => {}
        Err(_) => visitor.answer(408, "No complete request came in time."),
    }
}

/// What the first bytes of a connection are.
pub(super) struct First {
    pub(super) looked: Looked,
    /// The token of a challenge of ACME.
    token: Option<Box<str>>,
}

/// Looks at the first bytes; `None` until they are decided.
pub(super) fn first(sniffer: &mut HeadSniffer, bytes: &[u8]) -> Option<First> {
    let looked = sniffer.look(bytes);
    let token = match &looked {
        Looked::More => return None,
        Looked::Head(head) => token(head, bytes),
        Looked::Http2 | Looked::Bad(_) | Looked::Not => None,
    };
    Some(First { looked, token })
}

fn token(head: &Head, bytes: &[u8]) -> Option<Box<str>> {
    let path = bytes.get(head.path.clone())?;
    let token = path.strip_prefix(CHALLENGES.as_bytes())?;
    str::from_utf8(token).ok().map(Box::from)
}

/// Leads a visitor whose first bytes are known, and are in its socket.
pub(super) async fn admit(visitor: Undecided, first: First) {
    lead(visitor, first, BytesMut::new()).await;
}

/// Leads a visitor whose first bytes are known, of which `read` were read from its socket.
async fn lead(visitor: Undecided, first: First, read: BytesMut) {
    match first.looked {
        Looked::Head(head) => {
            let host = head.host.as_deref();
            if let (Some(token), Some(terminator)) = (&first.token, visitor.doors.terminator())
                && let Some(proof) = terminator.challenge_token(host.unwrap_or_default(), token)
            {
                let length = proof.len();
                let said = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                     Content-Length: {length}\r\nConnection: close\r\n\r\n{proof}"
                );
                return answer::send(&visitor.worker, visitor.socket, said.into());
            }
            let Undecided { worker, doors, socket, peer, until, .. } = visitor;
            let until = until.unwrap_or_else(|| Instant::now() + HOLD);
            route(worker, doors, (socket, peer, read), host, until).await;
        }
        Looked::Http2 => {
            let Undecided { worker, doors, mut socket, peer, .. } = visitor;
            if !socket.move_to(settled_holder()) {
                return doors.answer(&worker, socket, Answer::Full);
            }
            site::serve_plain(&worker, doors, socket, peer, read);
        }
        Looked::Bad(fault) => visitor.answer(fault.status(), fault.reason()),
        Looked::Not | Looked::More => visitor.answer(400, "These bytes are no HTTP."),
    }
}

impl Undecided {
    pub(super) fn answer(self, status: u16, reason: &str) {
        self.doors.say(&self.worker, self.socket, status, reason);
    }
}

/// Why a response of a target is not passed on.
pub(super) fn unsafe_response(doubt: Doubt) -> String {
    format!("The target sent a response that is not safe: {}.", doubt.reason())
}

/// A connection with the bytes that were read from it.
type Connection = (Socket, Option<SocketAddr>, BytesMut);

/// Leads a connection whose next request is for `host`.
async fn route(
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    (mut socket, peer, first): Connection,
    host: Option<&str>,
    until: Instant,
) {
    // A request without a host goes to the service of all hosts.
    let host = host.unwrap_or(HOSTLESS);
    let generation = doors.names().generation();
    // The host was found by this field, which may change while the name is waited for.
    let route_header = doors.terms.load().route_header.clone();
    let services = doors.names().wait(Space::Http, host).await;
    let Some(services) = services else {
        return doors.say(&worker, socket, 404, "No service has this host.");
    };
    let Some(Direct { service, edition, tracked }) = doors.direct(&services, peer) else {
        if !entrance::takes(&services, &mut socket) {
            return doors.answer(&worker, socket, Answer::Full);
        }
        return site::serve_plain(&worker, doors, socket, peer, first);
    };
    let (space, host) = (Space::Http, Box::from(host));
    let lead = Lead { space, host, generation, edition, tracked, route_header };
    let came = Came::Name(NameVisitor { door: doors, lead, first });
    entrance::visit(&worker, &service.entrance, Guest { socket, peer, came, until });
}

/// The only service of a host, which needs no proxy.
pub(super) struct Direct<'a> {
    pub(super) service: &'a Published,
    pub(super) edition: u64,
    tracked: bool,
}

impl Doors {
    /// The service to which the bytes of a visitor go without the proxy, if there is one. A reverse
    /// proxy sends the requests of many visitors, and each of them is judged.
    pub(super) fn direct<'a>(
        &self,
        services: &'a Services,
        peer: Option<SocketAddr>,
    ) -> Option<Direct<'a>> {
        if self.trusts(peer) {
            return None;
        }
        let [service] = &**services else { return None };
        let backends = &service.entrance.backends;
        let edition = backends.edition();
        let aim = Arc::clone(&backends.first().picked.aim);
        let options = aim.rules.is_some().then_some(&aim.terms.http);
        if options.is_some_and(HttpOptions::need_proxy) {
            return None;
        }
        let passes = options.is_some_and(|options| options.pass_through);
        Some(Direct { service, edition, tracked: !passes })
    }

    pub(super) fn head_sniffer(&self) -> HeadSniffer {
        HeadSniffer::new(self.terms.load().route_header.as_deref().map(Rc::from))
    }

    /// Answers a visitor with a page.
    pub(super) fn say(&self, worker: &Worker, socket: Socket, status: u16, reason: &str) {
        answer::send(worker, socket, self.page(status, reason));
    }

    /// A page of the server itself.
    pub(super) fn page(&self, status: u16, reason: &str) -> Bytes {
        web::page(status, reason, &self.terms.load().web.pages)
    }
}

impl NameDoor for Doors {
    fn onward(self: Arc<Self>, worker: &Rc<Worker>, leaving: Leaving) {
        let Leaving { socket, visitor, rest, why } = leaving;
        // A layer has an `Onward` of its own.
        let Some(socket) = socket else { return };
        match why {
            Why::Other(host) => {
                let worker = Rc::clone(worker);
                spawn_local(async move {
                    let until = Instant::now() + HOLD;
                    route(worker, self, (socket, visitor, rest), host.as_deref(), until).await;
                });
            }
            Why::Changed => {
                let until = Instant::now() + HOLD;
                self.again(worker, (socket, visitor), Space::Http, rest, until);
            }
            Why::Bad(fault) => self.say(worker, socket, fault.status(), fault.reason()),
            Why::Down(code) => self.answer(worker, socket, Answer::Down(code)),
            Why::Doubt(doubt) => self.say(worker, socket, 502, &unsafe_response(doubt)),
        }
    }

    fn answer(&self, worker: &Worker, socket: Socket, answer: Answer) {
        let (status, reason) = answer.status();
        self.say(worker, socket, status, reason);
    }

    fn generation(&self) -> u64 {
        self.names().generation()
    }

    fn leads(&self, lead: &Lead, peer: Option<SocketAddr>) -> bool {
        let Lead { space, host, edition, tracked, route_header, .. } = lead;
        // A name that is closer to the host may be about to come back.
        if self.names().is_awaited(*space, host) {
            return false;
        }
        let Some(services) = self.names().find(*space, host) else { return false };
        match space {
            Space::Http => {
                self.terms.load().route_header == *route_header
                    && self.direct(&services, peer).is_some_and(|direct| {
                        direct.edition == *edition && direct.tracked == *tracked
                    })
            }
            Space::Tls => services.first().is_some_and(|first| {
                first.kind == Kind::Tls && first.entrance.backends.edition() == *edition
            }),
        }
    }

    fn again(
        self: Arc<Self>,
        worker: &Rc<Worker>,
        (socket, peer): (Socket, Option<SocketAddr>),
        space: Space,
        first: BytesMut,
        until: Instant,
    ) {
        let Some(held) = worker.state.accounts.draw(UNDECIDED_STATE) else {
            return self.answer(worker, socket, Answer::Busy);
        };
        let (worker, until) = (Rc::clone(worker), Some(until));
        let visitor = Undecided { worker, doors: self, socket, peer, until, _held: held };
        spawn_local(async move {
            match space {
                Space::Tls => tls::decide(visitor).await,
                // The bytes are still in the socket.
                Space::Http if first.is_empty() => decide(visitor).await,
                Space::Http => {
                    // A door decides about a complete head, also when it led the visitor here.
                    let mut sniffer = visitor.doors.head_sniffer();
                    match self::first(&mut sniffer, &first) {
                        Some(looked) => lead(visitor, looked, first).await,
                        None => visitor.answer(400, "The head of the request is incomplete."),
                    }
                }
            }
        });
    }
}
