//! What the flows of a service (or of a forward) share on one worker.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::SocketOptions;
use net::resolve::Lookups;
use proto::control::FlowTimes;
use tokio::time::Instant;

use super::{FlowBounds, FlowStats};
use crate::{Room, Timeouts, Watcher};

/// What the flows of a service (or of a forward) share on one worker.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// The idle times of flows. Zero counts as one second.
    pub times: FlowTimes,
    /// The limits of the number of flows, on all workers.
    pub bounds: Arc<FlowBounds>,
    /// The counters of the flows. They survive a change of the settings.
    pub stats: Rc<FlowStats>,
    /// The time-out of the name resolution of a target.
    pub dial: Duration,
    /// The options of the sockets to targets.
    pub socket: SocketOptions,
    /// Whether datagrams may be sent to a broadcast or multicast address, for which the system
    /// requires an option. Answers then come from each machine, at the port of the target.
    pub broadcast: bool,
    /// The descriptors that sockets to targets may use.
    pub room: Room,
    /// The resolver for the names of targets.
    pub lookups: Lookups,
    /// Receives the events of the flows. A flow counts as served when its target has answered.
    pub watcher: Option<Rc<dyn Watcher>>,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self {
            times: FlowTimes::default(),
            bounds: Arc::default(),
            stats: Rc::default(),
            dial: Timeouts::default().dial,
            socket: SocketOptions::default(),
            broadcast: false,
            room: Room::default(),
            lookups: Lookups::default(),
            watcher: None,
        }
    }
}

/// The idle time of a flow, depending on whether it was answered.
pub(super) fn idle_time(times: FlowTimes, is_answered: bool) -> Duration {
    let seconds = if is_answered { times.answered } else { times.unanswered };
    Duration::from_secs(seconds.max(1).into())
}

/// The time at which a flow last used at `last` expires.
pub(super) fn end_of(last: Instant, times: FlowTimes, is_answered: bool) -> Instant {
    last + idle_time(times, is_answered)
}
