//! Settings of a link. The defaults suit a path from loopback to 100 ms at 1 Gbit/s.

use std::time::Duration;

use crate::StreamId;

/// Settings of a link; checked by `config`, the same on both sides or not.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Receive window of a stream once it is open, bytes, at least 16 KiB. Enough for 20 Mbit/s at
    /// 100 ms before it grows.
    pub window_initial: u64,
    /// Largest receive window of a stream, bytes. 16 MiB carry 1.3 Gbit/s at 100 ms.
    pub window_max: u64,
    /// Bytes one stream may hold for replay.
    pub replay_per_stream: u64,
    /// Streams the peer may have open at once; more are refused with `Limit`.
    pub streams_max: usize,
    /// Flows that may be open at once. 0: the peer knows no flows.
    pub flows_max: usize,
    /// The link retires when this end has used its ids up to this one. The protocol's limit is
    /// [`StreamId::LAST`]; a smaller one wears links out sooner.
    pub last_id: StreamId,
    /// A PING is sent after so long a silence.
    pub keepalive: Duration,
    /// A link without carrier is kept so long.
    pub resume_timeout: Duration,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            window_initial: 256 << 10,
            window_max: 16 << 20,
            replay_per_stream: 16 << 20,
            streams_max: 1 << 20,
            flows_max: 1 << 16,
            last_id: StreamId::LAST,
            keepalive: Duration::from_secs(15),
            resume_timeout: Duration::from_mins(1),
        }
    }
}
