//! The handshake, on the machinery of the lane.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::ServerConfig;
use tls::{certificate_name, explain};
use transport::{Carrier, CarrierError, EXPORTER_LABEL, Peer, Side};

use super::Speech;
use super::engine::{Engine, Standing, WIRE_RECORD};
use super::exporter::Secret;
use super::lane::TlsLane;
use super::session::{Client, Server, Session};
use crate::dialer::TlsClient;
use crate::socket::Socket;

/// Bytes read from a peer until its handshake is done: certificate chains are a few KiB, rustls
/// itself refuses a message of 64 KiB.
const INPUT: usize = 96 << 10;

/// Shakes hands with a server.
pub(crate) async fn connect(
    socket: Socket,
    address: SocketAddr,
    tls: TlsClient,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let (client, secret) =
        Client::new(&tls.config, tls.name).map_err(|error| explain(&error, Side::Client, false))?;
    shake(socket, address, Engine::new(client), &secret, speech).await
}

/// Shakes hands with a client.
pub(crate) async fn accept(
    socket: Socket,
    address: SocketAddr,
    config: &ServerConfig,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let (server, secret) =
        Server::new(config).map_err(|error| explain(&error, Side::Server, false))?;
    shake(socket, address, Engine::new(server), &secret, speech).await
}

async fn shake<S: Session>(
    socket: Socket,
    address: SocketAddr,
    mut engine: Engine<S>,
    secret: &Arc<Secret>,
    speech: Speech,
) -> Result<Carrier, CarrierError> {
    let mut heard = 0;
    // Plaintext that came in the same read as the end of the handshake stays in the engine.
    let mut nowhere = BytesMut::new();
    loop {
        let outcome = engine.process(&mut nowhere);
        let sent = send(&socket, engine.outgoing()).await;
        let standing = outcome.map_err(|error| explain(&error, S::SIDE, heard > 0))?;
        sent?;
        if standing == Standing::Open && engine.session().accepted() {
            break;
        }
        let before = heard;
        heard += receive::<S>(&socket, &mut engine).await?;
        // rustls would say so too, but only after a whole record by a length that is none.
        if before == 0 && !looks_like_tls(engine.incoming(0)) {
            return Err(not_tls(S::SIDE, engine.incoming(0)));
        }
        if heard > INPUT {
            let text = format!("the handshake is longer than {INPUT} bytes");
            return Err(CarrierError::Tls(text));
        }
    }
    let state = engine.session().state();
    if !speech.is(state.alpn_protocol()) {
        let peer = if S::SIDE == Side::Client { "server" } else { "client" };
        let wanted = String::from_utf8_lossy(speech.alpn());
        let text = format!("the {peer} does not speak {wanted} on this port (no ALPN)");
        return Err(CarrierError::Tls(text));
    }
    let exporter =
        state.negotiated_cipher_suite().and_then(|suite| secret.export(suite, EXPORTER_LABEL));
    if exporter.is_none() {
        return Err(CarrierError::Tls("the session exports no keying material".into()));
    }
    let certificate_name = match S::SIDE {
        Side::Client => None,
        // A certificate without a name is for nobody; it is not as good as none.
        Side::Server => (state.peer_certificates().and_then(<[_]>::first))
            .map(|shown| certificate_name(shown).unwrap_or_default()),
    };
    let (transport, connection) = (crate::TLS, socket.connection());
    let peer = Peer { address, transport, connection, watch: None, exporter, certificate_name };
    Ok(Carrier::single(peer, Box::new(TlsLane::new(engine, socket))))
}

async fn send(socket: &Socket, outgoing: &mut BytesMut) -> io::Result<()> {
    while !outgoing.is_empty() {
        let n = poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(outgoing)], outgoing.len()));
        let n = n.await?;
        outgoing.advance(n);
    }
    *outgoing = BytesMut::new();
    Ok(())
}

async fn receive<S: Session>(socket: &Socket, engine: &mut Engine<S>) -> io::Result<usize> {
    let incoming = engine.incoming(WIRE_RECORD);
    let n = poll_fn(|cx| socket.poll_read(cx, incoming, WIRE_RECORD)).await?;
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

/// First bytes of every greeting (SPEC.md, "Greeting"). Here they are a peer that was told
/// `tcp://`.
const GREETING: &[u8] = b"TNL1";

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
