//! The settings of a session.

use std::time::Duration;

use crate::Control;
use crate::own::fec::Protection;
use crate::own::wire::{
    ConnectionId, PACKET_HEAD, PARITY_HEAD, PacketKind, RUN_HEAD, SEGMENT_HEAD,
};

/// The settings of a [`Session`](super::Session).
#[derive(Clone, Debug)]
pub struct Config {
    /// The kind of the packets that leave. Arriving packets of the other kind are refused.
    pub kind: PacketKind,
    /// The connection in heads of packets that arrive, and of packets that leave.
    pub connection: (ConnectionId, ConnectionId),
    /// The most bytes of a packet at the beginning: 256 to 32,767. The path has to carry them: the
    /// MTU of the path less the heads of IP and UDP.
    pub datagram: u16,
    /// The most bytes of a packet that is tried later. With no more than `datagram` there is no
    /// search.
    pub datagram_most: u16,
    /// The most segments that are sent and not acknowledged, or that wait: 1 to 65,535.
    pub send_window: u16,
    /// The most segments that the receiver holds: 1 to 65,535.
    pub receive_window: u16,
    /// `true`: a stream of bytes. `false`: messages keep their boundaries.
    pub stream: bool,
    /// The longest time that an acknowledgement waits for company.
    pub ack_delay: Duration,
    /// The least timeout after which a probe leaves.
    pub least_timeout: Duration,
    /// How fast the session sends.
    pub control: Control,
    /// What protects the data that it sends. What it receives is rebuilt in any case.
    pub protection: Protection,
    /// The most bytes of shards that wait to rebuild others, and of parts of segments that wait for
    /// the rest.
    pub decode_memory: usize,
    /// The most bytes that the peer may leave unread until [`Session::welcome`](super::Session::welcome):
    /// half of it in order, half of it behind a gap, and an eighth of it in datagrams.
    pub unread: usize,
    /// The peer counts as dead when it has not answered for so long.
    pub dead_after: Duration,
}

impl Config {
    /// Settings for sealed packets of `datagram` bytes: a stream, windows of 8,192 segments, controlled by
    /// [`Control::Bbr`], adaptive FEC.
    #[must_use]
    pub const fn new(connection: (ConnectionId, ConnectionId), datagram: u16) -> Self {
        Self {
            kind: PacketKind::Sealed,
            connection,
            datagram,
            datagram_most: datagram,
            send_window: 8_192,
            receive_window: 8_192,
            stream: true,
            ack_delay: Duration::from_millis(5),
            least_timeout: Duration::from_millis(30),
            control: Control::Bbr,
            protection: Protection::Adaptive { most: 32 },
            decode_memory: 8 << 20,
            unread: usize::MAX,
            dead_after: Duration::from_secs(30),
        }
    }

    /// The most bytes of a packet that arrives. A peer whose packets are longer finds by its search
    /// that they do not pass.
    pub(super) fn longest(&self) -> u16 {
        self.datagram_most.max(self.datagram).max(256)
    }

    /// The bytes of a content without its flags, where the tag of the keys has `tag` bytes.
    pub(super) fn content(&self, tag: usize) -> usize {
        usize::from(self.datagram.max(256)).saturating_sub(PACKET_HEAD + tag)
    }

    /// The most bytes of a body with segments: its parity has a longer head and the size of each.
    pub(super) fn body(&self, tag: usize) -> usize {
        self.content(tag).saturating_sub(1 + PARITY_HEAD + super::SIZE)
    }

    /// The most bytes of payload in a segment.
    pub(super) fn payload(&self, tag: usize) -> usize {
        // A part of a message tells how many follow.
        let head = if self.stream { SEGMENT_HEAD } else { SEGMENT_HEAD + 1 };
        self.body(tag).saturating_sub(RUN_HEAD + head).max(1)
    }
}
