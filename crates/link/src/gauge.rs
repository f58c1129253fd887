//! The statistics of the connection below a carrier: those of the transport if the transport counts
//! packets, otherwise those of the kernel.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::tcp_info::{self, Ends};
use proto::CarrierNumber;
use transport::{Peer, Watch};

/// The source of the statistics of a connection.
#[derive(Clone)]
pub(crate) enum Gauge {
    Transport(Arc<dyn Watch>),
    /// The connection in the kernel. Each query is a system call.
    Kernel(Ends),
    Nothing,
}

/// The figures of a connection at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) acked_bytes: u64,
    /// Acknowledged bytes while the path limited the sender. Unknown of a connection in the kernel.
    pub(crate) limited_bytes: Option<u64>,
    pub(crate) lost_bytes: u64,
}

impl Gauge {
    pub(crate) fn of(peer: &Peer) -> Self {
        match (&peer.watch, peer.connection) {
            (Some(watch), _) => Self::Transport(Arc::clone(watch)),
            (None, Some(ends)) => Self::Kernel(Ends { local: ends.local, remote: ends.remote }),
            (None, None) => Self::Nothing,
        }
    }

    pub(crate) fn figures(&self) -> Option<Figures> {
        match self {
            Self::Transport(watch) => {
                let stats = watch.stats();
                Some(Figures {
                    acked_bytes: stats.acked_bytes,
                    limited_bytes: Some(stats.limited_bytes),
                    lost_bytes: stats.lost_bytes,
                })
            }
            Self::Kernel(ends) => {
                let info = tcp_info::now(*ends)?;
                Some(Figures {
                    acked_bytes: info.acked_bytes?,
                    limited_bytes: None,
                    // TCP sends again whatever it counts as lost.
                    lost_bytes: info.retransmitted_bytes?,
                })
            }
            Self::Nothing => None,
        }
    }

    /// Notes how much the peer's transport has sent so far.
    pub(crate) fn doubted(self, carrier: CarrierNumber, now: Instant) -> Doubted {
        let packets = match &self {
            Self::Transport(watch) => watch.stats().received_packets,
            Self::Kernel(_) | Self::Nothing => 0,
        };
        Doubted { carrier, gauge: self, since: now, packets }
    }
}

/// A carrier whose peer does not answer, and what was received before.
#[derive(Debug)]
pub(crate) struct Doubted {
    pub(crate) carrier: CarrierNumber,
    gauge: Gauge,
    since: Instant,
    packets: u64,
}

impl Doubted {
    /// Whether nothing came from the peer's transport since, although an answer was due. False
    /// where nothing is known.
    pub(crate) fn hears_nothing(&self, now: Instant) -> bool {
        match &self.gauge {
            Gauge::Transport(watch) => watch.stats().received_packets == self.packets,
            Gauge::Kernel(ends) => {
                let silence = now.saturating_duration_since(self.since);
                tcp_info::now(*ends).is_some_and(|info| {
                    let last = info.last_ack_millis.map(Duration::from_millis);
                    info.unacked_segments > Some(0) && last > Some(silence)
                })
            }
            Gauge::Nothing => false,
        }
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transport(_) => "Transport",
            Self::Kernel(_) => "Kernel",
            Self::Nothing => "Nothing",
        })
    }
}
