//! Adapts [`Bbr`] to quinn's congestion controller trait.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use congestion::Bbr;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

/// The largest number of packets that quinn makes before it reports them to the controller.
const BATCH: u64 = 10;
/// A window so large that quinn does not pace.
const UNPACED: u64 = 1 << 33;

/// Makes a [`Bbr`] for each path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BbrConfig;

impl ControllerFactory for BbrConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Paced(Bbr::new(now, current_mtu)))
    }
}

#[derive(Clone)]
struct Paced(Bbr);

impl Controller for Paced {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.0.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.0.on_ack(now, sent, bytes, app_limited, rtt.get());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.0.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.0.on_congestion_event(now, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        // quinn asks for each packet of a batch, but reports the packets only when the batch is
        // full.
        if self.0.is_in_arrears(BATCH) { UNPACED } else { self.0.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.0.window();
        metrics.pacing_rate = Some((self.0.rate() * 8.0) as u64);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.0.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
