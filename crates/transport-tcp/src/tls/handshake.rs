//! The TLS handshake of both sides, which runs on the engine and ends in a lane.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::ServerConfig;
use tls::{certificate_name, explain};
use transport::{Carrier, CarrierError, EXPORTER_LABEL, Lane, Peer, Side, Transport, Unchanged};

use super::Speech;
use super::client::TlsClient;
use super::engine::{Engine, Standing, WIRE_RECORD};
use super::exporter::Secret;
use super::lane::TlsLane;
use super::session::{Client, Server, Session};
use super::under::{Inside, Under};
use crate::NOWHERE;
use crate::socket::Socket;

/// The limit of bytes read from a peer during its handshake. Certificate chains take a few KiB, and
/// rustls refuses messages above 64 KiB. A server listens to strangers, so it reads less.
const fn input(side: Side) -> usize {
    match side {
        Side::Client => 96 << 10,
        Side::Server => 32 << 10,
    }
}

/// The limit of bytes that a server reads before it has a whole ClientHello, so that strangers cost
/// little memory. A ClientHello with a hybrid key share takes 1.5 to 2 KiB, and a resumption ticket
/// that holds a chain of certificates adds a few KiB.
const HELLO: usize = 16 << 10;

/// The number of bytes per read before the server has a whole ClientHello. A read buffer costs
/// memory while it waits for a stranger's bytes.
const HELLO_READ: usize = 4 << 10;

/// Runs the handshake with a server.
pub(crate) async fn connect(
    socket: Socket,
    address: SocketAddr,
    tls: TlsClient,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let (client, secret) =
        Client::new(&tls.config, tls.name).map_err(|error| explain(&error, Side::Client, false))?;
    shake(socket, (crate::TLS, address), Engine::new(client), &secret, speech).await
}

/// Runs the handshake with a server inside `lane`. The carrier has the name of `transport`, and no
/// address.
///
/// # Errors
/// The lane is lost, or the handshake fails.
pub async fn connect_inside(
    lane: Box<dyn Lane>,
    transport: Transport,
    tls: TlsClient,
) -> Result<Carrier, CarrierError> {
    connect_speaking(lane, transport, tls, Speech::Tunnel).await
}

/// As [`connect_inside`], with a server that speaks `speech` inside TLS.
pub(crate) async fn connect_speaking(
    lane: Box<dyn Lane>,
    transport: Transport,
    tls: TlsClient,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let (client, secret) =
        Client::new(&tls.config, tls.name).map_err(|error| explain(&error, Side::Client, false))?;
    shake(Inside(lane), (transport, NOWHERE), Engine::new(client), &secret, speech).await
}

/// Runs the handshake with a client inside `lane`, as [`connect_inside`] does.
///
/// # Errors
/// The lane is lost, or the handshake fails.
pub async fn accept_inside(
    lane: Box<dyn Lane>,
    transport: Transport,
    config: &ServerConfig,
) -> Result<Carrier, CarrierError> {
    let (server, secret) =
        Server::new(config).map_err(|error| explain(&error, Side::Server, false))?;
    let at = (transport, NOWHERE);
    shake(Inside(lane), at, Engine::new(server), &secret, Speech::Tunnel).await
}

/// Runs the handshake with a client.
pub(crate) async fn accept(
    socket: Socket,
    address: SocketAddr,
    config: &ServerConfig,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let (server, secret) =
        Server::new(config).map_err(|error| explain(&error, Side::Server, false))?;
    shake(socket, (crate::TLS, address), Engine::new(server), &secret, speech).await
}

async fn shake<S: Session, U: Under>(
    mut under: U,
    (transport, address): (Transport, SocketAddr),
    mut engine: Engine<S>,
    secret: &Arc<Secret>,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let mut heard = 0;
    // A server answers a whole ClientHello at once: without an answer there was none.
    let mut is_greeted = S::SIDE == Side::Client;
    // Plaintext that arrives in the same read as the end of the handshake stays in the engine.
    let mut nowhere = BytesMut::new();
    loop {
        let outcome = engine.process(&mut nowhere, &mut Unchanged);
        is_greeted |= !engine.outgoing().is_empty();
        let sent = send(&mut under, engine.outgoing()).await;
        let standing = outcome.map_err(|error| explain(&error, S::SIDE, heard > 0))?;
        sent?;
        if standing == Standing::Open && engine.session().accepted() {
            break;
        }
        let before = heard;
        heard +=
            receive(&mut under, &mut engine, if is_greeted { WIRE_RECORD } else { HELLO_READ })
                .await?;
        // rustls would fail as well, but it first waits for a whole record by a length that means
        // nothing.
        if before == 0 && !looks_like_tls(engine.incoming(0)) {
            if S::SIDE == Side::Server && is_request(engine.incoming(0)) {
                // A browser shows the answer. A peer that does not take it has lost it.
                let _ = send(&mut under, &mut BytesMut::from(PLAIN)).await;
            }
            return Err(not_tls(S::SIDE, engine.incoming(0)));
        }
        let (what, most) =
            if is_greeted { ("handshake", input(S::SIDE)) } else { ("ClientHello", HELLO) };
        if heard > most {
            return Err(CarrierError::Tls(format!("the {what} is longer than {most} bytes")));
        }
    }
    let state = engine.session().state();
    if !speech.is(state.alpn_protocol()) {
        let peer = if S::SIDE == Side::Client { "server" } else { "client" };
        let wanted = String::from_utf8_lossy(speech.alpn());
        let text = format!("the {peer} does not speak {wanted} on this port (no ALPN)");
        return Err(CarrierError::Tls(text));
    }
    let suite = state.negotiated_cipher_suite();
    let exporter = suite.and_then(|suite| secret.export(suite, EXPORTER_LABEL));
    // A session of TLS 1.2 ends at a proxy in front of the server, so nothing can be bound to it.
    let is_bindable = suite.is_some_and(|suite| suite.tls13().is_some());
    if exporter.is_none() && is_bindable {
        return Err(CarrierError::Tls("the session exports no keying material".into()));
    }
    let certificate_name = match S::SIDE {
        Side::Client => None,
        // A certificate without a name gives an empty name, which is the name of no client. `None`
        // would mean that the client showed no certificate.
        Side::Server => (state.peer_certificates().and_then(<[_]>::first))
            .map(|shown| certificate_name(shown).unwrap_or_default()),
    };
    let connection = under.connection();
    let cipher = suite.map(tls::cipher);
    let watch = None;
    let peer = Peer {
        address,
        transport,
        connection,
        watch,
        exporter,
        certificate_name,
        cipher,
        via: None,
    };
    Ok(Carrier::single(peer, Box::new(TlsLane::new(engine, under))))
}

async fn send<U: Under>(under: &mut U, outgoing: &mut BytesMut) -> io::Result<()> {
    while !outgoing.is_empty() {
        poll_fn(|cx| under.poll_write(cx, outgoing)).await?;
    }
    *outgoing = BytesMut::new();
    Ok(())
}

async fn receive<S: Session, U: Under>(
    under: &mut U,
    engine: &mut Engine<S>,
    wanted: usize,
) -> io::Result<usize> {
    let incoming = engine.incoming(wanted);
    let n = poll_fn(|cx| under.poll_read(cx, incoming, wanted)).await?;
    if n == 0 {
        let text = "the peer closed the connection during the TLS handshake";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(n)
}

/// Whether the first bytes are a TLS record: handshake or alert, major version 3.
fn looks_like_tls(start: &[u8]) -> bool {
    let typed = start.first().is_none_or(|&kind| kind == 22 || kind == 21);
    typed && start.get(1).is_none_or(|&major| major == 3)
}

/// The first bytes of every greeting (SPEC.md, "Greeting"). A peer that starts with them was
/// configured for `tcp://`.
const GREETING: &[u8] = b"TNL1";

/// The answer to a request of HTTP without TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 74\r\nConnection: close\r\n\r\n\
    This port speaks TLS: the address of the request has to begin with https.\n";

/// Whether these bytes begin a request of HTTP/1 (RFC 9112 section 3): a method of at most 16
/// letters, a space, and the begin of a target.
fn is_request(start: &[u8]) -> bool {
    let letters = start.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let target = start.get(letters + 1).is_some_and(|byte| matches!(byte, b'/' | b'*' | b'h'));
    (1..=16).contains(&letters) && start.get(letters) == Some(&b' ') && target
}

fn not_tls(side: Side, start: &[u8]) -> CarrierError {
    let greeting = start.iter().zip(GREETING).all(|(a, b)| a == b);
    CarrierError::Tls(match (side, greeting) {
        (Side::Client, true) => {
            "this port of the server is tcp://, without TLS: dial the one that \
             its file has under `listen` as tls://"
                .into()
        }
        (Side::Server, true) => "the client dials this port as tcp://, without TLS: it must say \
             tls:// here"
            .into(),
        (Side::Client, false) => "the server does not speak TLS on this port".into(),
        (Side::Server, false) => "the client does not speak TLS on this port".into(),
    })
}
