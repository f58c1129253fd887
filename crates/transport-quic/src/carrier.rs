//! Makes a carrier from a connection after its handshake: the identity of the peer, and the first
//! lane.

use std::sync::Arc;

use bytes::Bytes;
use net::socket::canonical;
use quinn::{Connection, ConnectionError, RecvStream, SendStream, WriteError};
use rustls::pki_types::CertificateDer;
use tls::certificate_name;
use transport::{ALPN, Carrier, CarrierError, EXPORTER_LABEL, Peer, Side};

use crate::datagrams::{QuicDatagrams, Stranger};
use crate::error::{handshake, other_protocol};
use crate::lane::{Hold, MARK, PRIORITY, QuicLane, foreign, is_mark};
use crate::lanes::QuicLanes;
use crate::session::Agreed;
use crate::watched::Watched;
use files::peers::Noted;

/// Makes the client's carrier: opens the first lane. When the server asked for a certificate, the
/// function waits until the server has accepted the certificate. In TLS 1.3 a client completes the
/// handshake before that.
pub(crate) async fn dialled(hold: Hold, asked: bool) -> Result<Carrier, CarrierError> {
    let peer = peer(&hold.connection, Side::Client)?;
    let late = |error: ConnectionError| handshake(&error, Side::Client, None);
    let (send, mut recv) = hold.connection.open_bi().await.map_err(late)?;
    let send = mark(&hold.connection, send, Side::Client).await?;
    if asked {
        read_mark(&hold.connection, &mut recv, Side::Client).await?;
    }
    Ok(carrier(hold, peer, (send, recv), asked, (None, None)))
}

/// Opens the first lane before the client's handshake is done, and sends `said` as early data.
pub(crate) async fn say(
    hold: &Hold,
    said: Bytes,
) -> Result<(SendStream, RecvStream), CarrierError> {
    let late = |error: ConnectionError| handshake(&error, Side::Client, None);
    let (send, recv) = hold.connection.open_bi().await.map_err(late)?;
    let mut send = mark(&hold.connection, send, Side::Client).await?;
    let written = send.write_chunk(said).await;
    written.map_err(|_: WriteError| self::late(&hold.connection, Side::Client))?;
    Ok((send, recv))
}

/// Makes the client's carrier after the handshake, when the server accepted the early data.
pub(crate) fn taken(hold: Hold, lane: (SendStream, RecvStream)) -> Result<Carrier, CarrierError> {
    let peer = peer(&hold.connection, Side::Client)?;
    Ok(carrier(hold, peer, lane, false, (None, None)))
}

/// Makes the server's carrier: waits for the first lane. Parts of `peer` may still be unknown.
pub(crate) async fn accepted(
    hold: Hold,
    peer: Peer,
    noted: Option<Noted>,
) -> Result<Carrier, CarrierError> {
    let late = |error: ConnectionError| handshake(&error, Side::Server, None);
    let mut stranger = Stranger::new(hold.connection.clone());
    let first = async {
        let (send, mut recv) = hold.connection.accept_bi().await.map_err(late)?;
        let send = mark(&hold.connection, send, Side::Server).await?;
        read_mark(&hold.connection, &mut recv, Side::Server).await?;
        Ok((send, recv))
    };
    let lane: Result<_, CarrierError> = stranger.beside(first).await;
    Ok(carrier(hold, peer, lane?, true, (noted, Some(stranger))))
}

async fn mark(
    connection: &Connection,
    mut send: SendStream,
    side: Side,
) -> Result<SendStream, CarrierError> {
    let lost = || late(connection, side);
    send.set_priority(PRIORITY).map_err(|_| lost())?;
    send.write_all(&[MARK]).await.map_err(|_: WriteError| lost())?;
    Ok(send)
}

async fn read_mark(
    connection: &Connection,
    recv: &mut RecvStream,
    side: Side,
) -> Result<(), CarrierError> {
    let mut first = [0];
    recv.read_exact(&mut first).await.map_err(|_| late(connection, side))?;
    if is_mark(&first) { Ok(()) } else { Err(CarrierError::Tls(foreign().to_string())) }
}

/// The reason why a stream failed after it had begun.
fn late(connection: &Connection, side: Side) -> CarrierError {
    match connection.close_reason() {
        Some(error) => handshake(&error, side, None),
        None => CarrierError::Tls(foreign().to_string()),
    }
}

/// The peer as the server knows it before the client's handshake is done.
pub(crate) fn unknown(connection: &Connection) -> Peer {
    Peer {
        address: canonical(connection.remote_address()),
        transport: crate::QUIC,
        connection: None,
        watch: None,
        exporter: None,
        certificate_name: None,
        // The server has chosen when it answers the ClientHello, before it accepts early data.
        cipher: agreed(connection).and_then(|agreed| agreed.cipher),
        via: None,
    }
}

fn agreed(connection: &Connection) -> Option<Box<Agreed>> {
    connection.handshake_data()?.downcast().ok()
}

pub(crate) fn peer(connection: &Connection, side: Side) -> Result<Peer, CarrierError> {
    let agreed = agreed(connection);
    let cipher = agreed.as_ref().and_then(|agreed| agreed.cipher);
    if agreed.and_then(|agreed| agreed.protocol).is_none_or(|protocol| protocol != ALPN) {
        return Err(other_protocol(side));
    }
    let mut exporter = [0; 32];
    connection
        .export_keying_material(&mut exporter, EXPORTER_LABEL, &[])
        .map_err(|_| CarrierError::Tls("the session exports no keying material".into()))?;
    let shown = connection
        .peer_identity()
        .and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificate_name = match side {
        Side::Client => None,
        // A certificate without a name yields an empty name, which is the name of no client. `None`
        // would mean that the client presented no certificate.
        Side::Server => (shown.as_deref().and_then(|shown| shown.first()))
            .map(|shown| certificate_name(shown).unwrap_or_default()),
    };
    Ok(Peer {
        address: canonical(connection.remote_address()),
        transport: crate::QUIC,
        connection: None,
        watch: Some(Arc::new(Watched(connection.clone()))),
        exporter: Some(exporter),
        certificate_name,
        cipher,
        via: None,
    })
}

fn carrier(
    hold: Hold,
    peer: Peer,
    (send, recv): (SendStream, RecvStream),
    marked: bool,
    (noted, stranger): (Option<Noted>, Option<Stranger>),
) -> Carrier {
    let lanes = QuicLanes::new(hold.connection.clone(), noted);
    let datagrams = QuicDatagrams::new(hold.connection.clone());
    Carrier {
        peer,
        lane: Box::new(QuicLane::new(hold, (send, recv), marked, stranger)),
        lanes: Some(Box::new(lanes)),
        datagrams: Some(Box::new(datagrams)),
    }
}
