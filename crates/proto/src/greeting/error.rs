//! Failures of a greeting, with messages for the log of either side.

use super::{GREETING_MAX, Refusal};
use crate::wire::WireError;

/// Why a greeting failed. The driver flushes the rest of `poll_output`, then closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The first bytes belong to another protocol. No reply is sent.
    #[error("the other side does not speak the tunnel protocol: check address and port")]
    Magic,
    /// The first byte is that of a TLS record (RFC 8446 section 5.1). No reply is sent.
    #[error(
        "the other side speaks TLS on this connection and we do not: client and server must both \
         say tls://, or both tcp://"
    )]
    Tls,
    /// The peer's messages exceed [`GREETING_MAX`]. Detected from the header, before the body
    /// arrives.
    #[error("the greeting is longer than {GREETING_MAX} bytes")]
    TooLong,
    /// The peer's bytes are malformed.
    #[error("malformed greeting: {0}")]
    Malformed(&'static str),
    /// The server refused (client side), or this side did (server side). On the client it is not
    /// authenticated: without TLS anybody on the path can forge it.
    #[error("{0}")]
    Refused(Refusal),
    /// The server accepted but did not prove that it knows the credential or the link secret.
    #[error(
        "the server does not hold the key of this client: it is not the server that the token was \
         made for, or something in between changes the bytes"
    )]
    Unproven,
    /// The server accepted something that the client did not request.
    #[error("the server's answer does not fit the request: {0}")]
    Answer(&'static str),
    /// The server does not know this client and requests an introduction, which this client is not
    /// configured to send.
    #[error(
        "the server does not know this client, and would let it in if it introduced itself: add it to the \
         server's `clients`, or say `introduce: true` here if the server is to keep what verifies its token"
    )]
    Introduction,
    /// This client has no token, and its connection has no exporter to bind a certificate to.
    #[error("a client without a token needs a transport with TLS end to end: tls, quic or kcp")]
    CertificateUnbound,
}

impl GreetingError {
    /// The refusal that a server sends for this error. `None`: no refusal is sent.
    pub(super) const fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Magic | Self::Tls => None,
            Self::Refused(refusal) => Some(refusal),
            Self::TooLong
            | Self::Malformed(_)
            | Self::Unproven
            | Self::Answer(_)
            | Self::Introduction
            | Self::CertificateUnbound => Some(Refusal::Malformed),
        }
    }
}

impl From<WireError> for GreetingError {
    fn from(error: WireError) -> Self {
        Self::Malformed(match error {
            WireError::Truncated => "a field ends too early",
            WireError::Trailing => "there are bytes behind the last field",
            WireError::Text => "a text is not UTF-8",
            WireError::TextLength => "a text is longer than allowed",
            WireError::Control => "a text has a control character",
        })
    }
}
