//! How a greeting fails, in words for a log of either side.

use super::{GREETING_MAX, Refusal};
use crate::wire::WireError;

/// A greeting that came to nothing. Flush what `poll_output` still has, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The first bytes are another protocol's. Nothing is answered.
    #[error("the other side does not speak the tunnel protocol: check address and port")]
    Magic,
    /// The first byte is that of a TLS record (RFC 8446 section 5.1). Nothing is answered.
    #[error(
        "the other side speaks TLS on this connection and we do not: client and server must both \
         say tls://, or both tcp://"
    )]
    Tls,
    /// The peer's messages exceed [`GREETING_MAX`]. Found in the head, before the body arrives.
    #[error("the greeting is longer than {GREETING_MAX} bytes")]
    TooLong,
    /// The peer's bytes make no sense.
    #[error("malformed greeting: {0}")]
    Malformed(&'static str),
    /// The server refused (client side), or this side did (server side). On the client it is not
    /// authenticated: anybody on the path can forge it where there is no TLS.
    #[error("{0}")]
    Refused(Refusal),
    /// The server accepted but did not prove that it knows the credential or the link secret.
    #[error(
        "the server does not hold the key of this client: it is not the server that the token was \
         made for, or something in between changes the bytes"
    )]
    Unproven,
    /// The server accepted something that was not asked for.
    #[error("the server's answer does not fit the request: {0}")]
    Answer(&'static str),
    /// The server does not know this client and asks it to introduce itself, which it does not mean
    /// to.
    #[error(
        "the server does not know this client, and would let it in if it introduced itself: add it to the \
         server's `clients`, or say `introduce: true` here if the server is to keep what verifies its token"
    )]
    Introduction,
    /// This client has no token, and its connection has nothing to bind a certificate to.
    #[error("a client without a token needs a transport with TLS end to end: tls, quic or kcp")]
    CertificateUnbound,
}

impl GreetingError {
    /// The refusal that a server sends for this error. `None`: it sends nothing.
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
