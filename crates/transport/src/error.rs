//! Errors of a dial and of a handshake.

use std::io;
use std::net::SocketAddr;

use crate::OfferRequest;

/// A failed dial or handshake. [`CarrierError::is_network`] returns whether to retry soon.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// The network or the operating system refused; another attempt may succeed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No pin matches the public key of the peer.
    #[error(
        "the server's key sha256:{presented} is not the pinned one: somebody may intercept the \
         connection, or the server was set up anew. Compare the key with the pin that the server \
         prints at its start, before you put it into `tls.pin` or `--pin`"
    )]
    PinMismatch {
        /// Base64 of the SHA-256 of the presented SubjectPublicKeyInfo.
        presented: String,
    },
    /// The verification of the peer's certificate failed. The text names the check and the remedy.
    #[error("{0}")]
    Certificate(String),
    /// TLS failed for another reason, or the peer speaks another protocol.
    #[error("TLS: {0}")]
    Tls(String),
    /// A web server or a proxy on the path gave an unexpected answer.
    #[error("{0}")]
    Http(String),
    /// A request for something other than a carrier.
    #[error("{text}")]
    Stranger {
        /// The request and the answer.
        text: String,
        /// The client address announced by a trusted proxy.
        client: Option<SocketAddr>,
    },
    /// The connection requested a page of this end, which was served.
    #[error("a page was served")]
    Served,
    /// A request about a WebRTC connection, which waits for its answer.
    #[error("an offer of WebRTC over HTTP, which is no carrier")]
    Offer(Box<OfferRequest>),
    /// The path does not exist at this moment, because of a state of this machine or of a program
    /// on the way. The network has not failed.
    #[error("{0}")]
    Unavailable(String),
    /// The settings of this end are unusable.
    #[error("{0}")]
    Config(String),
}

impl CarrierError {
    /// Whether the network failed, or the path does not exist now. The caller then retries soon;
    /// after a configuration error it retries slowly and reports the error.
    #[must_use]
    pub const fn is_network(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Unavailable(_))
    }

    /// Whether the failure says something about the network. The settings and the state of this
    /// machine do not.
    #[must_use]
    pub const fn is_of_path(&self) -> bool {
        !matches!(self, Self::Unavailable(_) | Self::Config(_))
    }
}
