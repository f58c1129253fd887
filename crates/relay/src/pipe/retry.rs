//! Retries the stream of a visitor that is refused before a byte has reached a target: another end
//! may serve the visitor. Its bytes are kept until the far side has answered or has taken them.
//!
//! ```text
//!   a refusal, before a byte of the far side ──────────────> handed over with its bytes
//!   the link ended or is silent, before a byte of either ──> handed over
//!   the same, after a request that may be repeated ────────> handed over
//!   the far side has answered or has taken the bytes, or
//!   they exceed [`KEPT_MOST`] ─────────────────────────────> the kept bytes are dropped
//! ```
//!
//! A refusal is a code that an end sends instead of a connection to a target, so no byte has
//! reached a target. [`ResetCode::Timeout`] is no refusal: the end of a connection has the same
//! code. Bytes sent over a link that ended may have reached a target. Only a request that may be
//! repeated is retried then ([`RetryHandler::may_repeat`]).

use std::fmt;

use bytes::{Bytes, BytesMut};
use proto::ResetCode;

use crate::{Held, Socket};

/// The maximum number of kept bytes: as many as a stream takes before its first credit.
const KEPT_MOST: usize = 16 << 10;

/// Takes a visitor that its stream has not served.
pub trait RetryHandler: fmt::Debug {
    /// Whether a visitor that has sent nothing should leave a silent link.
    fn is_worth_it(&self) -> bool;

    /// Whether these bytes may be sent to another end although a target may have received them.
    fn may_repeat(&self, _sent: &[u8]) -> bool {
        false
    }

    /// Takes the visitor. `socket`: `None` if its bytes pass through a layer. `first`: the bytes
    /// that were read from the visitor. The call must not block.
    fn retry(self: Box<Self>, socket: Option<Socket>, first: BytesMut, why: ResetCode);
}

/// The state of a visitor until its stream serves it.
pub(super) struct Unserved {
    handler: Box<dyn RetryHandler>,
    /// The bytes to send before those of the socket.
    pub(super) first: Bytes,
    /// The bytes that were sent.
    sent: BytesMut,
    /// More bytes were sent than are kept.
    is_over: bool,
    held: Held,
}

impl Unserved {
    pub(super) fn new(handler: Box<dyn RetryHandler>, first: BytesMut, held: Held) -> Box<Self> {
        held.set(first.capacity() as u64);
        let (sent, is_over) = (BytesMut::new(), false);
        Box::new(Self { handler, first: first.freeze(), sent, is_over, held })
    }

    /// Keeps a copy of bytes that are sent now. Returns false if they are too many to keep.
    pub(super) fn note(&mut self, bytes: &[u8]) -> bool {
        let all = self.sent.len() + bytes.len();
        if self.is_over || all > KEPT_MOST || !self.held.affords(bytes.len() as u64) {
            self.is_over = true;
            self.sent = BytesMut::new();
        } else {
            self.sent.extend_from_slice(bytes);
        }
        self.held.set((self.sent.capacity() + self.first.len()) as u64);
        !self.is_over
    }

    /// Whether bytes were sent.
    pub(super) fn has_sent(&self) -> bool {
        self.is_over || !self.sent.is_empty()
    }

    /// Whether the sent bytes may be sent to a target a second time.
    pub(super) fn may_repeat(&self) -> bool {
        !self.is_over && self.handler.may_repeat(&self.sent)
    }

    /// Whether another end may serve the visitor after a reset with this code.
    pub(super) fn may_go_on(&self, code: ResetCode) -> bool {
        match code {
            ResetCode::Refused
            | ResetCode::Unreachable
            | ResetCode::Denied
            | ResetCode::Limit
            | ResetCode::Unknown
            | ResetCode::Moved => !self.is_over,
            ResetCode::Shutdown | ResetCode::Internal => !self.has_sent() || self.may_repeat(),
            ResetCode::Aborted | ResetCode::Timeout | ResetCode::Other(_) => false,
        }
    }

    /// Whether the visitor should leave a silent link.
    pub(super) fn leaves_silence(&self) -> bool {
        (!self.has_sent() || self.may_repeat()) && self.handler.is_worth_it()
    }

    /// Hands the visitor over. `rest`: bytes that were read but not sent.
    pub(super) fn hand_over(self, socket: Option<Socket>, rest: &[u8], why: ResetCode) {
        let Self { handler, first, mut sent, .. } = self;
        sent.extend_from_slice(&first);
        sent.extend_from_slice(rest);
        handler.retry(socket, sent, why);
    }
}
