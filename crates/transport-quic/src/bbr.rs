//! Adapts [`Bbr`] to quinn's congestion controller trait, and starts it from the measurements of an
//! earlier connection.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use congestion::Bbr;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use crate::past::{EVERY, PastPaths};

/// The largest number of packets that quinn makes before it reports them to the controller.
const BATCH: u64 = 10;
/// A window so large that quinn does not pace.
const UNPACED: u64 = 1 << 33;

/// Makes a [`Bbr`] for each path of one connection.
#[derive(Debug)]
pub(crate) struct BbrConfig {
    /// The address of the peer, and the known measurements of paths. It applies to the first path:
    /// quinn does not report to which address a connection has moved.
    first: (PastPaths, IpAddr),
    has_begun: AtomicBool,
}

impl BbrConfig {
    /// For a connection with `peer`.
    pub(crate) fn new(past: &PastPaths, peer: IpAddr) -> Self {
        Self { first: (past.clone(), peer.to_canonical()), has_begun: AtomicBool::new(false) }
    }
}

impl ControllerFactory for BbrConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let is_first = !self.has_begun.swap(true, Ordering::Relaxed);
        let (paths, peer) = self.first.clone();
        let path = is_first.then_some(Path { paths, peer, noted: now });
        Box::new(Paced { bbr: Bbr::new(now, current_mtu), path })
    }
}

#[derive(Clone)]
struct Paced {
    bbr: Bbr,
    path: Option<Path>,
}

/// The path of a controller, if its measurements are recorded.
#[derive(Clone)]
struct Path {
    paths: PastPaths,
    peer: IpAddr,
    /// When the path was last measured.
    noted: Instant,
}

impl Path {
    /// A batch of acknowledgements was read.
    fn follow(&mut self, now: Instant, bbr: &mut Bbr) {
        if bbr.is_starting() {
            if let Some(past) = self.paths.take(self.peer, now) {
                let (is_trusted, rate) = (bbr.resume(past), past.rate * 8e-6);
                tracing::debug!(is_trusted, rate, "the path was measured before, Mbit/s");
            }
        } else if now.saturating_duration_since(self.noted) >= EVERY
            && let Some(measured) = bbr.measured()
        {
            self.noted = now;
            self.paths.note(self.peer, now, measured);
        }
    }
}

impl Controller for Paced {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.bbr.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.bbr.on_ack(now, sent, bytes, app_limited, rtt.get());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.bbr.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        if let Some(path) = &mut self.path {
            path.follow(now, &mut self.bbr);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.bbr.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.bbr.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        // quinn asks for each packet of a batch, but reports the packets only when the batch is
        // full.
        if self.bbr.is_in_arrears(BATCH) { UNPACED } else { self.bbr.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.bbr.window();
        metrics.pacing_rate = Some((self.bbr.rate() * 8.0) as u64);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.bbr.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
