//! For paths that do not leave the machine: CUBIC, with no more under way than fills them.
//!
//! Nothing is lost there before a socket's buffer is full, so CUBIC alone keeps megabytes in it, and
//! what another stream has to say waits behind them: a byte beside a bulk stream took 16 ms (p99)
//! instead of 3, for 5 % more of bulk (`benches/NOTES.md`).

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

/// Bytes under way at most. With 256 KiB a fifth of the rate is missing, with 768 KiB the byte takes 6 ms.
const MOST: u64 = 384 << 10;

/// A path that was never this short is that of a relay on this machine, which carries packets elsewhere; at
/// this round trip [`MOST`] still is 3 Gbit/s.
const NEAR: Duration = Duration::from_millis(1);

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

/// Makes them.
pub(crate) struct LoopbackConfig {
    /// As on every other path, until this one is found to be short.
    pub(crate) far: Factory,
    pub(crate) near: CubicConfig,
}

impl ControllerFactory for LoopbackConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Loopback::new(&self, now, current_mtu))
    }
}

struct Loopback {
    controller: Box<dyn Controller>,
    /// Takes over as soon as the path is found to be short.
    near: Option<Factory>,
    mtu: u16,
}

impl Loopback {
    fn new(config: &LoopbackConfig, now: Instant, mtu: u16) -> Self {
        Self {
            controller: Arc::clone(&config.far).build(now, mtu),
            near: Some(Arc::new(config.near.clone())),
            mtu,
        }
    }

    /// A packet took so long to be acknowledged.
    fn measured(&mut self, now: Instant, round_trip: Duration) {
        if let Some(near) = self.near.take_if(|_| round_trip < NEAR) {
            self.controller = near.build(now, self.mtu);
            // A window smaller than a packet would let nothing leave, and then nothing makes it grow.
            self.controller.on_mtu_update(self.mtu);
        }
    }

    fn most(&self) -> u64 {
        if self.near.is_none() { MOST } else { u64::MAX }
    }
}

impl Controller for Loopback {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.controller.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.measured(now, now.saturating_duration_since(sent));
        // What lies beyond the most would keep a loss from making the window smaller.
        if self.controller.window() < self.most() {
            self.controller.on_ack(now, sent, bytes, app_limited, rtt);
        }
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.controller.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.controller.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.controller.window().min(self.most())
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.controller.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            controller: self.controller.clone_box(),
            near: self.near.clone(),
            mtu: self.mtu,
        })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bbr::BbrConfig;

    #[test]
    fn the_largest_packets_fit_when_a_path_is_found_to_be_short() {
        let mut near = CubicConfig::default();
        near.initial_window(38_400);
        let now = Instant::now();
        let config = LoopbackConfig { far: Arc::new(BbrConfig), near };
        let mut loopback = Loopback::new(&config, now, 1_200);
        loopback.on_mtu_update(65_507);
        loopback.measured(now, NEAR / 2);
        assert!(loopback.window() > 65_507, "quinn asks for more than a packet");
        assert!(loopback.window() < MOST, "the controller of short paths");
    }
}
