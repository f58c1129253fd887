//! What the flows of a service (or of a forward) share on one worker.

use std::rc::Rc;
use std::time::Duration;

use net::resolve::Lookups;
use proto::control::FlowTimes;
use tokio::time::Instant;

use super::{FlowStats, FlowTargets};
use crate::{Room, Timeouts, Watcher};

/// How many flows there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCaps {
    /// Of one listener, or of the targets of one service, on one worker.
    pub total: usize,
    /// Of these, of one IPv4 address or one /64 of IPv6.
    pub per_source: usize,
}

impl Default for FlowCaps {
    fn default() -> Self {
        // A flow takes about 500 bytes here and as many in the link. A resolver or a game server
        // behind one address has tens of flows, a company behind one address hundreds.
        Self { total: 16_384, per_source: 256 }
    }
}

/// What the flows of a service (or of a forward) share on one worker.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// When idle flows end. Zero counts as one second.
    pub times: FlowTimes,
    /// How many flows there may be.
    pub caps: FlowCaps,
    /// The counters of the flows. They survive a change of the settings.
    pub stats: Rc<FlowStats>,
    /// The flows whose targets this side dials. They survive a change of the settings.
    pub targets: Rc<FlowTargets>,
    /// The time for resolving the name of a target.
    pub dial: Duration,
    /// The descriptors that sockets to targets may use.
    pub room: Room,
    /// How the names of targets are looked up.
    pub lookups: Lookups,
    /// Receives the events of the flows. A flow counts as served when its target has answered.
    pub watcher: Option<Rc<dyn Watcher>>,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self {
            times: FlowTimes::default(),
            caps: FlowCaps::default(),
            stats: Rc::default(),
            targets: Rc::default(),
            dial: Timeouts::default().dial,
            room: Room::default(),
            lookups: Lookups::default(),
            watcher: None,
        }
    }
}

/// The idle time of a flow that has not, or has, been answered.
pub(super) fn idle_time(times: FlowTimes, is_answered: bool) -> Duration {
    let seconds = if is_answered { times.answered } else { times.unanswered };
    Duration::from_secs(seconds.max(1).into())
}

/// When a flow ends that was last used at `last`.
pub(super) fn end_of(last: Instant, times: FlowTimes, is_answered: bool) -> Instant {
    last + idle_time(times, is_answered)
}
