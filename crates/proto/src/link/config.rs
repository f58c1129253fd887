//! Settings of a link. The defaults suit a path from loopback to 100 ms at 1 Gbit/s.

use std::time::Duration;

use crate::StreamId;

/// Settings of a link, checked by `config`. The two sides may have different settings.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Initial receive window of an open stream, in bytes, at least 16 KiB. The default allows 20
    /// Mbit/s at 100 ms before the window grows.
    pub window_initial: u64,
    /// Maximum receive window of a stream, in bytes. 16 MiB allow 1.3 Gbit/s at 100 ms.
    pub window_max: u64,
    /// Maximum bytes that one stream retains for replay.
    pub replay_per_stream: u64,
    /// Maximum number of open streams of the peer; more are refused with `Limit`.
    pub streams_max: usize,
    /// Maximum number of open flows. 0: the peer does not support flows.
    pub flows_max: usize,
    /// The link retires when this end has used its ids up to this id. The protocol's limit is
    /// [`StreamId::LAST`]; a smaller id makes links retire sooner.
    pub last_id: StreamId,
    /// The silence after which a PING is sent.
    pub keepalive: Duration,
    /// The time for which a link without a carrier is kept.
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
