//! Whether several streams of a link receive at a time: then the windows of those that could fill the
//! path are kept so small that the others need not wait behind them.

use std::time::{Duration, Instant};

use crate::StreamKey;

/// Streams that took turns are thought to go on so for this long: somebody who types is one.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Who consumed last, and when it was another one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: Option<StreamKey>,
    changed: Option<Instant>,
}

impl Turns {
    /// Bytes of this stream were consumed.
    pub(super) fn consumed(&mut self, now: Instant, key: StreamKey) {
        if self.last != Some(key) && self.last.replace(key).is_some() {
            self.changed = Some(now);
        }
    }

    /// Whether another stream than the one of now had a turn lately.
    pub(super) fn are_shared(&self, now: Instant) -> bool {
        self.changed.is_some_and(|at| now.saturating_duration_since(at) < SHARED_FOR)
    }
}
