//! The TLS handshake of both sides over the bootstrap session, which ends in a carrier.
//!
//! It runs in the accepting or dialling task, not in the driver: the cryptography of an
//! unauthenticated peer's handshake delays no other connection.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Buf as _, Bytes};
use kcp::own::wire::ConnectionId;
use net::socket::canonical;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};
use tls::{Asked, certificate_name, explain};
use transport::{ALPN, Carrier, CarrierError, EXPORTER_LABEL, Peer, Side};

use crate::datagrams::KcpDatagrams;
use crate::driver::now;
use crate::error::other_protocol;
use crate::lane::{Hold, KcpLane, mark};
use crate::secrets;
use crate::settings::KcpSettings;
use crate::state::Pipe;
use crate::watched::Watched;
use crate::wire::PROOF;

/// The largest size of a peer's handshake, in bytes. Certificate chains take a few KiB, and rustls
/// refuses messages above 64 KiB. A server reads from unauthenticated peers, so its limit is lower.
const fn input(side: Side) -> usize {
    match side {
        Side::Client => 96 << 10,
        Side::Server => 32 << 10,
    }
}

/// The number of bytes read at once.
const READ: usize = 4 << 10;

/// Runs the client's handshake, and makes the carrier. When the server asked for a certificate, the
/// function waits until the server has accepted it. In TLS 1.3 a client completes the handshake
/// before that.
pub(crate) async fn connect(
    hold: Hold,
    config: &Arc<ClientConfig>,
    name: ServerName<'static>,
    settings: &KcpSettings,
) -> Result<Carrier, CarrierError> {
    let mut config = ClientConfig::clone(config);
    let asked = Asked::watch(&mut config);
    let tls = ClientConnection::new(Arc::new(config), name);
    let tls = tls.map_err(|error| explain(&error, Side::Client, false))?;
    let mut tls = Connection::Client(tls);
    shake(&hold, &mut tls, Side::Client).await?;
    let peer = open(&hold, &tls, Side::Client, settings)?;
    write(&hold, Pipe::Lane, mark(None)).await?;
    let mut lane = KcpLane::new(hold, Side::Client);
    if asked.times() > 0 {
        accepted(&mut lane, &mut tls).await?;
    }
    Ok(carrier(lane, peer))
}

/// Runs the server's handshake, and makes the carrier. `reset`: the proof of a later Reset.
pub(crate) async fn accept(
    hold: Hold,
    config: Arc<ServerConfig>,
    settings: &KcpSettings,
    reset: impl FnOnce(ConnectionId) -> [u8; PROOF],
) -> Result<Carrier, CarrierError> {
    let tls = ServerConnection::new(config);
    let mut tls = Connection::Server(tls.map_err(|error| explain(&error, Side::Server, false))?);
    shake(&hold, &mut tls, Side::Server).await?;
    let peer = open(&hold, &tls, Side::Server, settings)?;
    let id = hold.shared.lock().ids().0;
    write(&hold, Pipe::Lane, mark(Some(reset(id)))).await?;
    Ok(carrier(KcpLane::new(hold, Side::Server), peer))
}

fn carrier(lane: KcpLane, peer: Peer) -> Carrier {
    let datagrams = KcpDatagrams(lane.shared());
    Carrier { peer, lane: Box::new(lane), lanes: None, datagrams: Some(Box::new(datagrams)) }
}

/// Moves the messages of TLS until the handshake is done at this end.
async fn shake(hold: &Hold, tls: &mut Connection, side: Side) -> Result<(), CarrierError> {
    let mut heard = 0;
    loop {
        flush(hold, tls).await?;
        if !tls.is_handshaking() {
            return Ok(());
        }
        let bytes = poll_fn(|cx| hold.poll_bytes(cx, Pipe::Bootstrap, READ)).await?;
        if bytes.is_empty() {
            let text = "the peer closed the connection during the TLS handshake";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text).into());
        }
        heard += bytes.len();
        let most = input(side);
        if heard > most {
            let text = format!("the handshake is longer than {most} bytes");
            return Err(CarrierError::Tls(text));
        }
        if let Err(error) = feed(tls, bytes) {
            // The peer learns the problem from an alert.
            let _ = flush(hold, tls).await;
            return Err(explained(&error, side));
        }
    }
}

/// Passes bytes of the peer to TLS.
fn feed(tls: &mut Connection, mut bytes: Bytes) -> Result<(), Error> {
    while bytes.has_remaining() {
        let mut rest = &bytes[..];
        let read = tls.read_tls(&mut rest);
        let taken = bytes.len() - rest.len();
        bytes.advance(taken);
        tls.process_new_packets()?;
        // A full buffer that cannot be processed holds a message that is too long.
        if read.is_err() || taken == 0 {
            return Err(Error::PeerMisbehaved(
                rustls::PeerMisbehaved::MessageInterleavedWithHandshakeMessage,
            ));
        }
    }
    Ok(())
}

/// Sends the pending bytes of TLS.
async fn flush(hold: &Hold, tls: &mut Connection) -> io::Result<()> {
    // Data of a server after its handshake (tickets) is not read.
    let is_over = !tls.is_handshaking() && matches!(tls, Connection::Server(_));
    if is_over || !tls.wants_write() {
        return Ok(());
    }
    let mut said = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut said)?;
    }
    write(hold, Pipe::Bootstrap, said.into()).await
}

async fn write(hold: &Hold, pipe: Pipe, mut bytes: Bytes) -> io::Result<()> {
    while !bytes.is_empty() {
        poll_fn(|cx| hold.poll_send(cx, pipe, &mut bytes)).await?;
    }
    Ok(())
}

/// Starts to seal packets with the keys of the session; returns the known properties of the peer.
fn open(
    hold: &Hold,
    tls: &Connection,
    side: Side,
    settings: &KcpSettings,
) -> Result<Peer, CarrierError> {
    if tls.alpn_protocol() != Some(ALPN) {
        return Err(other_protocol(side));
    }
    let without = || CarrierError::Tls("the session exports no keying material".into());
    let suite = tls.negotiated_cipher_suite().ok_or_else(without)?;
    let mut exporter = [0; 32];
    let export =
        |out: &mut [u8], label: &[u8]| tls.export_keying_material(out, label, Some(&[])).is_ok();
    if !export(&mut exporter, EXPORTER_LABEL) {
        return Err(without());
    }
    let keys = secrets::sealed(side, suite.suite(), |out, label| export(out, label));
    let keys = keys.ok_or_else(without)?;
    let certificate_name = match side {
        Side::Client => None,
        // A certificate without a name yields an empty name, which is the name of no client. `None`
        // would mean that the client presented no certificate.
        Side::Server => (tls.peer_certificates().and_then(<[_]>::first))
            .map(|shown| certificate_name(shown).unwrap_or_default()),
    };
    let mut state = hold.shared.lock();
    let address = state.remote().peer;
    let settings = settings.clone().on_route_to(address);
    let config = settings.session(state.ids());
    state.open(now(), (config, settings.limits()), keys);
    hold.shared.touch(state);
    Ok(Peer {
        address: canonical(address),
        transport: crate::KCP,
        connection: None,
        watch: Some(Arc::new(Watched(Arc::downgrade(&hold.shared)))),
        exporter: Some(exporter),
        certificate_name,
        cipher: Some(tls::cipher(suite)),
        via: None,
    })
}

/// Waits until the server has accepted the client's certificate, or has reported why not.
async fn accepted(lane: &mut KcpLane, tls: &mut Connection) -> Result<(), CarrierError> {
    let alert = poll_fn(|cx| match (lane.poll_mark(cx), lane.poll_alert(cx)) {
        (Poll::Ready(Ok(())), _) => Poll::Ready(Ok(None)),
        (_, Poll::Ready(Ok(alert))) if !alert.is_empty() => Poll::Ready(Ok(Some(alert))),
        (Poll::Ready(Err(error)), _) => Poll::Ready(Err(error)),
        (Poll::Pending, _) => Poll::Pending,
    });
    let Some(alert) = alert.await? else { return Ok(()) };
    match feed(tls, alert) {
        Err(error) => Err(explained(&error, Side::Client)),
        Ok(()) => {
            let text = "the server closed the connection after the TLS handshake";
            Err(io::Error::new(io::ErrorKind::ConnectionReset, text).into())
        }
    }
}

/// The error of a TLS failure. A wrong ALPN has a text of its own; all other texts are the texts of
/// TLS over TCP.
fn explained(error: &Error, side: Side) -> CarrierError {
    let alert = Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
    if *error == Error::NoApplicationProtocol || *error == alert {
        return other_protocol(side);
    }
    explain(error, side, true)
}
