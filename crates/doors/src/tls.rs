//! TLS by name. The server name in the ClientHello decides; a `tls://` name is passed through, and
//! the TLS of an `https://` name is terminated here.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use relay::sniff::tls::{Hello, HelloSniffer};
use relay::sniff::{First, FirstSniffer, Sniff};
use relay::{Attended, Handler, Socket};
use termination::Terminator;
use tokio::time::{Instant, timeout};

use super::answer;
use super::doors::PATIENCE;
use super::port::{Port, Undecided, settled_holder, takes};
use super::site::{self, NAMELESS};
use capture::log::Asked;
use node::entrance;
use node::entrance::{Attempts, EnteringVisitor, Lead, NameVisitor, VisitorOrigin};
use node::names::{Kind, Space};
use node::session::HOLD;

/// The alert `unrecognized_name` (RFC 6066 section 3) as a fatal alert in its own record.
const UNKNOWN_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// The answer to an HTTP request without TLS.
const PLAIN: &str = "This port speaks TLS: the address of the request begins with https://.";

/// A door for TLS on one worker.
#[derive(Debug)]
pub(super) struct TlsPort(pub(super) Port);

impl Handler for TlsPort {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        self.0.take(socket, peer, decide);
    }
}

/// The protocol of a visitor, by its first bytes.
enum Found {
    Hello(Hello),
    /// HTTP without TLS.
    Plain,
    Other,
}

/// Classifies the first bytes of a visitor, and routes the visitor.
pub(super) async fn decide(visitor: Undecided) {
    let (mut sniffer, mut first) = (HelloSniffer::default(), FirstSniffer::default());
    let look = relay::look(&visitor.socket, |bytes| match sniffer.look(bytes) {
        Sniff::More => None,
        Sniff::Found(hello) => Some(Found::Hello(hello)),
        Sniff::Not => match first.look(bytes)? {
            First::Http | First::Http2 => Some(Found::Plain),
            First::Tls | First::TunnelGreeting | First::Other => Some(Found::Other),
        },
    });
    match timeout(PATIENCE, look).await {
        Ok(Ok(Some(Found::Hello(hello)))) => {
            if let Some(visitor) = admit(visitor, &hello, true).await {
                refuse(visitor);
            }
        }
        Ok(Ok(Some(Found::Plain))) => visitor.answer(400, PLAIN),
        Ok(Ok(Some(Found::Other) | None) | Err(_)) | Err(_) => {}
    }
}

/// Informs a visitor that no service has its name.
pub(super) fn refuse(visitor: Undecided) {
    answer::send(&visitor.worker, visitor.socket, UNKNOWN_NAME.into());
}

/// Routes a visitor with this ClientHello. Returns the visitor if no service has its name. With
/// `waits`, waits for a name that may return soon.
pub(super) async fn admit(visitor: Undecided, hello: &Hello, waits: bool) -> Option<Undecided> {
    let name = hello.server_name.as_deref();
    if let (Some(name), Some(terminator)) = (name, visitor.doors.terminator())
        && let Some(check) = terminator.awaited_check(name, &hello.alpn).await
    {
        let Socket::Tcp(socket) = visitor.socket else { return None };
        let answered = terminator.answer_challenge(socket, check);
        if let Ok(Err(error)) = timeout(PATIENCE, answered).await {
            tracing::debug!(name, %error, "a challenge was not answered");
        }
        return None;
    }
    let until = visitor.until.unwrap_or_else(|| Instant::now() + HOLD);
    let (names, name) = (visitor.doors.names(), name.unwrap_or(NAMELESS));
    let generation = names.generation();
    let services =
        if waits { names.wait(Space::Tls, name).await } else { names.find(Space::Tls, name) };
    let Some(services) = services else {
        let Some(known) = names.away(Space::Tls, name) else { return Some(visitor) };
        return away(visitor, name, (known.kind, waits)).await;
    };
    // Services that share a name are of the same kind.
    let first = services.first()?;
    match first.kind {
        Kind::Tls | Kind::Http if first.entrance.backends.are_away() => {
            visitor.socket.reset_on_close();
        }
        Kind::Tls | Kind::Http => {
            let Undecided { worker, doors, socket, peer, fields, .. } = visitor;
            let edition = first.entrance.backends.edition();
            let (space, host, tracked, route_header) = (Space::Tls, Box::from(name), false, None);
            let lead = Lead { space, host, generation, edition, tracked, route_header };
            let origin = VisitorOrigin::Name(NameVisitor {
                door: doors,
                lead,
                first: BytesMut::new(),
                asked: Asked::default(),
                fields,
            });
            entrance::visit(
                &worker,
                &first.entrance,
                EnteringVisitor {
                    socket,
                    peer,
                    origin,
                    preferred: None,
                    until,
                    attempts: Attempts::default(),
                },
            );
        }
        Kind::Https => {
            let mut visitor = visitor;
            if takes(&services, &mut visitor.socket) {
                terminate(visitor, name).await;
            } else {
                relay::drop_socket(visitor.socket);
            }
        }
    }
    None
}

/// Answers a visitor of a known name whose client is away. Returns a visitor that may be a carrier
/// (not `waits`) and for whom the server has no certificate.
async fn away(
    mut visitor: Undecided,
    name: &str,
    (kind, waits): (Kind, bool),
) -> Option<Undecided> {
    let is_served = |terminator: &Arc<Terminator>| terminator.has_certificate(name);
    match kind {
        // The TLS is between the visitor and the target. An alert would mean that the name is
        // wrong, and a reset is what visitors of a client that has just disconnected get.
        Kind::Tls | Kind::Http => visitor.socket.reset_on_close(),
        Kind::Https if !waits && !visitor.doors.terminator().is_some_and(is_served) => {
            return Some(visitor);
        }
        Kind::Https => {
            if visitor.socket.move_to(settled_holder()) {
                terminate(visitor, name).await;
            } else {
                relay::drop_socket(visitor.socket);
            }
        }
    }
    None
}

/// Terminates the TLS of a visitor and serves the HTTP inside.
async fn terminate(visitor: Undecided, name: &str) {
    let accounts = &visitor.worker.state.accounts;
    let Some(account) = accounts.open(termination::HELD, visitor.peer) else {
        return visitor.socket.reset_on_close();
    };
    let Undecided { worker, doors, socket, peer, .. } = visitor;
    socket.begin_below_layer();
    let (Socket::Tcp(socket), Some(terminator)) = (socket, doors.terminator()) else { return };
    let socket = Attended::new(socket, |socket| Some(socket));
    let accepted = async {
        match name {
            NAMELESS => terminator.accept_nameless(socket).await,
            name => terminator.accept(socket, name).await,
        }
    };
    match timeout(PATIENCE, accepted).await {
        Ok(Ok(io)) => {
            site::serve_secure(&worker, Arc::clone(&doors), io, peer, name, account);
        }
        Ok(Err(error)) => tracing::debug!(name, %error, "the TLS handshake of a visitor failed"),
        Err(_) => tracing::debug!(name, "no TLS handshake in time"),
    }
}
