//! The codes of RESET, STOP and GOAWAY. `SPEC.md`, section "Codes", has the same table.

use std::fmt;

/// Why a direction of a stream was aborted (RESET), or why the receiver discards its bytes (STOP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetCode {
    /// The socket behind the stream was reset, or closed with bytes unread.
    Aborted,
    /// The target refused the connection.
    Refused,
    /// The target did not answer in time.
    Timeout,
    /// No route to the target, or its name does not resolve.
    Unreachable,
    /// The peer has no right to this target or service.
    Denied,
    /// A limit of streams, memory or descriptors is reached.
    Limit,
    /// There is no such service.
    Unknown,
    /// The link ended under the stream, or the process is going away.
    Shutdown,
    /// The sender has a defect. Its log has the details.
    Internal,
    /// The client of a [`Hop`](crate::Target::Hop) is not at this node any more, or another process
    /// of it is in charge.
    Moved,
    /// A code of a newer peer.
    Other(u16),
}

impl ResetCode {
    /// The number on the wire.
    #[must_use]
    pub const fn raw(self) -> u16 {
        match self {
            Self::Aborted => 1,
            Self::Refused => 2,
            Self::Timeout => 3,
            Self::Unreachable => 4,
            Self::Denied => 5,
            Self::Limit => 6,
            Self::Unknown => 7,
            Self::Shutdown => 8,
            Self::Internal => 9,
            Self::Moved => 10,
            Self::Other(n) => n,
        }
    }

    /// The code with this number; every number is a code.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            1 => Self::Aborted,
            2 => Self::Refused,
            3 => Self::Timeout,
            4 => Self::Unreachable,
            5 => Self::Denied,
            6 => Self::Limit,
            7 => Self::Unknown,
            8 => Self::Shutdown,
            9 => Self::Internal,
            10 => Self::Moved,
            n => Self::Other(n),
        }
    }
}

impl ResetCode {
    /// A word for programs: labels, JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::Limit => "limit",
            Self::Unknown => "unknown_service",
            Self::Shutdown => "shutdown",
            Self::Internal => "internal",
            Self::Moved => "moved",
            Self::Other(_) => "other",
        }
    }
}

impl fmt::Display for ResetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "connection aborted",
            Self::Refused => "connection refused",
            Self::Timeout => "connect timed out",
            Self::Unreachable => "target unreachable",
            Self::Denied => "not allowed",
            Self::Limit => "limit reached",
            Self::Unknown => "no such service",
            Self::Shutdown => "link ended",
            Self::Internal => "internal error",
            Self::Moved => "the client is at another node",
            Self::Other(n) => return write!(f, "code {n}"),
        })
    }
}
/// Why an end sends GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoAwayReason {
    /// The link is to retire. From a server: the client must establish another link. From a client:
    /// the client has another link, and opens no more streams on this link.
    Retire,
    /// The sender ends the link now.
    Closed,
    /// From a server: the client has sent [`GoAwayReason::Retire`], and the server has no stream
    /// left.
    Done,
    /// The sender ends the link because the receiver violated the protocol: the number of a
    /// [`crate::ViolationCode`], perhaps of a newer version.
    Violation(u16),
}

impl GoAwayReason {
    /// The number on the wire. The numbers of violations begin at 0x101.
    #[must_use]
    pub const fn raw(self) -> u16 {
        match self {
            Self::Retire => 0,
            Self::Closed => 1,
            Self::Done => 2,
            Self::Violation(code) => code,
        }
    }

    /// The reason with this number; every number is a reason.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            0 => Self::Retire,
            1 => Self::Closed,
            2 => Self::Done,
            code => Self::Violation(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goaway_reasons_survive_their_numbers() {
        for raw in (0..300).chain([u16::MAX]) {
            assert_eq!(GoAwayReason::from_raw(raw).raw(), raw);
        }
        assert_eq!(GoAwayReason::from_raw(0x101), GoAwayReason::Violation(0x101));
    }
}
