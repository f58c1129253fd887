//! Decides by a trial whether another path is faster than a path with a low rate. Statistics are
//! not sufficient, because a network that polices UDP looks like a slow line.
//!
//! ```text
//!   strained --> next path --greeted--> 3 s --faster---> kept; the preferred path is
//!                 |                      |               tried after 1 min, 2, ... 32
//!                 |                      |--not faster---> back; then the path after it;
//!                 |                      |               once all paths were tried, no
//!                 |                      |               trial for 10 min, 20, ... 320
//!                 |                      +--no byte moved: as after any other change
//!                 +--no answer: the path after it; once all were tried, after 1 min, 2, ... 32
//! ```

use std::time::Duration;

use tokio::time::Instant;

use crate::inner::Link;
use crate::notices::{Direction, LowRate};
use crate::strain::per_second;

/// How often a preferred path is tried while another path carries the link.
pub(super) const PREFER_EVERY: Duration = Duration::from_secs(60);

/// The duration of a trial; [`PIECE`] is that of the intervals in which its rate is measured. The
/// rate of a trial is the rate of its best interval, because the transfer may end during the trial.
const LOOKED_AT: Duration = Duration::from_secs(3);
const PIECE: Duration = Duration::from_millis(500);

/// A path that does not answer within this time counts as failed.
const ANSWERS: Duration = Duration::from_secs(10);

/// The first pause after trials that found no faster path.
const PATIENCE: Duration = Duration::from_mins(10);

/// The maximum number of doublings of a pause.
const DOUBLED: u32 = 5;

/// The time without strain after which the history of a path is cleared.
const GOOD: Duration = Duration::from_mins(10);

impl Direction {
    /// Payload bytes that were carried in this direction so far.
    fn carried(self, link: &Link) -> u64 {
        let (received, sent, _) = link.totals();
        match self {
            Self::Up => sent.saturating_sub(link.retained()),
            Self::Down => received,
        }
    }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialResult {
    /// The path is faster. It is kept for at least this time.
    Quicker(Duration),
    /// The path is not faster than the original path, which has this index.
    NotQuicker(usize),
    /// No bytes moved: the transfer was over.
    Nothing,
}

/// The results of earlier trials.
#[derive(Debug, Default)]
pub(super) struct Rates {
    trial: Option<Trial>,
    /// The earliest time of the next trial.
    patient_until: Option<Instant>,
    /// The numbers of successive trials that found a faster path, of successive rounds that found
    /// no faster path, and of successive rounds in which no path answered.
    quicker: u32,
    in_vain: u32,
    unanswered: u32,
    /// The position of the next path among the other paths.
    next: usize,
    /// The time from which the previous path counts as good again, unless it is strained earlier.
    good_at: Option<Instant>,
}

#[derive(Debug)]
struct Trial {
    from: usize,
    to: usize,
    low_rate: LowRate,
    begun: Instant,
    /// The time since which the other path carries the link.
    looked_at: Option<Instant>,
    last: (Instant, u64),
    best: u64,
}

impl Rates {
    /// Selects the path to try instead of `from`, one of `count` paths, which has a low rate.
    /// Starts the trial.
    pub(super) fn choose(
        &mut self,
        from: usize,
        count: usize,
        low_rate: LowRate,
        now: Instant,
    ) -> Option<usize> {
        let others = count.checked_sub(1).filter(|others| *others > 0)?;
        if self.trial.as_ref().is_some_and(|trial| trial.is_late(now)) {
            self.unanswered(others, now);
        }
        if self.trial.is_some() || self.patient_until.is_some_and(|until| now < until) {
            return None;
        }
        let to = (from + 1 + self.next % others) % count;
        let (looked_at, last) = (None, (now, 0));
        self.trial = Some(Trial { from, to, low_rate, begun: now, looked_at, last, best: 0 });
        Some(to)
    }

    /// Whether a tried path has not answered yet.
    pub(super) fn is_asking(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.looked_at.is_none())
    }

    /// Cancels the trial, because the carrier is silent or lost. A path that answers now does not
    /// answer the trial.
    pub(super) fn forget_trial(&mut self) {
        self.trial = None;
    }

    /// Records that the tried path failed.
    pub(super) fn unanswered(&mut self, others: usize, now: Instant) {
        self.trial = None;
        if self.advance(others) {
            self.patient_until = Some(now + doubled(PREFER_EVERY, self.unanswered));
            self.unanswered += 1;
        }
    }

    /// Advances to the next of the other paths. Returns true when all were tried.
    fn advance(&mut self, others: usize) -> bool {
        self.next = (self.next + 1) % others.max(1);
        self.next == 0
    }

    /// Records that the link continues over this path.
    pub(super) fn moved(&mut self, path: usize, link: &Link, now: Instant) {
        let Some(trial) = &mut self.trial else { return };
        // The change is due to another attempt, or is a second change during the trial.
        if path != trial.to || trial.looked_at.is_some() || trial.is_late(now) {
            self.trial = None;
            return;
        }
        trial.looked_at = Some(now);
        trial.last = (now, trial.low_rate.direction.carried(link));
    }

    /// The time of the next measurement.
    pub(super) fn next(&self) -> Option<Instant> {
        let trial = self.trial.as_ref()?;
        trial.looked_at.map(|_| trial.last.0 + PIECE)
    }

    /// Measures the rate. Returns the result once it is known.
    pub(super) fn look(&mut self, link: &Link, count: usize, now: Instant) -> Option<TrialResult> {
        let trial = self.trial.as_mut()?;
        let since = trial.looked_at?;
        let carried = trial.low_rate.direction.carried(link);
        let (at, before) = std::mem::replace(&mut trial.last, (now, carried));
        let rate = per_second(carried.saturating_sub(before), now.duration_since(at));
        trial.best = trial.best.max(rate);
        if now.duration_since(since) < LOOKED_AT {
            return None;
        }
        let Trial { from, low_rate, best, .. } = self.trial.take()?;
        tracing::debug!(
            link = link.serial(),
            before = low_rate.rate,
            after = best,
            "rates compared"
        );
        Some(self.judge(from, count.saturating_sub(1), [low_rate.rate, best], now))
    }

    /// Compares the rates before and during the trial.
    fn judge(&mut self, from: usize, others: usize, rates: [u64; 2], now: Instant) -> TrialResult {
        let [before, after] = rates;
        self.unanswered = 0;
        if after == 0 {
            self.patient_until = Some(now + PREFER_EVERY);
            return TrialResult::Nothing;
        }
        if after < before.saturating_add(before / 2) {
            if self.advance(others) {
                self.patient_until = Some(now + doubled(PATIENCE, self.in_vain));
                self.in_vain += 1;
            }
            return TrialResult::NotQuicker(from);
        }
        self.in_vain = 0;
        if self.good_at.is_some_and(|at| now >= at) {
            self.quicker = 0;
        }
        let kept = doubled(PREFER_EVERY, self.quicker);
        self.quicker += 1;
        self.good_at = Some(now + kept + GOOD);
        TrialResult::Quicker(kept)
    }
}

impl Trial {
    fn is_late(&self, now: Instant) -> bool {
        self.looked_at.is_none() && now - self.begun >= ANSWERS
    }
}

fn doubled(time: Duration, times: u32) -> Duration {
    time * 2u32.pow(times.min(DOUBLED))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW_RATE: LowRate = LowRate { direction: Direction::Up, rate: 100_000 };

    #[tokio::test(start_paused = true)]
    async fn a_path_that_was_left_is_tried_less_and_less_often_while_it_carries_little() {
        let (mut rates, mut now) = (Rates::default(), Instant::now());
        let mut minutes = Vec::new();
        for _ in 0..7 {
            let shown = rates.judge(0, 1, [100_000, 150_000], now);
            let TrialResult::Quicker(kept) = shown else { panic!() };
            minutes.push(kept.as_secs() / 60);
            now += kept + Duration::from_secs(5);
        }
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 32]);
        now += GOOD;
        let shown = rates.judge(0, 1, [100_000, 150_000], now);
        assert_eq!(shown, TrialResult::Quicker(PREFER_EVERY), "it was good");
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_path_is_quicker_trials_become_rare() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        assert_eq!(rates.choose(0, 2, LOW_RATE, start), Some(1));
        assert_eq!(rates.choose(0, 2, LOW_RATE, start + PIECE), None, "one at a time");
        let mut now = start;
        // A rate that is equal, and a tenth of it.
        for (minutes, after) in
            [10, 20, 40, 80, 160, 320, 320].into_iter().zip([149_999, 10_000].into_iter().cycle())
        {
            rates.trial = None;
            assert_eq!(rates.judge(0, 1, [100_000, after], now), TrialResult::NotQuicker(0));
            let pause = Duration::from_mins(minutes);
            assert_eq!(rates.choose(0, 2, LOW_RATE, now + pause - PIECE), None, "{minutes}");
            now += pause;
            assert_eq!(rates.choose(0, 2, LOW_RATE, now), Some(1), "{minutes}");
        }
        rates.trial = None;
        assert_eq!(rates.judge(0, 1, [100_000, 0], now), TrialResult::Nothing);
        assert_eq!(rates.choose(0, 2, LOW_RATE, now + PREFER_EVERY - PIECE), None);
        assert_eq!(rates.choose(0, 2, LOW_RATE, now + PREFER_EVERY), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_the_other_paths_is_tried_before_there_is_a_pause() {
        let (mut rates, mut now) = (Rates::default(), Instant::now());
        assert_eq!(rates.choose(1, 4, LOW_RATE, now), Some(2));
        assert!(rates.is_asking());
        now += ANSWERS;
        assert_eq!(rates.choose(1, 4, LOW_RATE, now), Some(3), "that one does not answer");
        rates.trial = None;
        assert_eq!(rates.judge(1, 3, [100_000, 100_000], now), TrialResult::NotQuicker(1));
        assert_eq!(rates.choose(1, 4, LOW_RATE, now), Some(0));
        rates.unanswered(3, now);
        assert_eq!(
            rates.choose(1, 4, LOW_RATE, now + PREFER_EVERY - PIECE),
            None,
            "these were all"
        );
        assert_eq!(rates.choose(1, 4, LOW_RATE, now + PREFER_EVERY), Some(2));
        // A fast path stays the first path of the next trial.
        rates.trial = None;
        assert!(matches!(rates.judge(1, 3, [100_000, 900_000], now), TrialResult::Quicker(_)));
        assert_eq!(rates.choose(1, 4, LOW_RATE, now + PREFER_EVERY), Some(2));
        assert_eq!(rates.choose(0, 1, LOW_RATE, now + PATIENCE), None, "there is no other");
    }
}
