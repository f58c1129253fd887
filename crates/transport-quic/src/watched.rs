//! The measurements of a connection, as quinn counts them.

use std::fmt;
use std::net::SocketAddr;

use net::socket::canonical;
use quinn::Connection;
use transport::{ConnectionStats, Watch};

use crate::controller::PathController;

/// A handle that only measures. The first lane closes the connection even while this handle lives.
pub(crate) struct Watched(pub(crate) Connection);

impl Watch for Watched {
    fn stats(&self) -> ConnectionStats {
        let counted = self.0.stats();
        let path = counted.path;
        // The window of `path` is the value that the controller reports to the pacer. The
        // controller's own metrics have the real window.
        let controller = self.0.congestion_state();
        let congestion = controller.metrics();
        let own = controller.into_any().downcast::<PathController>().ok();
        let (acked_bytes, limited_bytes) = own.map_or((0, 0), |own| (own.acked, own.limited));
        ConnectionStats {
            sent_packets: path.sent_packets,
            received_packets: counted.udp_rx.datagrams,
            lost_packets: path.lost_packets,
            lost_bytes: path.lost_bytes,
            acked_bytes,
            limited_bytes,
            window_bytes: congestion.congestion_window,
            mtu: path.current_mtu,
            round_trip: path.rtt,
            repair: None,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(canonical(self.0.remote_address()))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({})", self.0.stable_id())
    }
}
