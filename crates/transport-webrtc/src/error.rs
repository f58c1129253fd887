//! Why a session description is refused, and the errors of connections.

use std::io;

use transport::CarrierError;

/// An offer or answer from which no connection can be made.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// The text of the peer is not a usable session description.
    #[error("the session description is refused: {0}")]
    Description(&'static str),
    /// The limit of peers that are connected or about to connect is reached.
    #[error("{0} peers are connected, and no more are allowed (p2p.webrtc.peers)")]
    Full(usize),
    /// No socket could be opened, or the library refused.
    #[error("WebRTC: {0}")]
    Local(String),
}

impl SignalError {
    pub(crate) fn local(error: impl std::fmt::Display) -> Self {
        Self::Local(error.to_string())
    }
}

impl From<SignalError> for CarrierError {
    fn from(error: SignalError) -> Self {
        match error {
            SignalError::Description(_) => Self::Tls(error.to_string()),
            SignalError::Full(_) | SignalError::Local(_) => {
                Self::Io(io::Error::other(error.to_string()))
            }
        }
    }
}

/// Why a channel has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer closed the channel or the connection.
    Closed,
    /// Nothing was heard for too long.
    Silent,
    /// No bytes were transferred within the idle timeout.
    Idle,
    /// The peer sent more than an unauthenticated peer may.
    Flood,
    /// A message is longer than this end announced.
    Long,
    /// A carrier message is unknown to this version.
    Foreign,
    /// A message arrived after the end of the direction.
    Late,
    /// The runtime of the connection has ended.
    Driver,
}

impl End {
    /// The error of a lane. It is never [`io::ErrorKind::BrokenPipe`], which stands for a single
    /// lane of several.
    pub(crate) fn error(self) -> io::Error {
        let (kind, text) = match self {
            Self::Closed => (io::ErrorKind::ConnectionReset, "the peer closed the connection"),
            Self::Silent => (io::ErrorKind::TimedOut, "nothing was heard for too long"),
            Self::Idle => (io::ErrorKind::TimedOut, "the connection was idle for too long"),
            Self::Flood => (
                io::ErrorKind::InvalidData,
                "the peer sent too many bytes before it proved its identity",
            ),
            Self::Long => (
                io::ErrorKind::InvalidData,
                "the peer sent a longer message than a=max-message-size permits",
            ),
            Self::Foreign => (
                io::ErrorKind::InvalidData,
                "the peer sent a message that this version does not know; update the older one",
            ),
            Self::Late => {
                (io::ErrorKind::InvalidData, "the peer sent a message after the end of its stream")
            }
            Self::Driver => (io::ErrorKind::NotConnected, "the connection has no runtime any more"),
        };
        io::Error::new(kind, text)
    }
}
