//! What a driver counts.

use kcp_go::session;

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
    /// Datagrams that had come or left before.
    pub replayed: u64,
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

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            sessions,
            begun,
            limited,
            datagrams_in,
            unreadable,
            replayed,
            foreign,
            datagrams_out,
            runs_out,
            refused,
            turns,
            all,
        } = other;
        self.sessions += sessions;
        self.begun += begun;
        self.limited += limited;
        self.datagrams_in += datagrams_in;
        self.unreadable += unreadable;
        self.replayed += replayed;
        self.foreign += foreign;
        self.datagrams_out += datagrams_out;
        self.runs_out += runs_out;
        self.refused += refused;
        self.turns += turns;
        self.all += all;
    }
}
