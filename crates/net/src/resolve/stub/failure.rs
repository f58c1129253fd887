//! Error texts for failed lookups, which name the servers.

use std::fmt::{self, Write as _};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use domain::base::iana::Rcode;
use rustix::io::Errno;

use super::conf::Conf;
use crate::resolve::answer::Failure;

/// Why a server has not answered a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) enum Trouble {
    /// No reply arrived within this time.
    Silent(Duration),
    /// The server replied with this error code.
    Refusal(Rcode),
    /// The server is neither authoritative for the name nor recursive.
    Lame,
    /// The reply over TCP is malformed.
    Garbled,
    /// The system refused to send, or the server's host rejected the packet.
    Unreachable(Errno),
}

impl Trouble {
    pub(super) fn of(error: &io::Error) -> Self {
        Self::Unreachable(Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(wait) => write!(f, "gave no answer within {} s", wait.as_secs()),
            Self::Refusal(Rcode::SERVFAIL) => {
                f.write_str("failed (SERVFAIL: it got no answer itself)")
            }
            Self::Refusal(Rcode::REFUSED) => f.write_str("refuses the question (REFUSED)"),
            Self::Refusal(code) => write!(f, "answered with the error {code}"),
            Self::Lame => f.write_str("does not look names up for this machine"),
            Self::Garbled => f.write_str("gave an answer that cannot be read"),
            Self::Unreachable(Errno::CONNREFUSED) => f.write_str("is no name server (port closed)"),
            Self::Unreachable(errno) => {
                write!(f, "cannot be reached ({})", io::Error::from(*errno))
            }
        }
    }
}

/// The failure if no server answers.
pub(super) fn no_answer(conf: &Conf, troubles: &[(SocketAddr, Trouble)]) -> Failure {
    // The caller distinguishes a lack of descriptors from other errors.
    let short = troubles.iter().find_map(|(_, trouble)| match trouble {
        Trouble::Unreachable(errno @ (Errno::MFILE | Errno::NFILE)) => Some(*errno),
        Trouble::Unreachable(_)
        | Trouble::Silent(_)
        | Trouble::Refusal(_)
        | Trouble::Lame
        | Trouble::Garbled => None,
    });
    if let Some(errno) = short {
        return Failure::new(&errno.into());
    }
    let mut text = String::new();
    for (number, (server, trouble)) in troubles.iter().enumerate() {
        let comma = if number == 0 { "the name server " } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{} {trouble}", server.ip());
    }
    if conf.is_unnamed {
        text.push_str(" (hint: /etc/resolv.conf names no server, so this machine was asked)");
    } else {
        text.push_str(" (hint: the name servers are those of /etc/resolv.conf)");
    }
    // Any other kind could be mistaken for an error of the connection to the host.
    Failure::new(&io::Error::other(text))
}

/// The failure if a server answers that the name has no record of the type `what`.
pub(super) fn no_record(
    what: &str,
    server: SocketAddr,
    exists: bool,
    searched: &[String],
) -> Failure {
    let mut text = if exists {
        format!("the name has no {what}, says the name server {}", server.ip())
    } else {
        format!("there is no such name, says the name server {}", server.ip())
    };
    if searched.len() > 1 {
        let _ = write!(text, " (asked for {})", searched.join(", "));
    }
    Failure::new(&io::Error::new(io::ErrorKind::NotFound, text))
}

/// The failure if the domain says that it does not offer the service (RFC 2782).
pub(super) fn no_service() -> Failure {
    let text = "the domain does not offer this service: the target of its SRV record is `.`";
    Failure::new(&io::Error::new(io::ErrorKind::NotFound, text))
}

/// The failure if the text is not a valid DNS name.
pub(super) fn no_name() -> Failure {
    let text = "this is no host name: a host name has letters, digits, hyphens and underscores \
                between its dots";
    Failure::new(&io::Error::new(io::ErrorKind::NotFound, text))
}

/// The failure if the lookup as a whole took too long.
pub(super) fn too_long(limit: Duration) -> Failure {
    let text = format!("the name servers gave no complete answer within {} s", limit.as_secs());
    Failure::new(&io::Error::other(text))
}

/// The failure if the task of the lookup ended without an answer.
pub(super) fn lost() -> Failure {
    Failure::new(&io::Error::other("the look-up ended without an answer"))
}
