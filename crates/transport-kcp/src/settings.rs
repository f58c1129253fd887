//! The settings of connections. Only this file makes configurations of sessions.

use std::net::SocketAddr;
use std::time::Duration;

use kcp::Control;
use kcp::own::Config;
use kcp::own::fec::Protection;
use kcp::own::wire::{ConnectionId, PacketKind};
use net::udp::payload_of_route;

use crate::wire::{HELLO, OPENING_HEAD};

/// The smallest UDP payload of every path: the handshake has shown that the path carries it.
pub(crate) const LEAST: u16 = HELLO as u16;

/// The largest UDP payload. The top bit of a size tells datagrams from segments.
const MOST: u16 = 32_000;

/// The UDP payload of an Ethernet frame over IPv4. Windows count segments of this size, so that the
/// large packets of loopback do not make large windows.
const ETHERNET: u16 = 1_472;

/// The largest number of TLS handshake segments in flight in each direction, 70 KB: a chain of
/// certificates has a few KiB.
const BOOTSTRAP_WINDOW: u16 = 64;

/// The largest number of segments that an unauthenticated peer may leave unread, twice: in order,
/// and after a gap. A greeting has a few hundred bytes.
const STRANGER_WINDOW: u16 = 32;

/// The largest number of bytes that an unauthenticated peer may leave unread, half of them in order
/// and half after a gap: packets may be long, so a window in segments does not bound bytes.
const STRANGER_UNREAD: usize = 32 << 10;

/// The largest number of bytes that this end holds for packet recovery for an unauthenticated peer:
/// a greeting is one group of packets.
const STRANGER_MEMORY: usize = 16 << 10;

/// The default for an authenticated peer: 0.5 Gbit/s at 100 ms and 20 % of loss need 5 MB for
/// packet recovery.
const DECODE_MEMORY: usize = 8 << 20;

/// The settings of both ends of `kcp://`.
#[derive(Clone, Debug, PartialEq)]
pub struct KcpSettings {
    /// The rate control of this end.
    pub control: Control,
    /// The loss protection of the packets that this end sends.
    pub protection: Protection,
    /// The largest number of sent but unacknowledged segments, 1 to 65,535. Where packets are
    /// longer than 1,472 bytes, it stands for as many bytes.
    pub send_window: u16,
    /// The largest number of received segments that wait for the reader, 1 to 65,535; the same rule
    /// applies.
    pub receive_window: u16,
    /// The longest delay of an acknowledgement.
    pub ack_delay: Duration,
    /// The minimum retransmission timeout.
    pub least_timeout: Duration,
    /// The largest size of a peer's packets that this end holds for packet recovery, in bytes, once
    /// the peer is authenticated.
    pub decode_memory: usize,
    /// The largest UDP payload that path MTU discovery tries, in bytes, from 1,200 to 32,000.
    /// Discovery begins at 1,200; with 1,200 there is no discovery.
    pub mtu: u16,
    /// The time without an expected response after which a peer is dead. The liveness check of
    /// `proto` is stricter.
    pub dead_after: Duration,
}

impl Default for KcpSettings {
    fn default() -> Self {
        Self {
            control: Control::Bbr,
            protection: Protection::Adaptive { most: 32 },
            send_window: 8_192,
            receive_window: 8_192,
            ack_delay: Duration::from_millis(5),
            least_timeout: Duration::from_millis(30),
            decode_memory: DECODE_MEMORY,
            // As for QUIC: no network has frames above 9,000 bytes, and on loopback one call
            // carries four packets of this size.
            mtu: 16_336,
            dead_after: Duration::from_secs(30),
        }
    }
}

impl KcpSettings {
    /// These settings with an MTU that the route to `peer` supports.
    pub(crate) fn on_route_to(mut self, peer: SocketAddr) -> Self {
        // When the system does not know the route's MTU, the search finds the MTU.
        let route = payload_of_route(peer).unwrap_or(u16::MAX);
        self.mtu = self.mtu.min(route).clamp(LEAST, MOST);
        self
    }

    /// The session that carries the TLS handshake. `ids`: the ids in received and in sent packets.
    pub(crate) fn bootstrap(ids: (ConnectionId, ConnectionId)) -> Config {
        let datagram = LEAST - OPENING_HEAD as u16;
        Config {
            kind: PacketKind::Bootstrap,
            send_window: BOOTSTRAP_WINDOW,
            receive_window: BOOTSTRAP_WINDOW,
            ack_delay: Duration::from_millis(1),
            // A handshake is short and loss delays it: the first flight is worth a second copy.
            protection: Protection::Fixed { data: 2, parity: 1 },
            unread: STRANGER_UNREAD,
            decode_memory: STRANGER_MEMORY,
            ..Config::new(ids, datagram)
        }
    }

    /// A window in segments that stands for the same number of bytes with packets of any size.
    fn window(&self, segments: u16) -> u16 {
        let bytes = u32::from(segments) * u32::from(ETHERNET);
        let segments = u32::from(segments).min(bytes / u32::from(self.mtu.max(LEAST)));
        u16::try_from(segments).unwrap_or(u16::MAX).max(1)
    }

    /// The limits of an authenticated peer: unread segments, and bytes held for packet recovery.
    pub(crate) fn limits(&self) -> (u16, usize) {
        (self.window(self.receive_window), self.decode_memory)
    }

    /// The session that carries the lane and datagrams. Until the peer is authenticated, the
    /// session has only the room that a greeting needs.
    pub(crate) fn session(&self, ids: (ConnectionId, ConnectionId)) -> Config {
        Config {
            kind: PacketKind::Sealed,
            datagram_most: self.mtu,
            send_window: self.window(self.send_window),
            receive_window: STRANGER_WINDOW,
            unread: STRANGER_UNREAD,
            decode_memory: STRANGER_MEMORY,
            ack_delay: self.ack_delay,
            least_timeout: self.least_timeout,
            control: self.control,
            protection: self.protection,
            dead_after: self.dead_after,
            ..Config::new(ids, LEAST)
        }
    }
}
