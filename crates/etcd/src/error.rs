//! Why a call failed, and whether its request may have been carried out nevertheless.

use std::time::Duration;

use cluster::engine::NoReply;

/// The most characters of a text of the peer that an error repeats.
const SHOWN: usize = 200;

/// A status of gRPC (google/rpc/code.proto), by which errors of etcd are told apart: their HTTP
/// status and their shape differ by the version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// The gateway gives no better number.
    pub const UNKNOWN: Self = Self(2);
    /// The request is invalid: too many operations, a key written twice, a wrong password.
    pub const INVALID: Self = Self(3);
    /// No answer of the members to each other in time.
    pub const LATE: Self = Self(4);
    /// The lease does not exist.
    pub const MISSING: Self = Self(5);
    /// The user has no right to the key.
    pub const DENIED: Self = Self(7);
    /// The store is full (alarm NOSPACE) and takes no writes, or has too many requests.
    pub const EXHAUSTED: Self = Self(8);
    /// The state of the store does not fit: authentication is off.
    pub const UNMET: Self = Self(9);
    /// The revision was compacted, or is in the future.
    pub const OUT_OF_RANGE: Self = Self(11);
    /// No leader, no quorum, or the member stops.
    pub const UNAVAILABLE: Self = Self(14);
    /// The token is unknown: it expired, or the member was restarted.
    pub const UNAUTHENTICATED: Self = Self(16);

    /// The status of this name in the texts of gRPC.
    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "InvalidArgument" => Self::INVALID,
            "DeadlineExceeded" => Self::LATE,
            "NotFound" => Self::MISSING,
            "PermissionDenied" => Self::DENIED,
            "ResourceExhausted" => Self::EXHAUSTED,
            "FailedPrecondition" => Self::UNMET,
            "OutOfRange" => Self::OUT_OF_RANGE,
            "Unavailable" => Self::UNAVAILABLE,
            "Unauthenticated" => Self::UNAUTHENTICATED,
            _ => Self::UNKNOWN,
        }
    }
}

/// A call without its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("etcd at {member}: {reason}")]
pub struct Error {
    /// Whether the request may have been carried out. After [`NoReply::Unknown`] of a transaction
    /// the caller reads before it decides anew.
    pub failure: NoReply,
    /// The address of the member that was asked last.
    pub member: String,
    /// What happened there.
    pub reason: Reason,
}

/// What went wrong at a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is no connection.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The connection ended before the answer was complete.
    #[error("the connection ended: {0}")]
    Broken(String),
    /// A watch heard nothing for longer than its caller allows.
    #[error("the watch was silent for {0:?}")]
    Silent(Duration),
    /// The answer has more bytes than the caller accepts.
    #[error("its answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer is none of the gateway of etcd.
    #[error(
        "HTTP status {status}, and no answer of etcd ({what}): is this the client port, and is \
         enable-grpc-gateway on?"
    )]
    Nonsense {
        /// The HTTP status.
        status: u16,
        /// What is wrong with the answer, without its content.
        what: String,
    },
    /// etcd answers with an error.
    #[error("{text} (code {})", code.0)]
    Says {
        /// The kind of the error.
        code: Code,
        /// The words of etcd.
        text: String,
    },
    /// The store takes no writes: its alarm NOSPACE is on until somebody makes space and disarms
    /// the alarm, or it has too many requests.
    #[error("the store takes no request now: {text}")]
    Full {
        /// The words of etcd.
        text: String,
    },
    /// The user was not logged in.
    #[error("the log-in failed: {text} (code {})", code.0)]
    LogIn {
        /// The kind of the error.
        code: Code,
        /// The words of etcd.
        text: String,
    },
    /// The member belongs to another cluster of etcd than the member that answered first.
    #[error("it belongs to cluster {found:x}, and the first answer came from cluster {expected:x}")]
    OtherCluster {
        /// The id of the cluster that answered first.
        expected: u64,
        /// The id of the cluster of this member.
        found: u64,
    },
    /// The transaction has more operations than etcd accepts.
    #[error("the transaction has more than {0} operations")]
    TooManyOperations(usize),
}

impl Reason {
    /// An error that etcd answered with.
    pub(crate) fn says(code: Code, text: &str) -> Self {
        let text = shown(text);
        // Other texts of this code are of gRPC, about an answer that was too large.
        if code == Code::EXHAUSTED && text.starts_with("etcdserver: ") {
            return Self::Full { text };
        }
        Self::Says { code, text }
    }

    /// Whether the request was certainly not carried out, and no other member would accept it.
    pub(crate) fn refuses(&self) -> bool {
        match self {
            Self::Says { code, .. } | Self::LogIn { code, .. } => matches!(
                *code,
                Code::INVALID
                    | Code::MISSING
                    | Code::DENIED
                    | Code::UNMET
                    | Code::OUT_OF_RANGE
                    | Code::UNAUTHENTICATED
            ),
            Self::Full { .. } | Self::TooManyOperations(_) => true,
            Self::Unreachable(_)
            | Self::Late(_)
            | Self::Broken(_)
            | Self::Silent(_)
            | Self::TooLarge(_)
            | Self::Nonsense { .. }
            | Self::OtherCluster { .. } => false,
        }
    }

    /// Whether a new token may help. An invalid or expired token has a code of its own; what etcd
    /// says of a missing token (authentication was turned on meanwhile) and of a token that is
    /// older than the last change of users shares its code with invalid requests.
    pub(crate) fn wants_token(&self) -> bool {
        let Self::Says { code, text } = self else { return false };
        *code == Code::UNAUTHENTICATED
            || (*code == Code::INVALID
                && (text == "etcdserver: user name is empty"
                    || text == "etcdserver: revision of auth store is old"))
    }
}

/// A request without an answer at one member.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// The request may have reached the member.
    pub(crate) is_sent: bool,
    pub(crate) reason: Reason,
}

impl Unanswered {
    /// The request did certainly not leave.
    pub(crate) const fn unsent(reason: Reason) -> Self {
        Self { is_sent: false, reason }
    }

    /// The request may have arrived.
    pub(crate) const fn sent(reason: Reason) -> Self {
        Self { is_sent: true, reason }
    }
}

/// A text of the peer for a line of a log: bounded, without control characters.
pub(crate) fn shown(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(SHOWN).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_peer_are_bounded_and_fit_a_line_of_a_log() {
        let text = shown(&format!("a\nb\u{1b}[1m{}", "ä".repeat(1000)));
        assert!(text.starts_with("a b [1mä"), "{text}");
        assert_eq!(text.chars().count(), SHOWN);
    }

    #[test]
    fn a_full_store_is_told_from_an_answer_that_is_too_large() {
        let full = Reason::says(Code(8), "etcdserver: mvcc: database space exceeded");
        assert!(matches!(full, Reason::Full { .. }) && full.refuses(), "{full:?}");
        // A transaction with this answer was carried out.
        let large = Reason::says(Code(8), "grpc: received message larger than max");
        assert!(!large.refuses(), "{large:?}");
    }

    #[test]
    fn what_members_say_to_each_other_is_no_refusal() {
        for code in [1, 2, 4, 10, 13, 14, 99] {
            assert!(!Reason::says(Code(code), "etcdserver: request timed out").refuses());
        }
    }
}
