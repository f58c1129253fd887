//! When the timer of a pacer fires: up to a millisecond early instead of late.
//!
//! Between acknowledgements quinn sends a burst every 1.6 ms. If a timer is late, quinn does not
//! send the delayed bytes later. Tokio's timers fire at the next full millisecond. On a path with
//! aggregated acknowledgements, late timers cost a fifth of the rate, so that the window was never
//! filled. A sender that wakes early sends a smaller burst.

use std::time::{Duration, Instant};

/// Resolution of Tokio's timers.
const TICK: Duration = Duration::from_millis(1);

/// The time for which to set a timer: one tick before `deadline`. A deadline within the next tick
/// is kept, otherwise the waiting task would spin until the deadline.
#[must_use]
pub fn fires(now: Instant, deadline: Instant) -> Instant {
    let early = deadline.checked_sub(TICK).filter(|early| *early > now);
    early.unwrap_or(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn a_timer_fires_a_tick_before_its_deadline_unless_that_is_now() {
        let now = epoch();
        let (far, near) = (now + 10 * TICK, now + TICK / 2);
        assert_eq!(fires(now, far), far - TICK);
        assert_eq!(fires(far - TICK, far), far);
        assert_eq!(fires(now, near), near);
        assert_eq!(fires(far, now), now);
    }
}
