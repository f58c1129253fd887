//! Why a carrier did not come to be.

use std::io;
use std::net::SocketAddr;

/// A failed dial or handshake. [`CarrierError::is_network`] decides whether to try again at once.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// The network or the operating system refused; another attempt may succeed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer's public key is none of the pinned ones.
    #[error(
        "the server's key sha256:{presented} is not the pinned one; if the server was set up anew, \
         put the new pin into `tls.pin` or `--pin`"
    )]
    PinMismatch {
        /// Base64 of the SHA-256 of the presented SubjectPublicKeyInfo.
        presented: String,
    },
    /// The peer's certificate does not verify. The text says which check failed and what to do.
    #[error("{0}")]
    Certificate(String),
    /// TLS failed for another reason, or the peer speaks something else.
    #[error("TLS: {0}")]
    Tls(String),
    /// A web server or a proxy on the way answers something else than is wanted.
    #[error("{0}")]
    Http(String),
    /// A request that asks for something else than a carrier.
    #[error("{text}")]
    Stranger {
        /// What came, and what it was answered with.
        text: String,
        /// Whom a trusted proxy speaks for.
        client: Option<SocketAddr>,
    },
    /// The settings of this end are unusable.
    #[error("{0}")]
    Config(String),
}

impl CarrierError {
    /// Whether this is the weather (retry soon) and not a matter of settings (retry slowly, tell).
    #[must_use]
    pub const fn is_network(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}
