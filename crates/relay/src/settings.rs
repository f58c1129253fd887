//! What all streams of a service (or of a forward) on one worker share.

use std::rc::Rc;
use std::time::Duration;

use crate::{Room, Stats};

/// How long things may take. Zero switches a limit off, except for `dial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Name resolution and connecting together.
    pub dial: Duration,
    /// No byte in either direction. Off by default: an idle shell is not an error.
    pub idle: Duration,
    /// No byte while one direction has ended.
    pub half_close: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // Three SYN retransmissions (1, 2 and 4 s) and the answer to the last.
            dial: Duration::from_secs(10),
            idle: Duration::ZERO,
            // Longer than an application thinks about its last answer, shorter than forgotten
            // half-open sockets would need to fill the descriptor table.
            half_close: Duration::from_secs(60),
        }
    }
}

/// Shared by all streams of a service (or a forward) on one worker.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Where the streams count. The counters survive a change of the settings.
    pub stats: Rc<Stats>,
    /// Descriptors that sockets to targets may take.
    pub room: Room,
}
