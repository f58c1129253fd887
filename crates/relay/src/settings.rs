//! The settings that all streams of a service (or of a forward) share on one worker.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::resolve::Lookups;
use proto::{Budget, ResetCode};

use crate::dial::DialAccount;
use crate::{Held, Holder, Room, Stats, Watcher};

/// The time-outs of a stream. Zero switches a time-out off, except for `dial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the wait for the turn of the dial, name resolution and connecting together.
    pub dial: Duration,
    /// For a stream in which no byte moves in either direction. Off by default, because an idle
    /// shell is not an error.
    pub idle: Duration,
    /// For a stream in which no byte moves after one direction has ended.
    pub half_close: Duration,
    /// The silence after which the system probes the far end of a TCP socket. It is no time-out of
    /// the stream: a far end that answers is idle for as long as it likes.
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // The time covers three SYN retransmissions (after 1, 2 and 4 s) and the answer to the
            // last.
            dial: Duration::from_secs(10),
            idle: Duration::ZERO,
            // Longer than an application takes for its last answer, and shorter than forgotten
            // half-open sockets need to fill the descriptor table.
            half_close: Duration::from_secs(60),
            keepalive: net::socket::KEEPALIVE,
        }
    }
}

/// The settings that all streams of a service (or of a forward) share on one worker.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The time-outs.
    pub timeouts: Timeouts,
    /// The counters of the streams. They survive a change of the settings.
    pub stats: Rc<Stats>,
    /// The descriptors that sockets to targets may use.
    pub room: Room,
    /// Whose descriptors the sockets to targets are; `None` has no share.
    pub holder: Option<Arc<Holder>>,
    /// How the names of targets are looked up.
    pub lookups: Lookups,
    /// The account of the dials.
    pub dials: DialAccount,
    /// The memory budget of this worker, for visitors that no stream is charged for; `None`:
    /// nothing is charged.
    pub budget: Option<Rc<dyn Budget>>,
    /// Receives the events of the streams.
    pub watcher: Option<Rc<dyn Watcher>>,
}

impl Settings {
    /// Takes memory of the budget for a visitor. `None`: the visitor is counted as refused.
    pub(crate) fn hold(&self, bytes: u64) -> Option<Held> {
        let held = Held::none(self.budget.as_ref());
        if !held.affords(bytes) {
            self.stats.count_refused(ResetCode::Limit);
            return None;
        }
        held.set(bytes);
        Some(held)
    }
}
