//! The moments of a node: the time since its start, by tokio's clock, and the time for which the
//! machine was suspended meanwhile. The engine counts a lease on while a machine sleeps, and
//! `CLOCK_MONOTONIC` stands still.
//!
//! A timer of tokio that was set before the machine slept fires late by the time for which it
//! slept, 3 s at most. Each input of the node has the right moment before that, so a visitor who
//! comes first is not served by a lease that has ended.

use std::time::Duration;

use cluster::Moment;
use tokio::time::Instant;

/// A moment that never comes, for a clock that cannot count so far.
const FAR: Duration = Duration::from_secs(1 << 30);

/// When the node was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock {
    start: Instant,
    /// The time for which the machine was suspended since its boot.
    suspended: fn() -> Duration,
    /// That time at the start of the node.
    before: Duration,
}

impl NodeClock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self::with(suspended)
    }

    fn with(suspended: fn() -> Duration) -> Self {
        Self { start: Instant::now(), suspended, before: suspended() }
    }

    fn slept(self) -> Duration {
        (self.suspended)().saturating_sub(self.before)
    }

    /// The present moment.
    pub(crate) fn now(self) -> Moment {
        Moment(self.start.elapsed().saturating_add(self.slept()))
    }

    /// The instant of a moment, if the machine is not suspended until then.
    pub(crate) fn instant(self, moment: Moment) -> Instant {
        let awake = moment.0.saturating_sub(self.slept());
        self.start.checked_add(awake).unwrap_or_else(|| self.start + FAR)
    }
}

/// The time for which the machine was suspended since its boot, in whole milliseconds, so that the
/// time between two clocks that are read one after the other does not count.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    let duration = |time: Timespec| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let boot = duration(clock_gettime(ClockId::Boottime));
    // Read last, so that a pause between the two makes the time shorter, never longer.
    let awake = duration(clock_gettime(ClockId::Monotonic));
    let slept = boot.saturating_sub(awake);
    Duration::from_millis(u64::try_from(slept.as_millis()).unwrap_or(u64::MAX))
}

/// Not known on this system: a node that sleeps longer than its lease finds out by its next
/// renewal.
#[cfg(not(target_os = "linux"))]
const fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::advance;

    use super::*;

    static SLEPT: AtomicU64 = AtomicU64::new(1_000);

    #[tokio::test(start_paused = true)]
    async fn the_time_for_which_the_machine_sleeps_counts() {
        let clock = NodeClock::with(|| Duration::from_secs(SLEPT.load(Ordering::Relaxed)));
        let second = Duration::from_secs(1);
        advance(second).await;
        assert_eq!(clock.now(), Moment(second));
        let deadline = clock.instant(Moment(second * 11));
        assert_eq!(deadline - Instant::now(), second * 10);
        SLEPT.store(1_008, Ordering::Relaxed);
        assert_eq!(clock.now(), Moment(second * 9));
        assert_eq!(clock.instant(Moment(second * 11)) - Instant::now(), second * 2);
        SLEPT.store(1_020, Ordering::Relaxed);
        assert!(clock.instant(Moment(second * 11)) <= Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_this_machine_goes_on_with_that_of_tokio() {
        let clock = NodeClock::start();
        advance(Duration::from_secs(5)).await;
        let jitter = clock.now().0.abs_diff(Duration::from_secs(5));
        assert!(jitter <= Duration::from_millis(100), "{jitter:?}");
    }
}
