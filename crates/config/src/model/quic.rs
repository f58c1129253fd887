//! How `quic://` sends.

use super::{Changed, changes};
use crate::Size;

/// How this end of `quic://` sends, and its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quic {
    /// How fast this end sends. The other end's is its own.
    pub congestion: Congestion,
    /// Largest UDP payload that is tried, in bytes, 1200 to 65527; at 1200 nothing is tried.
    pub mtu: u16,
    /// Of each UDP socket, in bytes; the system may grant less.
    pub receive_buffer: Size,
    /// As `receive_buffer`.
    pub send_buffer: Size,
}

impl Quic {
    pub(super) fn differs(self, other: Self) -> impl Iterator<Item = Changed> {
        let Self { congestion, mtu, receive_buffer, send_buffer } = self;
        changes([
            (congestion != other.congestion, Changed::reconnect("quic.congestion")),
            (mtu != other.mtu, Changed::reconnect("quic.mtu")),
            (receive_buffer != other.receive_buffer, Changed::restart("quic.receive_buffer")),
            (send_buffer != other.send_buffer, Changed::restart("quic.send_buffer")),
        ])
    }

    /// Sockets live as long as the process.
    pub(super) fn keep(&mut self, running: Self) {
        self.receive_buffer = running.receive_buffer;
        self.send_buffer = running.send_buffer;
    }
}

/// Congestion control of `quic.congestion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// By a model of the path (BBR): loss alone does not slow it down.
    #[default]
    Bbr,
    /// By loss (RFC 9438).
    Cubic,
}

impl Congestion {
    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bbr => "bbr",
            Self::Cubic => "cubic",
        }
    }
}
