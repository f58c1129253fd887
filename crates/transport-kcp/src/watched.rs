//! The measurements of a connection.

use std::fmt;
use std::sync::Weak;

use transport::{Fares, Watch};

use crate::shared::Shared;

/// A handle that only measures. The lane closes the connection even while this handle lives.
pub(crate) struct Watched(pub(crate) Weak<Shared>);

impl Watch for Watched {
    fn fares(&self) -> Fares {
        let Some(shared) = self.0.upgrade() else { return Fares::default() };
        let mut state = shared.lock();
        let Some(session) = state.session() else { return Fares::default() };
        let counters = session.counters();
        Fares {
            sent_packets: counters.packets_out,
            lost_packets: counters.lost,
            lost_bytes: 0,
            acked_bytes: 0,
            limited_bytes: 0,
            window_bytes: session.window(),
            mtu: session.datagram(),
            round_trip: session.round_trip(),
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched(..)")
    }
}
