//! Counts what a path carried, and how much of it while the path was what set the pace: of that nothing is
//! to be had from quinn.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

/// Makes controllers that count.
pub(crate) struct CountedConfig(pub(crate) Factory);

impl ControllerFactory for CountedConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let controller = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Counted { controller, acked: 0, limited: 0 })
    }
}

/// A controller, and what was acknowledged to it.
pub(crate) struct Counted {
    controller: Box<dyn Controller>,
    /// Bytes.
    pub(crate) acked: u64,
    /// Of those, while more waited to be sent than the path took.
    pub(crate) limited: u64,
}

impl Controller for Counted {
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
        self.acked += bytes;
        self.limited += if app_limited { 0 } else { bytes };
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
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
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.controller.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let controller = self.controller.clone_box();
        Box::new(Self { controller, acked: self.acked, limited: self.limited })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
