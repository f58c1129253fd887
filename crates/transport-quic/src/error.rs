//! What a failed handshake and a dead connection say.

use std::io;

use quinn::{ConnectionError, TransportErrorCode, VarInt};
use rustls::{AlertDescription, Error};
use tls::explain;
use transport::{CarrierError, Side};

/// Codes of ours in CONNECTION_CLOSE: both directions of the first lane had ended, or not.
pub(crate) const CLEAN: VarInt = VarInt::from_u32(0);
pub(crate) const ABANDONED: VarInt = VarInt::from_u32(1);

/// TLS alerts among the codes of QUIC (RFC 9001 section 4.8).
const ALERTS: std::ops::Range<u64> = 0x100..0x200;

/// Whether the peer closed after it had heard our end and we had acknowledged its own.
pub(crate) fn is_clean(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(close) if close.error_code == CLEAN)
}

/// Of a handshake. `fault` is what TLS on this side had against it.
pub(crate) fn handshake(
    error: &ConnectionError,
    side: Side,
    fault: Option<&Error>,
) -> CarrierError {
    if let Some(fault) = fault {
        return tls(fault, side);
    }
    match error {
        ConnectionError::ConnectionClosed(close) => {
            let code = u64::from(close.error_code);
            if ALERTS.contains(&code) {
                let alert = u8::try_from(code & 0xff).unwrap_or_default();
                return tls(&Error::AlertReceived(AlertDescription::from(alert)), side);
            }
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED {
                let text = format!("{} refuses new connections for now", peer(side));
                return io::Error::new(io::ErrorKind::ConnectionRefused, text).into();
            }
            of_connection(error).into()
        }
        ConnectionError::VersionMismatch => CarrierError::Tls(format!(
            "{} speaks no version of QUIC that we do (version 1)",
            peer(side)
        )),
        ConnectionError::TransportError(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::TimedOut
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => of_connection(error).into(),
    }
}

/// Of TLS. What is spoken inside is told in words of QUIC; the rest is as over TCP.
fn tls(error: &Error, side: Side) -> CarrierError {
    let alert = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    if *error == Error::NoApplicationProtocol || *error == alert {
        return other_protocol(side);
    }
    explain(error, side, true)
}

/// ALPN (RFC 7301) found nothing in common.
pub(crate) fn other_protocol(side: Side) -> CarrierError {
    CarrierError::Tls(format!(
        "{} does not speak tunnel/1 over QUIC on this port (ALPN); is it for HTTP/3?",
        peer(side)
    ))
}

/// Of a connection that was open. Never [`io::ErrorKind::BrokenPipe`], which is of a single lane.
pub(crate) fn of_connection(error: &ConnectionError) -> io::Error {
    let (kind, text) = match error {
        ConnectionError::TimedOut => {
            (io::ErrorKind::TimedOut, "nothing was heard for too long".to_owned())
        }
        ConnectionError::Reset => (
            io::ErrorKind::ConnectionReset,
            "the peer does not know this connection any more; was it restarted?".to_owned(),
        ),
        ConnectionError::ApplicationClosed(_) => {
            (io::ErrorKind::ConnectionReset, "the peer closed the connection".to_owned())
        }
        ConnectionError::ConnectionClosed(close) => (
            io::ErrorKind::ConnectionReset,
            format!("QUIC of the peer gave the connection up: {close}"),
        ),
        ConnectionError::LocallyClosed => {
            (io::ErrorKind::NotConnected, "the connection is closed".to_owned())
        }
        ConnectionError::TransportError(why) => {
            (io::ErrorKind::InvalidData, format!("the peer breaks a rule of QUIC: {why}"))
        }
        ConnectionError::VersionMismatch | ConnectionError::CidsExhausted => {
            (io::ErrorKind::Other, error.to_string())
        }
    };
    io::Error::new(kind, text)
}

const fn peer(side: Side) -> &'static str {
    match side {
        Side::Client => "the server",
        Side::Server => "the client",
    }
}
