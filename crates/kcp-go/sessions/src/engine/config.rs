//! The settings of an engine, under the names that users of kcp-go know.

use std::time::Duration;

use crate::wire::{Conversation, HEAD};
use kcp::Control;

/// The settings of an [`Engine`](super::Engine).
#[derive(Clone, Debug)]
pub struct Config {
    /// The number that both ends put into each segment.
    pub conversation: Conversation,
    /// The largest number of bytes of segments in a datagram: 25 to 65,535. It is the MTU of the
    /// path less the heads of UDP, encryption and FEC.
    pub mtu: u16,
    /// The most segments that are sent and not acknowledged, or that wait: 1 to 65,535.
    pub send_window: u16,
    /// The most segments that the receiver holds: 1 to 65,535.
    pub receive_window: u16,
    /// `true`: a stream of bytes, small writes share segments. `false`: messages keep their
    /// boundaries.
    pub stream: bool,
    /// The longest delay of an acknowledgement and, with [`write_delay`](Self::write_delay), of a
    /// write.
    pub interval: Duration,
    /// The least retransmission timeout: 30 ms with `nodelay` of kcp-go, else 100 ms.
    pub least_timeout: Duration,
    /// A segment is repeated when this number of later segments is acknowledged (`resend`). 0: only
    /// by time. The number is used until the path reorders.
    pub resend: u16,
    /// Acknowledgements are sent at once, not with the next tick of [`interval`](Self::interval).
    pub ack_no_delay: bool,
    /// A write waits for [`interval`](Self::interval) instead of being sent at once.
    pub write_delay: bool,
    /// The controller of the rate.
    pub control: Control,
    /// The peer counts as dead when it has not answered for so long.
    pub dead_after: Duration,
}

impl Config {
    /// Settings for `conversation`: a stream, windows of 1,024 segments, 10 ms, controlled by
    /// [`Control::Bbr`]. `mtu` is [`Config::mtu`].
    #[must_use]
    pub const fn new(conversation: Conversation, mtu: u16) -> Self {
        Self {
            conversation,
            mtu,
            send_window: 1024,
            receive_window: 1024,
            stream: true,
            interval: Duration::from_millis(10),
            least_timeout: Duration::from_millis(30),
            resend: 3,
            ack_no_delay: false,
            write_delay: false,
            control: Control::Bbr,
            dead_after: Duration::from_secs(30),
        }
    }

    /// The most bytes of payload in a segment (`mss`).
    #[must_use]
    pub fn payload(&self) -> usize {
        usize::from(self.mtu).saturating_sub(HEAD).max(1)
    }
}
