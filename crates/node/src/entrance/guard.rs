//! A listener that closes with its entrance.

use std::os::fd::OwnedFd;

use ops::socket_file::SocketFile;
use relay::{Listening, ListeningFlows, ListeningUnix};

/// Closes the listener on drop.
#[derive(Debug)]
pub(super) enum Guard {
    Tcp(Listening),
    Udp(ListeningFlows),
    /// The file is removed first: a visitor that connects meanwhile finds no file, instead of a
    /// socket from which nobody accepts.
    Unix(
        #[expect(dead_code, reason = "held for its drop")] Option<SocketFile>,
        #[expect(dead_code, reason = "held for its drop")] ListeningUnix,
    ),
}

impl Guard {
    /// A duplicate of the socket of a port. `None`: it is a Unix socket, or this process has no
    /// descriptor left.
    pub(super) fn duplicate(&self) -> Option<OwnedFd> {
        match self {
            Self::Tcp(listening) => listening.duplicate().ok(),
            Self::Udp(listening) => listening.duplicate().ok(),
            Self::Unix(..) => None,
        }
    }
}
