//! Why a session ends, and which errors of a socket end it.

use std::io::{self, ErrorKind};
use std::time::Duration;

/// What the system calls a lack of buffers: Linux and the BSDs have no `ErrorKind` for it.
const ENOBUFS: &[i32] = if cfg!(target_os = "linux") { &[105] } else { &[55] };

/// Whether an error of a socket passes: it says something about the datagram or the moment, not
/// about the socket. The datagram counts as lost on the way.
///
/// | error | why it passes |
/// |---|---|
/// | `ENOBUFS`, `ENOMEM`, `EAGAIN` | a queue of the system is full |
/// | `EPERM`, `EACCES` | a firewall refuses, and may be changed |
/// | `ECONNREFUSED`, `ECONNRESET` | ICMP reports an earlier datagram: the peer may start yet |
/// | `EHOSTUNREACH`, `ENETUNREACH`, `ENETDOWN` | routes come and go |
///
/// A peer for which it does not pass is found by its silence.
#[must_use]
pub fn is_transient(error: &io::Error) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the system has many more errors")]
    match error.kind() {
        ErrorKind::WouldBlock
        | ErrorKind::Interrupted
        | ErrorKind::OutOfMemory
        | ErrorKind::PermissionDenied
        | ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown => true,
        _ => error.raw_os_error().is_some_and(|code| ENOBUFS.contains(&code)),
    }
}

/// Why a session has ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The peer owes an answer for so long.
    Dead(Duration),
    /// Nothing has arrived for so long.
    Idle(Duration),
    /// Its peer began another conversation.
    Replaced,
    /// The driver has a session with this peer already.
    Taken,
    /// The stream is gone, and nothing more is to be sent.
    Left,
    /// The socket failed.
    Socket(ErrorKind, String),
    /// The driver was dropped.
    Stopped,
}

impl End {
    /// The socket failed while it was `doing` something.
    pub(crate) fn socket(doing: &str, error: &io::Error) -> Self {
        Self::Socket(error.kind(), format!("{doing}: {error}"))
    }

    pub(crate) fn error(&self) -> io::Error {
        match self {
            Self::Dead(silence) => {
                let text = format!("the peer has not answered for {} s", silence.as_secs_f64());
                io::Error::new(ErrorKind::TimedOut, text)
            }
            Self::Idle(silence) => {
                let text = format!("nothing has arrived for {} s", silence.as_secs_f64());
                io::Error::new(ErrorKind::TimedOut, text)
            }
            Self::Replaced => {
                io::Error::new(ErrorKind::ConnectionReset, "the peer has begun a new conversation")
            }
            Self::Taken => io::Error::new(
                ErrorKind::AddrInUse,
                "the socket has a session with this peer already",
            ),
            Self::Left => io::Error::new(ErrorKind::NotConnected, "the stream is closed"),
            Self::Socket(kind, text) => io::Error::new(*kind, text.clone()),
            Self::Stopped => io::Error::new(
                ErrorKind::ConnectionAborted,
                "the task that drives the socket has ended",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_moment_pass_and_others_do_not() {
        // Linux: EPERM, EAGAIN, ENOMEM, ENETDOWN, ENETUNREACH, ENOBUFS, ECONNREFUSED, EHOSTUNREACH.
        #[cfg(target_os = "linux")]
        for code in [1, 11, 12, 100, 101, 105, 111, 113] {
            assert!(is_transient(&io::Error::from_raw_os_error(code)), "{code}");
        }
        // EBADF, EINVAL, EMSGSIZE, EAFNOSUPPORT.
        #[cfg(target_os = "linux")]
        for code in [9, 22, 90, 97] {
            assert!(!is_transient(&io::Error::from_raw_os_error(code)), "{code}");
        }
    }
}
