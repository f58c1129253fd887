//! The measurements of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Weak;

use net::socket::canonical;
use transport::{ConnectionStats, Repair, Watch};

use crate::shared::Shared;

/// A handle that only measures. The lane closes the connection even while this handle lives.
pub(crate) struct Watched(pub(crate) Weak<Shared>);

impl Watch for Watched {
    fn stats(&self) -> ConnectionStats {
        // The part about packet recovery identifies the connection as KCP.
        let ended =
            ConnectionStats { repair: Some(Repair::default()), ..ConnectionStats::default() };
        let Some(shared) = self.0.upgrade() else { return ended };
        let mut state = shared.lock();
        let Some(session) = state.session() else { return ended };
        let counters = session.counters();
        ConnectionStats {
            sent_packets: counters.packets_out,
            received_packets: counters.packets_in,
            lost_packets: counters.lost,
            lost_bytes: counters.lost_bytes,
            acked_bytes: counters.acked_bytes,
            limited_bytes: counters.limited_bytes,
            window_bytes: session.window(),
            mtu: session.datagram(),
            round_trip: session.round_trip(),
            repair: Some(Repair {
                retransmitted_packets: counters.repeated_out,
                parity_packets: counters.parity_out,
                recovered_packets: counters.rebuilt,
            }),
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        let shared = self.0.upgrade()?;
        let remote = shared.lock().remote();
        Some(canonical(remote.peer))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched(..)")
    }
}
