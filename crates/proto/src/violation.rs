//! Violations of the protocol: the rule, the blame and the scope.

use crate::{ResetCode, StreamId};

/// The scope of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only this stream is aborted; the link continues.
    Stream(StreamId),
    /// The link ends.
    Link,
}

/// The end that broke the rule, as seen from the end that detected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// This end, by a defect.
    Local,
    /// The far end.
    Peer,
}

/// Which rule was broken. GOAWAY carries the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ViolationCode {
    /// A frame kind that is unknown and not marked ignorable.
    #[error("unknown frame kind")]
    UnknownKind,
    /// A length that is invalid for the kind.
    #[error("bad frame length")]
    BadLength,
    /// A frame for a stream that was never opened, or whose id belongs to the other opener.
    #[error("frame for a stream that was never opened")]
    BadStream,
    /// The bytes before this payload are missing.
    #[error("gap in a stream")]
    Gap,
    /// More bytes than the receiver granted.
    #[error("credit exceeded")]
    Credit,
    /// Credit or consumption beyond what was sent, or an end that contradicts an earlier one.
    #[error("contradiction")]
    Contradiction,
    /// The content of an OPEN or of a control message cannot be read.
    #[error("unreadable content")]
    Malformed,
    /// RESUME where it is not allowed, or frames before it.
    #[error("RESUME out of place")]
    BadResume,
    /// More refused streams or unsent replies than a well-behaved peer can cause.
    #[error("flood")]
    Flood,
}

impl ViolationCode {
    /// The number on the wire.
    #[must_use]
    pub const fn raw(self) -> u16 {
        match self {
            Self::UnknownKind => 0x101,
            Self::BadLength => 0x102,
            Self::BadStream => 0x103,
            Self::Gap => 0x105,
            Self::Credit => 0x106,
            Self::Contradiction => 0x107,
            Self::Malformed => 0x108,
            Self::BadResume => 0x109,
            Self::Flood => 0x10a,
        }
    }
}

/// A broken rule with its initiator and scope. Invalid input produces nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol violation: {code}")]
pub struct Violation {
    /// The stream or the link that ends by the violation.
    pub scope: Scope,
    /// The broken rule.
    pub code: ViolationCode,
    /// The end that broke the rule.
    pub initiator: Initiator,
}

impl Violation {
    /// The peer broke a rule of the whole link.
    #[must_use]
    pub const fn link(code: ViolationCode) -> Self {
        Self { scope: Scope::Link, code, initiator: Initiator::Peer }
    }

    /// The peer broke a rule of one stream.
    #[must_use]
    pub const fn stream(id: StreamId, code: ViolationCode) -> Self {
        Self { scope: Scope::Stream(id), code, initiator: Initiator::Peer }
    }

    /// The code with which a stream in scope is reset. The only mapping of violations to frames: a
    /// stream gets RESET and STOP with this code, a link GOAWAY with `code.raw()`.
    #[must_use]
    pub const fn reset_code(self) -> ResetCode {
        match self.code {
            ViolationCode::Malformed => ResetCode::Unknown,
            ViolationCode::UnknownKind
            | ViolationCode::BadLength
            | ViolationCode::BadStream
            | ViolationCode::Gap
            | ViolationCode::Credit
            | ViolationCode::Contradiction
            | ViolationCode::BadResume
            | ViolationCode::Flood => ResetCode::Internal,
        }
    }
}
