//! How connections behave: windows, limits, time-outs, congestion control. The one place where
//! quinn's configuration is made.

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

/// What may be in flight unacknowledged, or wait unread once the peer is welcome: 1 Gbit/s at 100
/// ms is 12.5 MB; twice that, so that a lost packet's round trip does not stop the sender, and room
/// for other streams. The credit of `proto` is the limit that holds; nothing is allocated
/// beforehand.
pub(crate) const WINDOW: u32 = 32 << 20;

/// Unread bytes of a peer that has not proved who it is: a greeting is a few hundred.
pub(crate) const WINDOW_BEFORE: u32 = 64 << 10;

/// Lanes that the peer may have open at first, and at most. quinn makes an entry of a table for
/// each that is allowed, so the number follows the streams there are (`lanes.rs`).
pub(crate) const LANES: u32 = 256;
pub(crate) const LANES_MOST: u32 = 65_536;

/// Datagrams that wait to be sent or to be read, bytes each way; the oldest give way. Some hundred
/// of the largest, and no more than a peer may fill that has not proved who it is.
const DATAGRAMS: usize = 256 << 10;

/// The smallest payload every path of QUIC carries (RFC 9000 section 14).
const MTU_LEAST: u16 = 1_200;

/// Steps of a search for the path's MTU end when they are smaller.
const MTU_STEP: u16 = 20;

/// How this end sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438: takes loss for congestion.
    Cubic,
    /// Models the path's rate and round trip, so that loss alone does not slow it down.
    #[default]
    Bbr,
}

/// Settings of both ends of `quic://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicSettings {
    /// How this end sends.
    pub congestion: Congestion,
    /// The same on a path that does not leave the machine. CUBIC only where round trips show that
    /// it does not, and keeps little under way there.
    pub loopback: Congestion,
    /// The largest UDP payload that is tried and taken, bytes, 1,200 to 65,527, where the route
    /// from this machine takes it. Discovery begins at 1,200, and with that here there is none.
    pub mtu: u16,
    /// A connection that hears nothing for so long is dead. The liveness of `proto` is stricter.
    pub idle: Duration,
    /// Sends a PING after so long without a packet. `proto` has pings of its own.
    pub keepalive: Option<Duration>,
    /// With more handshakes under way a listener has new clients prove their address first (Retry,
    /// RFC 9000 section 8.1.2), which costs them a round trip and us no state.
    pub handshakes: usize,
}

impl Default for QuicSettings {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            // There is no bottleneck to be found by pacing, and its timers cost a quarter of the
            // processor time: 2.1 CPU-s/GB instead of 1.6 (`examples/quic_bulk.rs`).
            loopback: Congestion::Cubic,
            // No network has larger frames than 9,000; of loopback, with 65,536, packets of a
            // quarter cost least: four make one call (`examples/quic_bulk.rs`).
            mtu: 16_336,
            idle: Duration::from_secs(45),
            keepalive: None,
            // A handshake takes a round trip, so a busy server has a few under way; each holds
            // about 60 KiB until its deadline, which 64 forged addresses may cost.
            handshakes: 64,
        }
    }
}

impl QuicSettings {
    /// The payload size within what QUIC and UDP allow.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.clamp(MTU_LEAST, 65_527)
    }

    /// The same, with an MTU that the route to `peer` takes.
    pub(crate) fn on_route_to(mut self, peer: SocketAddr) -> Self {
        // Where the machine does not tell, the search finds out.
        let route = payload_of_route(peer).unwrap_or(u16::MAX);
        self.mtu = self.mtu.min(route);
        self
    }

    /// quinn's configuration of a connection with `peer` on this side.
    pub(crate) fn transport(&self, side: Side, peer: SocketAddr) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        // The one that the client opens.
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
            // Nobody measures round trips of others here.
            .allow_spin(false)
            .initial_mtu(MTU_LEAST)
            .min_mtu(MTU_LEAST)
            .mtu_discovery_config(self.discovery())
            .max_idle_timeout(Some(self.idle_timeout()));
        let mut cubic = CubicConfig::default();
        cubic.initial_window(FIRST_FLIGHT * u64::from(MTU_LEAST));
        let far: Arc<dyn ControllerFactory + Send + Sync> = match self.congestion {
            Congestion::Bbr => Arc::new(BbrConfig),
            Congestion::Cubic => Arc::new(cubic.clone()),
        };
        let path = match (peer.ip().to_canonical().is_loopback(), self.loopback) {
            (false, _) => PathConfig { far, near: None },
            (true, Congestion::Bbr) => PathConfig { far: Arc::new(BbrConfig), near: None },
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
