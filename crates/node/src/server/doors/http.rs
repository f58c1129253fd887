//! HTTP by name. The head of the first request decides; then the byte path carries the connection
//! and tracks its requests ([`relay::http`]), unless the service has options that need the proxy.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use relay::sniff::http::{Head, HeadSniffer, Looked};
use relay::{Handler, Leaving, Socket, Why};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::{Doors, PATIENCE, Port, Undecided, answer, site};
use crate::entrance::{self, Answer, HttpDoor, HttpVisitor};
use crate::names::{Published, Services, Space};
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
            self.0.decide(decide(visitor));
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

/// Leads a visitor whose first bytes are known.
pub(super) async fn admit(visitor: Undecided, first: First) {
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
            let Undecided { worker, doors, socket, peer, .. } = visitor;
            route(worker, doors, (socket, peer, BytesMut::new()), host).await;
        }
        Looked::Http2 => {
            let Undecided { worker, doors, socket, peer, .. } = visitor;
            site::serve_plain(&worker, doors, socket, peer, BytesMut::new());
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

/// A connection with the bytes that were read from it.
type Connection = (Socket, Option<SocketAddr>, BytesMut);

/// Leads a connection whose next request is for `host`.
async fn route(
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    (socket, peer, first): Connection,
    host: Option<&str>,
) {
    // A request without a host goes to the service of all hosts.
    let services = doors.names().wait(Space::Http, host.unwrap_or(HOSTLESS)).await;
    let Some(services) = services else {
        return doors.say(&worker, socket, 404, "No service has this host.");
    };
    let Some(only) = alone(&services) else {
        return site::serve_plain(&worker, doors, socket, peer, first);
    };
    let terms = doors.terms.load();
    let aim = only.entrance.route.aim.load();
    let passes = aim.http.as_ref().is_some_and(|http| http.options.pass_through);
    let tracked = !passes || doors.trusts(peer);
    let route_header = terms.route_header.clone();
    let http = HttpVisitor { door: doors, tracked, route_header, first };
    entrance::visit(&worker, &only.entrance, socket, peer, Some(http));
}

/// The only service of a host, if it needs no proxy.
fn alone(services: &Services) -> Option<&Published> {
    let [only] = &**services else { return None };
    let aim = only.entrance.route.aim.load();
    let needs_proxy = aim.http.as_ref().is_some_and(|http| http.options.need_proxy());
    (!needs_proxy).then_some(only)
}

impl Doors {
    pub(super) fn head_sniffer(&self) -> HeadSniffer {
        HeadSniffer::new(self.terms.load().route_header.as_deref().map(Rc::from))
    }

    /// Answers a visitor with a page.
    pub(super) fn say(&self, worker: &Worker, socket: Socket, status: u16, reason: &str) {
        let page = web::page(status, reason, &self.terms.load().web.pages);
        answer::send(worker, socket, page);
    }
}

impl HttpDoor for Doors {
    fn onward(self: Arc<Self>, worker: &Rc<Worker>, leaving: Leaving) {
        let Leaving { socket, visitor, rest, why } = leaving;
        match why {
            Why::Other(host) => {
                let worker = Rc::clone(worker);
                spawn_local(async move {
                    route(worker, self, (socket, visitor, rest), host.as_deref()).await;
                });
            }
            Why::Bad(fault) => self.say(worker, socket, fault.status(), fault.reason()),
            Why::Down(code) => self.answer(worker, socket, Answer::Down(code)),
        }
    }

    fn answer(&self, worker: &Worker, socket: Socket, answer: Answer) {
        let (status, reason) = answer.status();
        self.say(worker, socket, status, reason);
    }
}
