//! The moments of a node: the time since its start, by tokio's clock.

use std::time::Duration;

use cluster::Moment;
use tokio::time::Instant;

/// A moment that never comes, for a clock that cannot count so far.
const FAR: Duration = Duration::from_secs(1 << 30);

/// When the node was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock(Instant);

impl NodeClock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The present moment.
    pub(crate) fn now(self) -> Moment {
        Moment(self.0.elapsed())
    }

    /// The instant of a moment.
    pub(crate) fn instant(self, moment: Moment) -> Instant {
        self.0.checked_add(moment.0).unwrap_or_else(|| self.0 + FAR)
    }
}
