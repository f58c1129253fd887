//! The settings of connections: windows, limits, timeouts, congestion control. Only this file makes
//! quinn's configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use congestion::FIRST_FLIGHT;
use net::udp::payload_of_route;
use quinn::congestion::{ControllerFactory, CubicConfig};
use quinn::{IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use transport::Side;

use crate::bbr::BbrConfig;
use crate::controller::PathConfig;
use crate::past::PastPaths;

/// The limit of unacknowledged bytes, and of unread bytes of an authenticated peer. 1 Gbit/s at 100
/// ms takes 12.5 MB. The limit is more than twice that, so that the round trip of a lost packet
/// does not block the sender, and other streams have room. The credit of `proto` is the effective
/// limit. No memory is allocated in advance.
pub(crate) const WINDOW: u32 = 32 << 20;

/// The limit of unread bytes of a peer before it is authenticated; a greeting has a few hundred
/// bytes.
pub(crate) const WINDOW_BEFORE: u32 = 64 << 10;

/// The number of lanes that the peer may have open, at first and at most. quinn makes a table entry
/// for each allowed lane, so the number follows the number of streams (`lanes.rs`).
pub(crate) const LANES: u32 = 256;
pub(crate) const LANES_MOST: u32 = 65_536;

/// The limit of datagrams that wait to be sent or read, in bytes per direction; the oldest
/// datagrams are dropped. The limit holds a few hundred of the largest datagrams, and is no more
/// than a peer may fill before it is authenticated.
pub(crate) const DATAGRAMS: usize = 256 << 10;

/// The smallest payload that every path of QUIC carries (RFC 9000 section 14).
const MTU_LEAST: u16 = 1_200;

/// The search for the path's MTU ends at steps smaller than this.
const MTU_STEP: u16 = 20;

/// The congestion control of this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438), which treats loss as congestion.
    Cubic,
    /// BBR, which models the rate and the round trip of the path, so that loss alone does not slow
    /// it down.
    #[default]
    Bbr,
}

/// The settings of both ends of `quic://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicSettings {
    /// The congestion control of this end.
    pub congestion: Congestion,
    /// The congestion control on a path inside this machine. CUBIC is used only after round trips
    /// show that the path is such a path, and it keeps few bytes in flight there.
    pub loopback: Congestion,
    /// The largest UDP payload that is tried and received, in bytes, from 1,200 to 65,527, if the
    /// route from this machine takes it. Discovery begins at 1,200; with this value there is no
    /// discovery.
    pub mtu: u16,
    /// The idle time after which a connection is dead. The liveness check of `proto` is stricter.
    pub idle: Duration,
    /// The time without a packet after which this end sends a PING. `proto` has pings of its own.
    pub keepalive: Option<Duration>,
    /// The number of handshakes in progress above which new clients must prove their address
    /// (Retry, RFC 9000 section 8.1.2). The proof costs a client one round trip, but the server no
    /// state.
    pub handshakes: usize,
}

impl Default for QuicSettings {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            // Such a path has no bottleneck that pacing could find. Pacing timers cost a quarter of
            // the processor time: 2.1 CPU-s/GB instead of 1.6 (`examples/quic_bulk.rs`).
            loopback: Congestion::Cubic,
            // No network has frames above 9,000 bytes. On loopback, with frames of 65,536 bytes,
            // packets of a quarter of that size cost least, because one call carries four of them
            // (`examples/quic_bulk.rs`).
            mtu: 16_336,
            idle: Duration::from_secs(45),
            keepalive: None,
            // A handshake takes one round trip, so a busy server has few of them in progress. Each
            // holds about 60 KiB until its deadline; 64 forged addresses can claim that much each.
            handshakes: 64,
        }
    }
}

impl QuicSettings {
    /// The payload size within the limits of QUIC and UDP.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.clamp(MTU_LEAST, 65_527)
    }

    /// These settings with an MTU that the route to `peer` supports.
    pub(crate) fn on_route_to(mut self, peer: SocketAddr) -> Self {
        // When the system does not know the route's MTU, the search finds the MTU.
        let route = payload_of_route(peer).unwrap_or(u16::MAX);
        self.mtu = self.mtu.min(route);
        self
    }

    /// Makes quinn's configuration of one connection with `peer` on this side. The connection
    /// starts from the measurements in `past`.
    pub(crate) fn transport(
        &self,
        side: Side,
        peer: SocketAddr,
        past: &PastPaths,
    ) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        // A server allows the one bidirectional stream that the client opens.
        let streams: u32 = if side == Side::Server { 1 } else { 0 };
        config
            .max_concurrent_bidi_streams(streams.into())
            .max_concurrent_uni_streams(LANES.into())
            .stream_receive_window(WINDOW.into())
            .receive_window(WINDOW_BEFORE.into())
            .send_window(WINDOW.into())
            .send_fairness(true)
            .datagram_receive_buffer_size(Some(DATAGRAMS))
            .datagram_send_buffer_size(DATAGRAMS)
            .keep_alive_interval(self.keepalive)
            // The spin bit lets observers on the path measure round trips, which is not needed.
            .allow_spin(false)
            .initial_mtu(MTU_LEAST)
            .min_mtu(MTU_LEAST)
            .mtu_discovery_config(self.discovery())
            .max_idle_timeout(Some(self.idle_timeout()));
        let mut cubic = CubicConfig::default();
        cubic.initial_window(FIRST_FLIGHT * u64::from(MTU_LEAST));
        let bbr = || Arc::new(BbrConfig::new(past, peer.ip()));
        let far: Arc<dyn ControllerFactory + Send + Sync> = match self.congestion {
            Congestion::Bbr => bbr(),
            Congestion::Cubic => Arc::new(cubic.clone()),
        };
        let path = match (peer.ip().to_canonical().is_loopback(), self.loopback) {
            (false, _) => PathConfig { far, near: None },
            (true, Congestion::Bbr) => PathConfig { far: bbr(), near: None },
            (true, Congestion::Cubic) => PathConfig { far, near: Some(cubic) },
        };
        config.congestion_controller_factory(Arc::new(path));
        Arc::new(config)
    }

    fn discovery(&self) -> Option<MtuDiscoveryConfig> {
        let mut search = MtuDiscoveryConfig::default();
        search.upper_bound(self.mtu()).minimum_change(MTU_STEP);
        (self.mtu() > MTU_LEAST).then_some(search)
    }

    fn idle_timeout(&self) -> IdleTimeout {
        let millis = u32::try_from(self.idle.as_millis()).unwrap_or(u32::MAX);
        IdleTimeout::from(VarInt::from_u32(millis))
    }
}
