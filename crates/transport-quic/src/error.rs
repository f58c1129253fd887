//! The errors of failed handshakes and dead connections.

use std::io;

use quinn::{ConnectionError, TransportErrorCode, VarInt};
use rustls::{AlertDescription, Error};
use tls::explain;
use transport::{CarrierError, Side};

/// Our codes in CONNECTION_CLOSE: `CLEAN` when both directions of the first lane had ended,
/// otherwise `ABANDONED`.
pub(crate) const CLEAN: VarInt = VarInt::from_u32(0);
pub(crate) const ABANDONED: VarInt = VarInt::from_u32(1);

/// The range of QUIC's codes that stands for TLS alerts (RFC 9001 section 4.8).
const ALERTS: std::ops::Range<u64> = 0x100..0x200;

/// Whether the peer closed after it had received our end and we had acknowledged its end.
pub(crate) fn is_clean(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(close) if close.error_code == CLEAN)
}

/// The error of a failed handshake. `fault` is the error of TLS on this side.
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

/// The error of a TLS failure. A wrong ALPN has a text of its own for QUIC; all other texts are
/// the texts of TLS over TCP.
fn tls(error: &Error, side: Side) -> CarrierError {
    let alert = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    if *error == Error::NoApplicationProtocol || *error == alert {
        return other_protocol(side);
    }
    explain(error, side, true)
}

/// The error when ALPN (RFC 7301) found no common protocol.
pub(crate) fn other_protocol(side: Side) -> CarrierError {
    CarrierError::Tls(format!(
        "{} does not speak tunnel/1 over QUIC on this port (ALPN); is it for HTTP/3?",
        peer(side)
    ))
}

/// The error of a connection that was open. It is never [`io::ErrorKind::BrokenPipe`], which stands
/// for a single lane.
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
            format!("QUIC of the peer gave the connection up; it reports: {close}"),
        ),
        ConnectionError::LocallyClosed => {
            (io::ErrorKind::NotConnected, "the connection is closed".to_owned())
        }
        ConnectionError::TransportError(why) => (
            io::ErrorKind::InvalidData,
            format!("the peer breaks a rule of QUIC; the QUIC library reports: {why}"),
        ),
        ConnectionError::VersionMismatch => (
            io::ErrorKind::Other,
            "the peer speaks no version of QUIC that we do (version 1)".to_owned(),
        ),
        ConnectionError::CidsExhausted => (
            io::ErrorKind::Other,
            "this machine has no connection id of QUIC left; the next attempt draws new ones"
                .to_owned(),
        ),
    };
    io::Error::new(kind, text)
}

const fn peer(side: Side) -> &'static str {
    match side {
        Side::Client => "the server",
        Side::Server => "the client",
    }
}
