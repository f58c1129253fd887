//! Decides when a group that traffic does not fill is closed with fillers.

use std::time::{Duration, Instant};

/// A timer for the open group, and a budget in bytes for the cost of closing groups.
///
/// A quarter of the round trip is a good delay: parity then arrives well before a retransmission
/// could, and a request of several packets is one group. If all packets of a group are
/// acknowledged, the group needs no parity, and the driver does not ask.
#[derive(Clone, Debug)]
pub struct EarlyClose {
    delay: Duration,
    /// Bytes per second.
    rate: u32,
    /// The time at which the budget is full again.
    whole: Instant,
}

/// The limit of the accumulated budget, as a time at its rate. It suffices for several successive
/// groups.
const SAVED: Duration = Duration::from_secs(1);

impl EarlyClose {
    /// Closes groups `delay` after their first shard, and spends at most `rate` bytes per second.
    /// The budget is full at `now`.
    #[must_use]
    pub const fn new(delay: Duration, rate: u32, now: Instant) -> Self {
        Self { delay, rate, whole: now }
    }

    /// Changes the delay after a change of the round trip.
    pub const fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// When a group is closed that began at `opened` and whose closing costs `bytes` bytes
    /// ([`Encoder::cost_of_closing`](crate::fec::Encoder::cost_of_closing)). `None` if the
    /// cost exceeds the full budget.
    #[must_use]
    pub fn deadline(&self, opened: Instant, bytes: usize) -> Option<Instant> {
        let time = self.time(bytes).filter(|time| *time <= SAVED)?;
        // The budget at time `t` is `SAVED` less the time until the budget is full.
        let affordable = (self.whole + time).checked_sub(SAVED);
        let due = opened + self.delay;
        Some(affordable.map_or(due, |affordable| affordable.max(due)))
    }

    /// Takes `bytes` bytes from the budget.
    pub fn spend(&mut self, bytes: usize, now: Instant) {
        self.whole = self.whole.max(now) + self.time(bytes).unwrap_or(SAVED).min(SAVED);
    }

    /// The time in which the budget grows by `bytes`.
    fn time(&self, bytes: usize) -> Option<Duration> {
        let bytes = u32::try_from(bytes).ok()?;
        (self.rate > 0).then(|| Duration::from_secs(bytes.into()) / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::pair::epoch;

    const DELAY: Duration = Duration::from_millis(25);

    #[test]
    fn a_group_is_closed_after_the_delay_while_the_budget_lasts() {
        let now = epoch();
        let mut close = EarlyClose::new(DELAY, 16_000, now);
        for _ in 0..16 {
            assert_eq!(close.deadline(now, 1000), Some(now + DELAY));
            close.spend(1000, now + DELAY);
        }
        let second = Duration::from_secs(1);
        let next = now + DELAY + second / 16;
        assert_eq!(close.deadline(now, 1000), Some(next), "the budget has to grow");
        assert_eq!(close.deadline(next, 1000), Some(next + DELAY));
        assert_eq!(close.deadline(now, 16_000), Some(now + DELAY + second));
        assert_eq!(close.deadline(now, 16_001), None, "it never has as much");
    }

    #[test]
    fn no_more_than_a_second_is_saved() {
        let now = epoch();
        let mut close = EarlyClose::new(DELAY, 1000, now);
        let later = now + Duration::from_secs(100);
        close.spend(1000, later);
        assert_eq!(close.deadline(later, 1000), Some(later + Duration::from_secs(1)));
        assert_eq!(EarlyClose::new(DELAY, 0, now).deadline(now, 1), None);
    }
}
