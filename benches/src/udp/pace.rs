//! When a sender sends how much.

use std::time::{Duration, Instant};

/// The pause between two bursts: shorter pauses cost more system calls than the datagrams of a
/// burst at the rates of a machine with two cores.
pub(super) const TICK: Duration = Duration::from_micros(250);

/// A sender that was kept from sending for longer does not make up for it: the burst would measure
/// the queues and not the rate.
const BEHIND: Duration = Duration::from_millis(4);

/// The datagrams of a sender with a given rate.
#[derive(Debug)]
pub(super) struct Pace {
    /// Datagrams per second.
    rate: f64,
    /// From when on the rate counts.
    since: Instant,
    sent: u64,
}

impl Pace {
    pub(super) const fn new(rate: f64, now: Instant) -> Self {
        Self { rate, since: now, sent: 0 }
    }

    /// The number of datagrams that are due.
    pub(super) fn due(&mut self, now: Instant) -> u64 {
        let due = self.owed(now);
        let most = (self.rate * BEHIND.as_secs_f64()) as u64 + 1;
        if due > most {
            // The time that was missed does not count.
            self.since = now.checked_sub(BEHIND).unwrap_or(now);
            self.sent = 0;
            return most;
        }
        due
    }

    fn owed(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.since).as_secs_f64();
        ((elapsed * self.rate) as u64).saturating_sub(self.sent)
    }

    pub(super) const fn sent(&mut self, count: u64) {
        self.sent += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_on_the_whole_whatever_the_ticks() {
        let start = Instant::now();
        let mut pace = Pace::new(123_456.0, start);
        let (mut sum, mut now) = (0, start);
        for tick in 0..10_000_u32 {
            now += TICK + Duration::from_micros(u64::from(tick % 90));
            let due = pace.due(now);
            pace.sent(due);
            sum += due;
        }
        let wanted = (now - start).as_secs_f64() * 123_456.0;
        assert!((sum as f64 - wanted).abs() <= 1.0, "{sum} {wanted}");
    }

    #[test]
    fn a_sender_that_slept_does_not_make_up_for_it() {
        let start = Instant::now();
        let mut pace = Pace::new(1e6, start);
        let late = start + Duration::from_secs(1);
        let due = pace.due(late);
        assert_eq!(due, 4_001);
        pace.sent(due);
        assert!((249..=251).contains(&pace.due(late + TICK)));
    }
}
