//! The settings of a classic session, and the two kinds of datagrams and of flushes.

use crate::wire::{Conversation, HEAD};

/// The least `mtu` that kcp-go accepts: a head and one byte.
const LEAST_MTU: usize = HEAD + 1;

/// The range of kcp-go's `interval`, in milliseconds.
const LEAST_INTERVAL: u32 = 10;
const GREATEST_INTERVAL: u32 = 5_000;

/// The default window of kcp-go. kcp-go also assumes this window of its peer until the first
/// segment of the peer arrives.
pub(super) const DEFAULT_WINDOW: u16 = 32;

/// Settings of a classic session. The defaults are those of kcp-go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number in each segment; both ends have the same.
    pub conversation: Conversation,
    /// The longest datagram in bytes, heads of FEC and encryption not counted. At least 25.
    pub mtu: u16,
    /// A shorter least time-out and a smaller step of the back-off (`nodelay`).
    pub is_quick: bool,
    /// The longest time between two flushes, in milliseconds, from 10 to 5,000.
    pub interval: u32,
    /// Later segments that have to be acknowledged before a segment counts as lost (`resend`). 0
    /// turns the fast retransmission off.
    pub resend: u32,
    /// Whether a congestion window limits the sender. The opposite of kcp-go's `nc`.
    pub is_controlled: bool,
    /// The most segments in flight. 0 stands for the default.
    pub send_window: u16,
    /// The most segments that wait for the reader. 0 stands for the default.
    pub receive_window: u16,
    /// Whether bytes of two calls may share a segment. Without it each call is a message.
    pub is_stream: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            conversation: Conversation(0),
            mtu: 1_400,
            is_quick: false,
            interval: 100,
            resend: 0,
            is_controlled: true,
            send_window: DEFAULT_WINDOW,
            receive_window: DEFAULT_WINDOW,
            is_stream: false,
        }
    }
}

impl Config {
    /// The settings with every value inside its range, as the setters of kcp-go leave them.
    pub(super) fn checked(self) -> Self {
        let window = |wanted| if wanted == 0 { DEFAULT_WINDOW } else { wanted };
        Self {
            mtu: self.mtu.max(u16::try_from(LEAST_MTU).unwrap_or(u16::MAX)),
            interval: self.interval.clamp(LEAST_INTERVAL, GREATEST_INTERVAL),
            send_window: window(self.send_window),
            receive_window: window(self.receive_window),
            ..self
        }
    }

    /// The most payload of a segment, in bytes (`mss`).
    pub(super) fn payload(&self) -> usize {
        usize::from(self.mtu).saturating_sub(HEAD).max(1)
    }

    /// The least time-out of a retransmission, in milliseconds.
    pub(super) const fn least_timeout(&self) -> u32 {
        if self.is_quick { 30 } else { 100 }
    }
}

/// The origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The datagram was received.
    Regular,
    /// The datagram was rebuilt from parity. It is late, so its window and its round trip are
    /// ignored.
    Recovered,
}

/// The kind of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Sends everything that is due.
    Full,
    /// Sends acknowledgements and windows. New segments get their numbers, but are not sent.
    AcksOnly,
}
