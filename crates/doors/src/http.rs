//! HTTP by name. The header of the first request decides; then the byte path carries the connection
//! and tracks its requests ([`h1`]), unless the service has options that need the proxy.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h1::{Head, HeadSniffer, Looked};
use proto::{HttpOptions, ResetCode, VisitorFields};
use relay::{Handler, Leaving, Socket, Why};
use termination::Terminator;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use web::{HeaderMap, HeaderName, HeaderValue, Refusal, Unavailable};

use super::answer::{self, CHALLENGES, unsafe_response};
use super::doors::{Doors, PATIENCE};
use super::port::{Port, UNDECIDED_STATE, Undecided, settled_holder, takes};
use super::{site, tls};
use capture::log::{Asked, Senders};
use node::answer::Answer;
use node::backends::Backends;
use node::entrance;
use node::entrance::{Attempts, EnteringVisitor, Lead, NameDoor, NameVisitor, VisitorOrigin};
use node::names::{Kind, Published, Services, Space};
use node::session::{HOLD, Worker};

/// The name under which a request of HTTP/1.0 without a host is looked up. No host has this name,
/// so only a service for all hosts is found.
const HOSTLESS: &str = "-";

/// A door for HTTP on one worker.
#[derive(Debug)]
pub(super) struct HttpPort(pub(super) Port);

impl Handler for HttpPort {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        self.0.take(socket, peer, decide);
    }
}

async fn decide(visitor: Undecided) {
    let mut sniffer = visitor.doors.head_sniffer();
    let mut has_begun = false;
    let look = relay::look(&visitor.socket, |bytes| {
        has_begun |= !b"\r\n".starts_with(bytes);
        first(&mut sniffer, (&visitor.doors, visitor.peer), bytes)
    });
    match timeout(PATIENCE, look).await {
        Ok(Ok(Some(first))) => admit(visitor, first).await,
        // The visitor left, or sent nothing that merits an answer.
        Ok(Ok(None) | Err(_)) => {}
        Err(_) if has_begun => visitor.answer(408, "No complete request origin in time."),
        // A browser that opens a connection in advance would treat an answer as the response to its
        // first request.
        Err(_) => {}
    }
}

/// The result of parsing the first bytes of a connection.
pub(super) struct First {
    pub(super) looked: Looked,
    /// The request header, if it is complete and the log of requests needs it.
    asked: Asked,
    /// The token of an ACME challenge.
    token: Option<Box<str>>,
}

/// Parses the first bytes; `None` until they suffice.
pub(super) fn first(
    sniffer: &mut HeadSniffer,
    (doors, peer): (&Doors, Option<SocketAddr>),
    bytes: &[u8],
) -> Option<First> {
    let looked = sniffer.look(bytes);
    let token = match &looked {
        Looked::More => return None,
        Looked::Head(head) => token(head, bytes),
        Looked::Http2 | Looked::Bad(_) | Looked::Not => None,
    };
    let asked = match &looked {
        Looked::Head(_) => Asked::of(doors, peer, bytes),
        Looked::More | Looked::Http2 | Looked::Bad(_) | Looked::Not => Asked::by(peer),
    };
    Some(First { looked, asked, token })
}

fn token(head: &Head, bytes: &[u8]) -> Option<Box<str>> {
    let path = bytes.get(head.path.clone())?;
    let token = path.strip_prefix(CHALLENGES.as_bytes())?;
    str::from_utf8(token).ok().map(Box::from)
}

/// The proof for an authority that checks a host, of this node or of another one.
async fn proof(terminator: &Terminator, host: &str, token: &str) -> Option<String> {
    match terminator.challenge_token(host, token) {
        Some(proof) => Some(proof),
        None => terminator.challenge_token_elsewhere(host, token).await,
    }
}

/// Routes a visitor whose first bytes are parsed and still in its socket.
pub(super) async fn admit(visitor: Undecided, first: First) {
    lead(visitor, first, BytesMut::new()).await;
}

/// Routes a visitor whose first bytes are parsed, of which `read` were read from its socket.
async fn lead(visitor: Undecided, first: First, read: BytesMut) {
    match first.looked {
        Looked::Head(head) => {
            let host = head.host.as_deref();
            if let (Some(token), Some(terminator)) = (&first.token, visitor.doors.terminator())
                && let Some(proof) = proof(terminator, host.unwrap_or_default(), token).await
            {
                let length = proof.len();
                let said = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                     Content-Length: {length}\r\nConnection: close\r\n\r\n{proof}"
                );
                let said = Bytes::from(said);
                first.asked.answered(200, &said);
                return answer::send(&visitor.worker, visitor.socket, said);
            }
            let Undecided { worker, doors, socket, peer, until, .. } = visitor;
            let until = until.unwrap_or_else(|| Instant::now() + HOLD);
            // A target that switched to HTTP/2 would read requests for other hosts.
            let by_bytes = !head.h2c;
            let asked = (first.asked, until);
            route(worker, doors, (socket, peer, read), host, asked, by_bytes).await;
        }
        Looked::Http2 => {
            let Undecided { worker, doors, mut socket, peer, .. } = visitor;
            if !socket.move_to(settled_holder()) {
                return doors.answer(&worker, socket, Asked::by(peer), Answer::Full);
            }
            site::serve_plain(&worker, doors, socket, peer, read);
        }
        Looked::Bad(fault) => visitor.answer(fault.status(), fault.reason()),
        Looked::Not | Looked::More => visitor.answer(400, "These bytes are no HTTP."),
    }
}

impl Undecided {
    pub(super) fn answer(self, status: u16, reason: &str) {
        self.doors.say(&self.worker, self.socket, Asked::by(self.peer), status, reason);
    }
}

/// A connection with the bytes that were read from it.
type Connection = (Socket, Option<SocketAddr>, BytesMut);

/// Routes a connection whose next request is for `host`. `by_bytes`: its bytes may be forwarded
/// unchanged.
async fn route(
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    (mut socket, peer, first): Connection,
    host: Option<&str>,
    (asked, until): (Asked, Instant),
    by_bytes: bool,
) {
    // A request without a host goes to the service of all hosts.
    let host = host.unwrap_or(HOSTLESS);
    let generation = doors.names().generation();
    // The host was read from this field, which may change during the wait for the name.
    let route_header = doors.terms.load().route_header.clone();
    let services = doors.names().wait(Space::Http, host).await;
    if let Some(https) = doors.https(host, peer) {
        if !takes(&https, &mut socket) {
            return doors.answer(&worker, socket, asked, Answer::Full);
        }
        return site::serve_plain(&worker, doors, socket, peer, first);
    }
    if doors.names().away_without_tls(host).is_some() {
        // The proxy gives the same answer to all visitors of a client that is away.
        if !socket.move_to(settled_holder()) {
            return doors.answer(&worker, socket, asked, Answer::Full);
        }
        return site::serve_plain(&worker, doors, socket, peer, first);
    }
    let Some(services) = services else {
        // The proxy handles requests to the server itself.
        if doors.terms.load().offers.is_some() && socket.move_to(settled_holder()) {
            return site::serve_plain(&worker, doors, socket, peer, first);
        }
        return doors.say(&worker, socket, asked, 404, "No service has this host.");
    };
    let direct = doors.direct(&services, peer).filter(|direct| by_bytes || !direct.tracked);
    let Some(Direct { service, edition, tracked }) = direct else {
        if !takes(&services, &mut socket) {
            return doors.answer(&worker, socket, asked, Answer::Full);
        }
        return site::serve_plain(&worker, doors, socket, peer, first);
    };
    let (space, host) = (Space::Http, Box::from(host));
    let lead = Lead { space, host, generation, edition, tracked, route_header };
    let origin = VisitorOrigin::Name(NameVisitor { door: doors, lead, first, asked, fields: None });
    let entering = EnteringVisitor {
        socket,
        peer,
        origin,
        preferred: None,
        until,
        attempts: Attempts::default(),
    };
    entrance::visit(&worker, &service.entrance, entering);
}

/// The only service of a host, which needs no proxy.
pub(super) struct Direct<'a> {
    pub(super) service: &'a Published,
    pub(super) edition: u64,
    tracked: bool,
}

impl Doors {
    /// The services of an `https://` name that apply to a visitor over HTTP, because no `http://`
    /// name matches the host as closely: their visitors are redirected to the name. A reverse proxy
    /// may have terminated the TLS of its visitor, who is served.
    fn https(&self, host: &str, peer: Option<SocketAddr>) -> Option<Services> {
        if host == HOSTLESS {
            return None;
        }
        let mut pairs = self.names().without_tls(host).take_while(|(http, _)| http.is_none());
        pairs.find_map(|(_, https)| {
            let concerns = |one: &Published| self.trusts(peer) || self.redirects(one);
            https.filter(|all| all.iter().any(concerns))
        })
    }

    /// Whether visitors over HTTP are redirected to the `https://` name of this service.
    pub(super) fn redirects(&self, service: &Published) -> bool {
        let in_force = service.entrance.in_force();
        self.terms.load().redirects && !in_force.aim().terms.http.no_https_redirect
    }

    /// The service to which the bytes of a visitor are forwarded without the proxy, if there is
    /// one. A reverse proxy sends the requests of many visitors, and each request is checked.
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
        let aim = Arc::clone(service.entrance.in_force().aim());
        let options = aim.rules.is_some().then_some(&aim.terms.http);
        if options.is_some_and(HttpOptions::need_proxy) {
            return None;
        }
        // The proxy answers for a client that is on hold or away.
        if self.all_unavailable(backends).is_some() {
            return None;
        }
        let passes = options.is_some_and(|options| options.pass_through);
        Some(Direct { service, edition, tracked: !passes })
    }

    pub(super) fn head_sniffer(&self) -> HeadSniffer {
        HeadSniffer::new(self.terms.load().route_header.as_deref().map(Rc::from))
    }

    /// Answers a visitor with a page.
    pub(super) fn say(
        &self,
        worker: &Worker,
        socket: Socket,
        asked: Asked,
        status: u16,
        reason: &str,
    ) {
        let page = self.page(status, reason);
        asked.answered(status, &page);
        answer::send(worker, socket, page);
    }

    /// Answers a visitor with a page, after the request was recorded.
    fn send_page(&self, worker: &Worker, socket: Socket, status: u16, reason: &str) {
        answer::send(worker, socket, self.page(status, reason));
    }

    /// A page of the server itself.
    pub(super) fn page(&self, status: u16, reason: &str) -> Bytes {
        web::page(status, reason, &self.terms.load().web.pages)
    }

    /// The answer to visitors of an entrance all of whose clients are on hold or away.
    pub(super) fn all_unavailable(&self, backends: &Backends) -> Option<Unavailable> {
        backends.each_gives(|backend| self.unavailable(&backend.picked.client, backend.is_away()))
    }

    /// The answer to visitors of a client that is on hold, or else is away.
    pub(super) fn unavailable(&self, client: &str, is_away: bool) -> Option<Unavailable> {
        let answer = |(status, reason): (u16, &'static str), retry_after, page| Unavailable {
            refusal: Refusal { status, reason: reason.into() },
            retry_after,
            page,
        };
        if let Some(hold) = self.hosts.holds.of(client) {
            let reason = "The service is not available during maintenance.";
            return Some(answer((503, reason), hold.retry_after, hold.page.clone()));
        }
        let status = Answer::Down(ResetCode::Shutdown).status();
        is_away.then(|| answer(status, node::answer::RETRY_AFTER, None))
    }
}

impl Senders for Doors {
    fn visitor(&self, peer: Option<SocketAddr>, head: &[u8]) -> Option<IpAddr> {
        // A trusted reverse proxy reports its visitor. If it reports none, only the proxy is known.
        let named = || {
            let lines = head.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii);
            let mut fields = HeaderMap::new();
            for line in lines.take_while(|line| !line.is_empty()) {
                let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
                let name = HeaderName::from_bytes(&line[..colon]);
                let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
                if let (Ok(name), Ok(value)) = (name, value) {
                    fields.append(name, value);
                }
            }
            self.sender(peer, &fields).address()
        };
        let named = if self.trusts(peer) { named() } else { None };
        named.or(peer).map(|visitor| visitor.ip())
    }
}

impl NameDoor for Doors {
    fn onward(self: Arc<Self>, worker: &Rc<Worker>, leaving: Leaving) {
        let Leaving { socket, visitor, rest, why } = leaving;
        // A layer has its own `Onward`.
        let Some(socket) = socket else { return };
        match why {
            Why::Other(host) => {
                let worker = Rc::clone(worker);
                spawn_local(async move {
                    let asked = (Asked::of(&*self, visitor, &rest), Instant::now() + HOLD);
                    let connection = (socket, visitor, rest);
                    // The tracker has the request header, and returns it if it requests HTTP/2.
                    route(worker, self, connection, host.as_deref(), asked, true).await;
                });
            }
            Why::Changed => {
                let until = Instant::now() + HOLD;
                self.again(worker, (socket, visitor), Space::Http, (rest, None), until);
            }
            Why::Bad(fault) => {
                let asked = Asked::by(visitor);
                self.say(worker, socket, asked, fault.status(), fault.reason());
            }
            // The stream has recorded the request.
            Why::Down(code) => {
                let (status, reason) = Answer::Down(code).status();
                self.send_page(worker, socket, status, reason);
            }
            Why::Doubt(doubt) => self.send_page(worker, socket, 502, &unsafe_response(doubt)),
        }
    }

    fn answer(&self, worker: &Worker, socket: Socket, asked: Asked, answer: Answer) {
        let (status, reason) = answer.status();
        let pages = &self.terms.load().web.pages;
        let page = web::page_until(status, reason, pages, answer.retry_after());
        asked.answered(status, &page);
        answer::send(worker, socket, page);
    }

    fn generation(&self) -> u64 {
        self.names().generation()
    }

    fn leads(&self, lead: &Lead, peer: Option<SocketAddr>) -> bool {
        let Lead { space, host, edition, tracked, route_header, .. } = lead;
        // A name that matches the host more closely may be about to return.
        if self.names().is_awaited(*space, host) {
            return false;
        }
        let Some(services) = self.names().find(*space, host) else { return false };
        match space {
            Space::Http => {
                self.terms.load().route_header == *route_header
                    && self.https(host, peer).is_none()
                    && self.names().away_without_tls(host).is_none()
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
        (first, fields): (BytesMut, Option<VisitorFields>),
        until: Instant,
    ) {
        let Some(held) = worker.state.accounts.draw(UNDECIDED_STATE, peer) else {
            return self.answer(worker, socket, Asked::by(peer), Answer::Busy);
        };
        let (worker, until) = (Rc::clone(worker), Some(until));
        let visitor =
            Undecided { worker, doors: self, socket, peer, fields, until, _held: Some(held) };
        spawn_local(async move {
            match space {
                Space::Tls => tls::decide(visitor).await,
                // The bytes are still in the socket.
                Space::Http if first.is_empty() => decide(visitor).await,
                Space::Http => {
                    // A door decides about a complete request header, also when it led the visitor
                    // here.
                    let mut sniffer = visitor.doors.head_sniffer();
                    match self::first(&mut sniffer, (&visitor.doors, visitor.peer), &first) {
                        Some(looked) => lead(visitor, looked, first).await,
                        None => visitor.answer(400, "The head of the request is incomplete."),
                    }
                }
            }
        });
    }
}
