//! Queries by which a driver determines whether a session can read or write.

use super::Session;

impl Session {
    /// Whether [`read`](Self::read) returns data, or the stream has ended.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.incoming.is_readable() || self.is_finished()
    }

    /// Bytes of the stream that were written and were not sent yet.
    #[must_use]
    pub const fn unsent(&self) -> usize {
        self.outgoing.unsent()
    }

    /// Bytes that may be in flight.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.controller.window(self.round_trip())
    }

    /// Whether a datagram of the user waits to be read.
    #[must_use]
    pub fn has_datagram(&self) -> bool {
        !self.datagrams_in.is_empty()
    }
}
