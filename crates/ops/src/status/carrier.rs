//! A live connection, and the figures of TCP, QUIC and KCP below it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::printed::printed;

printed! {
    /// A carrier: one live connection of a link.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Carrier {
        /// The number of the carrier, which grows within the link.
        pub number: u32,
        /// The scheme of the transport.
        pub transport: Cow<'static, str>,
        /// The present address of the far end. Over QUIC and KCP it changes when a client moves.
        pub peer: String,
        /// The other server through which the carrier leads to the server; absent where the client
        /// has dialled the server. The address of the far end is not known then. On a node of a
        /// cluster: the node that the client has dialled, which passes the carrier on.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub via: Option<Cow<'static, str>>,
        /// The minimum round-trip time of the link's active carrier, in microseconds; absent before
        /// the first measurement.
        pub rtt_micros: Option<u64> = rough,
        /// The cipher suite of the TLS session: `TLS_AES_128_GCM_SHA256`; absent without TLS.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cipher: Option<Cow<'static, str>>,
        /// The library that computes the cipher suite in this process: `aws-lc` or `ring`; absent
        /// without TLS.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub backend: Option<Cow<'static, str>>,
        /// Whether the carrier is a standby, which carries no traffic.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub standby: bool,
        /// The figures of the TCP connection; absent when the kernel does not report them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tcp: Option<Tcp> = apart,
        /// The figures of the QUIC connection.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quic: Option<Quic> = apart,
        /// The figures of the KCP connection.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub kcp: Option<Kcp> = apart,
    }
}

impl Carrier {
    /// The traffic since the connection began, from the kernel (TCP) or from this process (QUIC,
    /// KCP).
    pub fn sent(&self) -> Option<Sent> {
        self.tcp.map(Sent::from).or_else(|| self.driven())
    }

    /// The traffic of a connection that this process drives.
    pub fn driven(&self) -> Option<Sent> {
        self.quic.map(Sent::from).or_else(|| self.kcp.map(Sent::from))
    }
}

/// The figures of a KCP connection, which this process drives. Counters begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kcp {
    /// The number of packets sent, lost packets and parity included.
    pub sent_packets: u64,
    /// The number of sent packets that the path lost. The far end recovers some of them.
    pub lost_packets: u64,
    /// The number of sent packets whose content had been sent before.
    pub retransmitted_packets: u64,
    /// The number of sent packets with parity.
    pub parity_packets: u64,
    /// The number of lost packets of the far end that this end recovered by parity.
    pub recovered_packets: u64,
    /// The congestion window in bytes.
    pub window_bytes: u64,
    /// The largest UDP payload, in bytes, that the path is known to carry.
    pub mtu: u16,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_micros: u64,
}

impl From<Kcp> for Sent {
    fn from(kcp: Kcp) -> Self {
        Self {
            segments: Some(kcp.sent_packets),
            retransmitted_segments: Some(kcp.retransmitted_packets),
            retransmitted_bytes: None,
            lost_packets: Some(kcp.lost_packets),
            parity_packets: Some(kcp.parity_packets),
            recovered_packets: Some(kcp.recovered_packets),
        }
    }
}

/// The figures of a QUIC connection, which this process drives. Counters begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quic {
    /// The number of packets sent, lost packets included.
    pub sent_packets: u64,
    /// The number of lost packets. Their content is retransmitted.
    pub lost_packets: u64,
    /// The bytes in lost packets.
    pub lost_bytes: u64,
    /// The congestion window in bytes.
    pub window_bytes: u64,
    /// The largest UDP payload, in bytes, that the path is known to carry.
    pub mtu: u16,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_micros: u64,
}

/// Maps packets to segments. The content of each lost packet is retransmitted.
impl From<Quic> for Sent {
    fn from(quic: Quic) -> Self {
        Self {
            segments: Some(quic.sent_packets),
            retransmitted_segments: Some(quic.lost_packets),
            retransmitted_bytes: Some(quic.lost_bytes),
            ..Self::default()
        }
    }
}

/// The figures of a TCP connection from the kernel (`ss -ti`). Figures that an older kernel does
/// not report are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// The number of segments with payload since the connection began, retransmissions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_segments: Option<u64>,
    /// The number of retransmitted segments since the connection began. They are the part of
    /// `sent_segments` that was lost or seemed to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// The payload bytes in retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// The number of segments in flight that are believed to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_segments: Option<u64>,
    /// The bytes that this process has written but the kernel has not sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// The congestion window in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_segments: Option<u64>,
    /// The latest rate at which bytes arrived at the far end, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// The kernel's smoothed round-trip time, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

impl From<Tcp> for Sent {
    fn from(tcp: Tcp) -> Self {
        Self {
            segments: tcp.sent_segments,
            retransmitted_segments: tcp.retransmitted_segments,
            retransmitted_bytes: tcp.retransmitted_bytes,
            ..Self::default()
        }
    }
}

/// The traffic of a connection, or of several. For QUIC, packets count as segments and lost packets
/// as retransmitted segments. For KCP, packets count as segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// The number of segments with payload, retransmissions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// The number of retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// The payload bytes in retransmitted segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// The number of packets that the path lost; KCP alone counts them apart from retransmissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
    /// The number of sent packets with parity (KCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity_packets: Option<u64>,
    /// The number of received packets that were recovered by parity (KCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered_packets: Option<u64>,
}

impl Sent {
    /// The counts of lost packets and of sent packets. TCP and QUIC retransmit the content of each
    /// lost packet, so they have no separate count.
    pub fn loss(&self) -> Option<(u64, u64)> {
        self.lost_packets.or(self.retransmitted_segments).zip(self.segments)
    }

    /// Adds the traffic of another session. A figure is absent only when both are absent.
    pub fn join(&mut self, other: Self) {
        let join = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0)));
        };
        join(&mut self.segments, other.segments);
        join(&mut self.retransmitted_segments, other.retransmitted_segments);
        join(&mut self.retransmitted_bytes, other.retransmitted_bytes);
        join(&mut self.lost_packets, other.lost_packets);
        join(&mut self.parity_packets, other.parity_packets);
        join(&mut self.recovered_packets, other.recovered_packets);
    }
}
