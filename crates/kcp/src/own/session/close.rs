//! The close of a session by either end.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::paths::Signal;
use super::transmit::Next;
use super::{PathUse, Session, Transmit};
use crate::own::wire::REASON;

/// Minimum interval of close packets to a peer that continues to send.
const AGAIN: Duration = Duration::from_millis(100);

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The machine-readable reason.
    pub code: u16,
    /// The human-readable reason: at most 200 bytes. A reason of the peer may have any encoding.
    pub reason: Bytes,
    /// Whether the peer has closed the session, not this end.
    pub by_peer: bool,
}

/// Whether the session is closed, and when the peer was informed.
#[derive(Debug, Default)]
pub(super) struct Closing {
    closed: Option<Closed>,
    /// Whether a close packet must be sent.
    is_due: bool,
    sent_at: Option<Instant>,
}

impl Closing {
    pub(super) const fn is_over(&self) -> bool {
        self.closed.is_some()
    }

    pub(super) const fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Records that the peer has closed the session. No reply is needed.
    pub(super) fn by_peer(&mut self, code: u16, reason: &[u8]) {
        let reason = Bytes::copy_from_slice(reason);
        self.closed = Some(Closed { code, reason, by_peer: true });
    }

    /// Handles a packet after the close: the peer may not have received the close packet.
    pub(super) fn heard(&mut self, now: Instant) {
        let is_told = |at: Instant| now < at + AGAIN;
        let by_peer = self.closed.as_ref().is_some_and(|closed| closed.by_peer);
        self.is_due |= !by_peer && !self.sent_at.is_some_and(is_told);
    }
}

impl Session {
    /// Ends the session in both directions at once: the next packet informs the peer of `code` and
    /// the first 200 bytes of `reason`, and no other packet follows it. Bytes that were not
    /// acknowledged may be lost. [`finish`](Self::finish) and [`is_flushed`](Self::is_flushed) are
    /// for an end without loss. A packet that arrives later causes another close packet, at most
    /// one per 100 ms.
    pub fn close(&mut self, _now: Instant, code: u16, reason: &[u8]) {
        if self.closing.is_over() {
            return;
        }
        let reason = Bytes::copy_from_slice(reason.get(..REASON).unwrap_or(reason));
        self.closing.closed = Some(Closed { code, reason, by_peer: false });
        self.closing.is_due = true;
    }

    /// How the session ended. `None` while the session is open. Bytes that arrived before can still
    /// be read.
    #[must_use]
    pub const fn closed(&self) -> Option<&Closed> {
        self.closing.closed()
    }

    pub(super) fn transmit_close(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let code = self.closing.closed().filter(|_| self.closing.is_due)?.code;
        self.closing.is_due = false;
        self.closing.sent_at = Some(now);
        let length = self.put(now, Next::Signal(Signal::Close(code)), None, out)?;
        Some(Transmit { length, path: PathUse::Current, is_ect: self.is_ect })
    }
}
