//! The events of streams that a service or a forward receives: whether the target serves, and, if
//! the access log is enabled, how each stream ended.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use h1::Doubt;
use proto::ResetCode;
use tokio::time::Instant;

use crate::{DialError, Visitor};

/// Receives the events of the streams of a service (or of a forward) on one worker. There is no
/// event per byte or per frame.
pub trait Watcher: fmt::Debug {
    /// Called when this side has dialled the target.
    fn dialled(&self, outcome: Result<(), &DialError>);

    /// Called when the far side refused a stream before it sent a byte.
    fn refused(&self, code: ResetCode);

    /// Called when the far side serves a stream: it sent a byte, or an end.
    fn served(&self);

    /// Logs a failed dial, at most once per period. `failures` counts all failed dials with this
    /// reason.
    fn complain_of_dial(&self, error: &DialError, failures: u64);

    /// Logs a refused stream, at most once per period. `refused` counts all streams that were
    /// refused for this reason.
    fn complain_of_refusal(&self, code: ResetCode, refused: u64);

    /// Logs a response of the target that is not forwarded to its visitor, at most once per period.
    fn complain_of_response(&self, doubt: Doubt);

    /// Whether a stream that begins now is reported to [`Self::ended`].
    fn wants_visits(&self) -> bool;

    /// Called when a stream has ended.
    fn ended(&self, visit: &Visit);
}

/// The record of a stream, for the access log and for the list of streams.
#[derive(Debug)]
pub struct Visit {
    /// The visitor.
    pub visitor: Visitor,
    since: Instant,
    read: Cell<u64>,
    written: Cell<u64>,
    end: Cell<End>,
    purpose: Purpose,
}

/// The purpose of a [`Visit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The access log.
    Log,
    /// The list of streams: this side has no socket with the address of the visitor.
    List,
    /// Both.
    Both,
}

impl Purpose {
    /// The purpose of the record of a stream; `None`: it needs none.
    pub(crate) const fn of(is_logged: bool, is_listed: bool) -> Option<Self> {
        match (is_logged, is_listed) {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Log),
            (false, true) => Some(Self::List),
            (false, false) => None,
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides sent their end.
    Finished,
    /// The socket of this side failed, or was reset.
    Socket,
    /// The far side reset the stream after it had served the stream.
    FarSide(ResetCode),
    /// The far side, or this side, refused the stream before any byte.
    Refused(ResetCode),
    /// A time-out ended the stream. The text continues a message after the word "time-out".
    Timeout(&'static str),
    /// The link or the daemon ended first.
    Cut,
}

impl End {
    /// No byte moved for the time-out.
    pub const IDLE: Self = Self::Timeout("without a byte");
}

impl Visit {
    pub(crate) fn new(visitor: Visitor, purpose: Purpose) -> Self {
        let (read, written) = Default::default();
        Self { visitor, since: Instant::now(), read, written, end: Cell::new(End::Cut), purpose }
    }

    /// Whether the stream is written to the access log.
    pub(crate) const fn is_logged(&self) -> bool {
        matches!(self.purpose, Purpose::Log | Purpose::Both)
    }

    /// The address for the list of streams, if no socket of this side has it.
    pub(crate) fn listed(&self) -> Option<SocketAddr> {
        self.visitor.address().filter(|_| matches!(self.purpose, Purpose::List | Purpose::Both))
    }

    /// The number of bytes that were read from the socket of this side.
    #[must_use]
    pub const fn read(&self) -> u64 {
        self.read.get()
    }

    /// The number of bytes that were written to the socket of this side.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written.get()
    }

    /// The time since the beginning of the stream.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.since.elapsed()
    }

    /// How the stream ended.
    #[must_use]
    pub const fn end(&self) -> End {
        self.end.get()
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.read.set(self.read.get().wrapping_add(bytes as u64));
    }

    pub(crate) fn count_written(&self, bytes: usize) {
        self.written.set(self.written.get().wrapping_add(bytes as u64));
    }

    /// Records the end. The first record counts, because later ones are its consequences.
    pub(crate) fn note(&self, end: End) {
        if self.end.get() == End::Cut {
            self.end.set(end);
        }
    }
}
