//! The congestion controller of a connection. It forwards to BBR or CUBIC and counts acknowledged
//! bytes. Where packets are lost it lets few packets be sent twice ([`Copies`]). On a path that
//! does not leave the machine it switches to CUBIC with a bounded window.
//!
//! quinn does not report how many of the acknowledged bytes were limited by the path, so the
//! controller counts them.
//!
//! A path inside the machine loses no packet before a socket's buffer is full. CUBIC alone would
//! therefore keep megabytes in that buffer, and the bytes of other streams would wait behind them.
//! The bounded window costs 5 % of bulk throughput: with it a byte beside a bulk stream takes 3 ms
//! (p99), and without it 16 ms (`benches/README.md`).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use congestion::Copies;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

use crate::twice;

/// The largest number of bytes in flight on a short path. A bound of 256 KiB costs a fifth of the
/// rate. With 768 KiB a byte beside a bulk stream takes 6 ms.
const MOST: u64 = 384 << 10;

/// A path with a round trip below this is short. A longer path to a loopback address ends at a
/// relay on this machine that carries packets elsewhere. At this round trip [`MOST`] still allows 3
/// Gbit/s.
const NEAR: Duration = Duration::from_millis(1);

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

/// Makes the controllers of connections.
pub(crate) struct PathConfig {
    /// Controls every path that is not known to be short.
    pub(crate) far: Factory,
    /// Controls a path once a round trip shows that the path is short; `None` to keep `far` always.
    pub(crate) near: Option<CubicConfig>,
}

impl ControllerFactory for PathConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(PathController::new(&self, now, current_mtu))
    }
}

/// The controller of one connection.
pub(crate) struct PathController {
    controller: Box<dyn Controller>,
    /// Replaces the controller as soon as the path is known to be short.
    near: Option<Factory>,
    /// The limit of the window, in bytes.
    most: u64,
    mtu: u16,
    copies: Copies,
    /// quinn has queried the window, which it does before it builds a packet that the peer
    /// acknowledges. Such a packet is worth a copy; a mere acknowledgement is not.
    asked: AtomicBool,
    /// The number of acknowledged bytes.
    pub(crate) acked: u64,
    /// The number of acknowledged bytes in packets that were sent while the window blocked further
    /// data.
    pub(crate) limited: u64,
}

impl PathController {
    fn new(config: &PathConfig, now: Instant, mtu: u16) -> Self {
        Self {
            controller: Arc::clone(&config.far).build(now, mtu),
            near: config.near.clone().map(|near| Arc::new(near) as Factory),
            most: u64::MAX,
            mtu,
            copies: Copies::default(),
            asked: AtomicBool::new(false),
            acked: 0,
            limited: 0,
        }
    }

    /// A packet was acknowledged after `round_trip`.
    fn measured(&mut self, now: Instant, round_trip: Duration) {
        if let Some(near) = self.near.take_if(|_| round_trip < NEAR) {
            self.most = MOST;
            self.controller = near.build(now, self.mtu);
            // With a window smaller than a packet no packet could be sent, and then no
            // acknowledgement could make the window grow.
            self.controller.on_mtu_update(self.mtu);
        }
    }
}

impl Controller for PathController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.controller.on_sent(now, bytes, last_packet_number);
        if std::mem::take(self.asked.get_mut()) {
            twice::set(self.copies.on_sent(bytes, self.mtu.into()));
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.copies.on_ack();
        self.acked += bytes;
        self.limited += if app_limited { 0 } else { bytes };
        self.measured(now, now.saturating_duration_since(sent));
        // A window that grew beyond the limit would stay above the limit after a loss.
        if self.controller.window() < self.most {
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
        self.copies.on_end_acks(in_flight);
        self.controller.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.copies.on_lost(lost_bytes, self.mtu.into());
        self.controller.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.asked.store(true, Ordering::Relaxed);
        self.controller.window().min(self.most)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.controller.metrics();
        metrics.congestion_window = metrics.congestion_window.min(self.most);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            controller: self.controller.clone_box(),
            near: self.near.clone(),
            copies: self.copies.of_new_path(),
            asked: AtomicBool::new(false),
            ..*self
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
    use crate::past::PastPaths;

    #[test]
    fn the_largest_packets_fit_when_a_path_is_found_to_be_short() {
        let mut near = CubicConfig::default();
        near.initial_window(38_400);
        let now = Instant::now();
        let bbr = BbrConfig::new(&PastPaths::default(), std::net::Ipv4Addr::LOCALHOST.into());
        let config = PathConfig { far: Arc::new(bbr), near: Some(near) };
        let mut controller = PathController::new(&config, now, 1_200);
        controller.on_mtu_update(65_507);
        controller.measured(now, NEAR / 2);
        assert!(controller.window() > 65_507, "quinn asks for more than a packet");
        assert!(controller.window() < MOST, "the controller of short paths");
    }

    #[test]
    fn over_a_lossy_path_a_packet_that_is_acknowledged_leaves_twice_and_an_acknowledgement_once() {
        let now = Instant::now();
        let bbr = BbrConfig::new(&PastPaths::default(), std::net::Ipv4Addr::LOCALHOST.into());
        let config = PathConfig { far: Arc::new(bbr), near: None };
        let mut controller = PathController::new(&config, now, 1_200);
        for _ in 0..40 {
            controller.copies.on_ack();
        }
        controller.on_congestion_event(now, now, false, 3_600);
        assert!(controller.window() > 0);
        controller.on_sent(now, 100, 1);
        assert!(twice::take(), "quinn has asked for the window");
        controller.on_sent(now, 50, 2);
        assert!(!twice::take());
    }
}
