//! Timers of a pacer that fire up to a millisecond early instead of late.
//!
//! Between acknowledgements quinn sends a burst each 1.6 ms, and what a late timer would have let pass
//! meanwhile is lost to it. Tokio's timers fire at the next full millisecond: on a path where
//! acknowledgements come in lumps that was a fifth of the pace, so that the window was never filled.
//! Whoever is woken early sends a smaller burst.

use std::time::{Duration, Instant};

/// What tokio's timers count in.
const TICK: Duration = Duration::from_millis(1);

/// The tick that ends before the deadline; what is nearer than a tick gets the one after it, or whoever
/// waits would turn in circles until then.
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
