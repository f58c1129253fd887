//! Limits a log message to one line per period, however often its cause occurs.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// The period: short enough for the line to be noticed, and long enough not to fill a disk.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Cell<Option<Instant>>,
}

impl Throttle {
    /// Returns whether the line may be written now. If so, starts a new period.
    pub(crate) fn ready(&self) -> bool {
        let now = Instant::now();
        let ready = self.last.get().is_none_or(|last| now.duration_since(last) >= PERIOD);
        if ready {
            self.last.set(Some(now));
        }
        ready
    }
}
