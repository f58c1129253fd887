//! What a driver counts.

use kcp::session;

/// Sums since a driver began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Sessions that exist.
    pub sessions: u64,
    /// Sessions that began, of peers and here.
    pub begun: u64,
    /// Sessions that were refused by one of the [limits](crate::Limits), each time a peer tried.
    pub limited: u64,
    /// Datagrams that arrived.
    pub datagrams_in: u64,
    /// Datagrams that were not sealed with the key, or were no datagrams of KCP.
    pub unreadable: u64,
    /// Datagrams of nobody: of an unknown address without a beginning, or of another conversation
    /// than that of a live session.
    pub foreign: u64,
    /// Datagrams that left.
    pub datagrams_out: u64,
    /// Calls in which they left.
    pub runs_out: u64,
    /// Errors of the socket that passed ([`is_transient`](crate::is_transient)).
    pub refused: u64,
    /// How often the driver was woken.
    pub turns: u64,
    /// The sums of all sessions, also of those that have ended.
    pub all: session::Counters,
}
