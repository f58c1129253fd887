//! The model of the KCP settings. A preset is resolved: every field has its effective value.

use std::fmt;

use super::change::{Changed, changes};
use crate::{Rate, Size, Span};

/// Settings of this side's KCP sessions and UDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kcp {
    /// The preset in the file. The other fields have its values, unless the file overrides them.
    pub preset: KcpPreset,
    /// What limits the rate of this side. The other side has its own setting.
    pub congestion: KcpCongestion,
    /// Forward error correction of the packets that this side sends.
    pub fec: KcpFec,
    /// Largest number of unacknowledged segments, 1 to 65,535.
    pub send_window: u16,
    /// Largest number of received segments that wait for the reader, 1 to 65,535.
    pub receive_window: u16,
    /// Longest delay of an acknowledgement, 0 to 100 ms.
    pub ack_delay: Span,
    /// Smallest retransmission timeout, 10 ms to 1 s.
    pub least_timeout: Span,
    /// Largest UDP payload that MTU discovery tries, in bytes, 1200 to 16336. 1200 disables MTU
    /// discovery.
    pub mtu: u16,
    /// Receive buffer of each UDP socket, in bytes. The system may grant less.
    pub receive_buffer: Size,
    /// Send buffer of each UDP socket, in bytes. The system may grant less.
    pub send_buffer: Size,
}

impl Kcp {
    pub(super) fn differs(self, other: Self) -> impl Iterator<Item = Changed> {
        let Self {
            preset,
            congestion,
            fec,
            send_window,
            receive_window,
            ack_delay,
            least_timeout,
            mtu,
            receive_buffer,
            send_buffer,
        } = self;
        // A fixed rate counts as a congestion control, so a change between a rate and an algorithm
        // changes both keys.
        let name = congestion.name() != other.congestion.name();
        let rate = congestion.rate() != other.congestion.rate();
        changes([
            (preset != other.preset, Changed::reconnect("kcp.preset")),
            (name, Changed::reconnect("kcp.congestion")),
            (rate, Changed::reconnect("kcp.rate")),
            (fec != other.fec, Changed::reconnect("kcp.fec")),
            (send_window != other.send_window, Changed::reconnect("kcp.send_window")),
            (receive_window != other.receive_window, Changed::reconnect("kcp.receive_window")),
            (ack_delay != other.ack_delay, Changed::reconnect("kcp.ack_delay")),
            (least_timeout != other.least_timeout, Changed::reconnect("kcp.least_timeout")),
            (mtu != other.mtu, Changed::reconnect("kcp.mtu")),
            (receive_buffer != other.receive_buffer, Changed::restart("kcp.receive_buffer")),
            (send_buffer != other.send_buffer, Changed::restart("kcp.send_buffer")),
        ])
    }

    /// Takes the sizes of the buffers from `running`, because the sockets live as long as the
    /// process.
    pub(super) fn keep(&mut self, running: Self) {
        self.receive_buffer = running.receive_buffer;
        self.send_buffer = running.send_buffer;
    }
}

/// A named set of values, `kcp.preset`. All but `auto` are named after kcptun's modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KcpPreset {
    /// Congestion control and FEC that follow the path.
    #[default]
    Auto,
    /// kcptun's `normal`: nodelay 0, interval 40, resend 2, nc 1.
    Normal,
    /// kcptun's `fast`: nodelay 0, interval 30, resend 2, nc 1.
    Fast,
    /// kcptun's `fast2`: nodelay 1, interval 20, resend 2, nc 1.
    Fast2,
    /// kcptun's `fast3`: nodelay 1, interval 10, resend 2, nc 1.
    Fast3,
}

impl KcpPreset {
    /// All presets, the default first.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Normal, Self::Fast, Self::Fast2, Self::Fast3];

    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Normal => "normal",
            Self::Fast => "fast",
            Self::Fast2 => "fast2",
            Self::Fast3 => "fast3",
        }
    }
}

/// What limits the rate of a KCP session: `kcp.congestion`, or `kcp.rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KcpCongestion {
    /// BBR: follows a model of the path, so loss alone does not slow it down. Paced.
    Bbr,
    /// The window of KCP with `nc = 0`: slow start, halved after a loss. Paced.
    Classic,
    /// Only the windows (`nc = 1`). Not paced.
    None,
    /// A fixed rate, regardless of loss. Paced.
    Fixed(Rate),
}

impl KcpCongestion {
    /// The words of the key `congestion`.
    pub(crate) const NAMED: [Self; 3] = [Self::Bbr, Self::Classic, Self::None];

    /// The word in the file; `rate` for a fixed rate, which has a key of its own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bbr => "bbr",
            Self::Classic => "classic",
            Self::None => "none",
            Self::Fixed(_) => "rate",
        }
    }

    /// The fixed rate.
    #[must_use]
    pub const fn rate(self) -> Option<Rate> {
        match self {
            Self::Fixed(rate) => Some(rate),
            Self::Bbr | Self::Classic | Self::None => None,
        }
    }
}

/// Forward error correction, `kcp.fec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KcpFec {
    /// The number of parity packets follows the loss on the path.
    Auto,
    /// No parity packets.
    Off,
    /// A fixed ratio.
    Fixed {
        /// Data packets of a group, 1 to 64.
        data: u8,
        /// Parity packets of a group, 1 to 48.
        parity: u8,
    },
}

impl fmt::Display for KcpFec {
    /// The value in the file: `auto`, `off`, `10/3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Fixed { data, parity } => write!(f, "{data}/{parity}"),
        }
    }
}
