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
    /// The kind of the packets that are sent. Arriving packets of the other kind are refused.
    pub kind: PacketKind,
    /// The connection ids in the headers of received packets, and of sent packets.
    pub connection: (ConnectionId, ConnectionId),
    /// The initial size of packets in bytes: 256 to 32,767. The path must carry this size: it is
    /// the MTU of the path minus the IP and UDP headers.
    pub datagram: u16,
    /// The largest size of packets in bytes that is tried later. If it is not larger than
    /// `datagram`, there is no search.
    pub datagram_most: u16,
    /// Maximum number of segments that are unacknowledged or queued: 1 to 65,535.
    pub send_window: u16,
    /// Maximum number of segments that the receiver buffers: 1 to 65,535.
    pub receive_window: u16,
    /// `true`: a stream of bytes. `false`: messages keep their boundaries.
    pub stream: bool,
    /// The longest delay of an acknowledgement.
    pub ack_delay: Duration,
    /// The shortest timeout after which a probe is sent.
    pub least_timeout: Duration,
    /// The congestion control.
    pub control: Control,
    /// The protection of sent data. Received data is rebuilt in any case.
    pub protection: Protection,
    /// The limit in bytes of shards that are kept to rebuild other shards, and of parts of
    /// incomplete segments.
    pub decode_memory: usize,
    /// The limit of unread bytes of the peer until
    /// [`Session::raise_limits`](super::Session::raise_limits): half of it in order, half after a
    /// gap, and an eighth in datagrams.
    pub unread: usize,
    /// The time without a reply after which the peer counts as dead.
    pub dead_after: Duration,
}

impl Config {
    /// Settings for sealed packets of `datagram` bytes: a stream, windows of 8,192 segments,
    /// controlled by [`Control::Bbr`], adaptive FEC.
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

    /// The largest size of an arriving packet in bytes. A peer with longer packets detects by its
    /// MTU search that they do not arrive.
    pub(super) fn longest(&self) -> u16 {
        self.datagram_most.max(self.datagram).max(256)
    }

    /// The bytes of a content without its flags. The tag of the keys has `tag` bytes.
    pub(super) fn content(&self, tag: usize) -> usize {
        usize::from(self.datagram.max(256)).saturating_sub(PACKET_HEAD + tag)
    }

    /// The largest body with segments in bytes. The parity of the body has a longer header, and
    /// includes the size of each body.
    pub(super) fn body(&self, tag: usize) -> usize {
        self.content(tag).saturating_sub(1 + PARITY_HEAD + super::SIZE)
    }

    /// Maximum payload of a segment, in bytes.
    pub(super) fn payload(&self, tag: usize) -> usize {
        // A segment of a message has a field for the number of fragments that follow.
        let head = if self.stream { SEGMENT_HEAD } else { SEGMENT_HEAD + 1 };
        self.body(tag).saturating_sub(RUN_HEAD + head).max(1)
    }
}
