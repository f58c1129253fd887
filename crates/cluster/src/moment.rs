//! Time as an argument.

use std::time::Duration;

/// A point in time: the time since an arbitrary start, by a clock that never goes back and that
/// counts the time for which the process was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// The moment that is later by `time`.
    #[must_use]
    pub const fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// The time that has passed since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
