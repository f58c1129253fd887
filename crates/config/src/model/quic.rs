//! The model of the QUIC settings.

use super::change::{Changed, changes};
use crate::Size;

/// Settings of this side's QUIC connections and UDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quic {
    /// Congestion control of this side. The other side has its own setting.
    pub congestion: Congestion,
    /// Largest UDP payload that MTU discovery tries, in bytes, 1200 to 65527. 1200 disables MTU
    /// discovery.
    pub mtu: u16,
    /// Receive buffer of each UDP socket, in bytes. The system may grant less.
    pub receive_buffer: Size,
    /// Send buffer of each UDP socket, in bytes. The system may grant less.
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

    /// Takes the sizes of the buffers from `running`, because the sockets live as long as the
    /// process.
    pub(super) fn keep(&mut self, running: Self) {
        self.receive_buffer = running.receive_buffer;
        self.send_buffer = running.send_buffer;
    }
}

/// Congestion control of `quic.congestion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// BBR: follows a model of the path, so loss alone does not slow it down.
    #[default]
    Bbr,
    /// CUBIC: reacts to loss (RFC 9438).
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
