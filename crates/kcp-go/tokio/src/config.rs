//! The settings of streams and listeners.

use std::time::Duration;

use kcp_go::session;

/// The settings of a stream or a listener beside those of its sessions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of each session. The conversation in it is replaced by that of the stream.
    pub session: session::Config,
    /// How long the end of a stream waits until the peer has acknowledged what was written.
    pub linger: Duration,
    /// What peers of a listener may cost. A stream that connects does not use it.
    pub limits: Limits,
}

impl Config {
    /// These sessions, a linger of 5 s, and the default limits.
    #[must_use]
    pub const fn new(session: session::Config) -> Self {
        Self { session, linger: Duration::from_secs(5), limits: Limits::new() }
    }
}

/// What the peers of a listener may cost it.
///
/// kcp-go has none of these limits: there any valid datagram costs 275 KB of memory, and one that
/// was captured ends a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most sessions at a time. Others are refused without an answer.
    pub sessions: usize,
    /// The most sessions that wait for [`Listener::accept`](crate::Listener::accept). A peer whose
    /// session is refused tries again, because it repeats its first datagram.
    pub backlog: usize,
    /// New sessions per second from one address of IPv4 or one /64 of IPv6, and as many at once.
    pub per_source: u32,
    /// A session ends after so long without a datagram from its peer.
    pub idle: Duration,
    /// A new conversation from the address of a live session replaces it only when the session has
    /// heard nothing for so long.
    pub quiet: Duration,
}

impl Limits {
    /// 4,096 sessions, 128 waiting, 32 per second and source, idle for at most 5 minutes, 10 s
    /// quiet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sessions: 4096,
            backlog: 128,
            per_source: 32,
            idle: Duration::from_secs(300),
            quiet: Duration::from_secs(10),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}
