//! The reasons why a connection ended, and the errors of failed handshakes and dead connections.

use std::io;

use transport::{CarrierError, Side};

/// Our codes in close packets: `CLEAN` when both directions of the lane had ended, otherwise
/// `ABANDONED`.
pub(crate) const CLEAN: u16 = 0;
pub(crate) const ABANDONED: u16 = 1;

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This end closed it.
    Local,
    /// The peer closed it.
    Peer { code: u16 },
    /// The peer no longer knows it.
    Reset,
    /// The peer has not answered.
    Silent,
    /// The driver is gone, with its runtime or its socket.
    Driver,
}

impl End {
    /// Whether the peer closed after it had received our end and we had acknowledged its end.
    pub(crate) const fn is_clean(&self) -> bool {
        matches!(self, Self::Peer { code: CLEAN })
    }

    /// The error of a connection that was open. It is never [`io::ErrorKind::BrokenPipe`], which
    /// stands for a single lane.
    pub(crate) fn error(&self) -> io::Error {
        let (kind, text) = match self {
            Self::Local => (io::ErrorKind::NotConnected, "the connection is closed"),
            Self::Peer { .. } => (io::ErrorKind::ConnectionReset, "the peer closed the connection"),
            Self::Reset => (
                io::ErrorKind::ConnectionReset,
                "the peer does not know this connection any more; was it restarted?",
            ),
            Self::Silent => (io::ErrorKind::TimedOut, "nothing was heard for too long"),
            Self::Driver => {
                (io::ErrorKind::NotConnected, "the UDP socket of the connection is closed")
            }
        };
        io::Error::new(kind, text)
    }
}

/// The error when ALPN (RFC 7301) found no common protocol.
pub(crate) fn other_protocol(side: Side) -> CarrierError {
    CarrierError::Tls(format!("{} does not speak tunnel/1 on this port (ALPN)", peer(side)))
}

/// The error when the peer speaks another version of the handshake.
pub(crate) fn other_version(theirs: u8) -> CarrierError {
    CarrierError::Tls(format!(
        "the server speaks version {theirs} of kcp://, and this end version {}; update the older \
         one of both",
        crate::wire::VERSION
    ))
}

/// The far end, as text.
pub(crate) const fn peer(side: Side) -> &'static str {
    match side {
        Side::Client => "the server",
        Side::Server => "the client",
    }
}
