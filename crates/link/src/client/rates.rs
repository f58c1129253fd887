//! Whether another path is quicker than one that carries little. It is tried, as nothing else tells: a network
//! that polices UDP looks like a slow line, and so does one that is.
//!
//! ```text
//!   strained --> next path --greeted--> 3 s --quicker--> stays; the preferred one is tried after 1 min, 2, ... 32
//!                                           |--not-----> back; no other trial for 10 min, 20, ... 320
//!                                           +--nothing moved: as after any other change
//! ```

use std::time::Duration;

use tokio::time::Instant;

use super::watch::PREFER_EVERY;
use crate::Link;
use crate::strain::per_second;

/// How long a path is looked at that is tried, and how often. The rate is that of the best such piece, for
/// what there was to carry may be over soon.
const LOOKED_AT: Duration = Duration::from_secs(3);
const PIECE: Duration = Duration::from_millis(500);

/// A path that does not answer within so long is none.
const ANSWERS: Duration = Duration::from_secs(10);

/// After a trial that showed nothing better.
const PATIENCE: Duration = Duration::from_mins(10);

/// Times double so often at most.
const DOUBLED: u32 = 5;

/// A path that was not strained for so long is as good as new.
const GOOD: Duration = Duration::from_mins(10);

/// Which way little was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// Little was carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Little {
    pub(crate) way: Way,
    /// Bytes a second.
    pub(crate) rate: u64,
}

impl Way {
    /// Payload that was carried this way so far.
    fn carried(self, link: &Link) -> u64 {
        let (received, sent, _) = link.totals();
        match self {
            Self::Up => sent.saturating_sub(link.retained()),
            Self::Down => received,
        }
    }
}

/// What a trial showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It is to be kept for so long.
    Quicker(Duration),
    /// The path from which it was tried is as quick.
    NotQuicker(usize),
    /// Nothing moved.
    Nothing,
}

/// What is known of paths by trial.
#[derive(Debug, Default)]
pub(super) struct Rates {
    trial: Option<Trial>,
    /// No trial before.
    patient_until: Option<Instant>,
    /// Trials in sequence that showed a quicker path, and that did not.
    quicker: u32,
    in_vain: u32,
    /// When the path that was left counts as good again, unless it is strained before.
    good_at: Option<Instant>,
}

#[derive(Debug)]
struct Trial {
    from: usize,
    little: Little,
    begun: Instant,
    /// Since when the other path carries.
    looked_at: Option<Instant>,
    last: (Instant, u64),
    best: u64,
}

impl Rates {
    /// Whether to try another path than `from`, which carries little; then it is noted that one is tried.
    pub(super) fn should_try(&mut self, from: usize, little: Little, now: Instant) -> bool {
        let is_late = |trial: &Trial| trial.looked_at.is_none() && now - trial.begun >= ANSWERS;
        if self.trial.as_ref().is_some_and(is_late) {
            self.trial = None;
        }
        if self.trial.is_some() || self.patient_until.is_some_and(|until| now < until) {
            return false;
        }
        let (looked_at, last) = (None, (now, 0));
        self.trial = Some(Trial { from, little, begun: now, looked_at, last, best: 0 });
        true
    }

    /// The link goes on over this path.
    pub(super) fn moved(&mut self, path: usize, link: &Link, now: Instant) {
        let Some(trial) = &mut self.trial else { return };
        if path == trial.from || trial.looked_at.is_some() {
            self.trial = None;
            return;
        }
        trial.looked_at = Some(now);
        trial.last = (now, trial.little.way.carried(link));
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Instant> {
        let trial = self.trial.as_ref()?;
        trial.looked_at.map(|_| trial.last.0 + PIECE)
    }

    /// Looks; what was shown once that is clear.
    pub(super) fn look(&mut self, link: &Link, now: Instant) -> Option<Shown> {
        let trial = self.trial.as_mut()?;
        let since = trial.looked_at?;
        let carried = trial.little.way.carried(link);
        let (at, before) = std::mem::replace(&mut trial.last, (now, carried));
        let rate = per_second(carried.saturating_sub(before), now.duration_since(at));
        trial.best = trial.best.max(rate);
        if now.duration_since(since) < LOOKED_AT {
            return None;
        }
        let Trial { from, little, best, .. } = self.trial.take()?;
        tracing::debug!(link = link.serial(), before = little.rate, after = best, "rates compared");
        Some(self.judge(from, little.rate, best, now))
    }

    fn judge(&mut self, from: usize, before: u64, after: u64, now: Instant) -> Shown {
        if after < before / 2 {
            return Shown::Nothing;
        }
        if after < before / 2 * 3 {
            self.patient_until = Some(now + doubled(PATIENCE, self.in_vain));
            self.in_vain += 1;
            return Shown::NotQuicker(from);
        }
        self.in_vain = 0;
        if self.good_at.is_some_and(|at| now >= at) {
            self.quicker = 0;
        }
        let kept = doubled(PREFER_EVERY, self.quicker);
        self.quicker += 1;
        self.good_at = Some(now + kept + GOOD);
        Shown::Quicker(kept)
    }
}

fn doubled(time: Duration, times: u32) -> Duration {
    time * 2u32.pow(times.min(DOUBLED))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITTLE: Little = Little { way: Way::Up, rate: 100_000 };

    #[tokio::test(start_paused = true)]
    async fn a_path_that_was_left_is_tried_less_and_less_often_while_it_carries_little() {
        let (mut rates, mut now) = (Rates::default(), Instant::now());
        let mut minutes = Vec::new();
        for _ in 0..7 {
            let Shown::Quicker(kept) = rates.judge(0, 100_000, 150_000, now) else { panic!() };
            minutes.push(kept.as_secs() / 60);
            now += kept + Duration::from_secs(5);
        }
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 32]);
        now += GOOD;
        assert_eq!(
            rates.judge(0, 100_000, 150_000, now),
            Shown::Quicker(PREFER_EVERY),
            "it was good"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_path_is_quicker_trials_become_rare() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        assert!(rates.should_try(0, LITTLE, start));
        assert!(!rates.should_try(0, LITTLE, start + PIECE), "one at a time");
        assert!(rates.should_try(0, LITTLE, start + ANSWERS), "that one does not answer");
        rates.trial = None;
        let mut now = start;
        for minutes in [10, 20, 40, 80, 160, 320, 320] {
            assert_eq!(rates.judge(0, 100_000, 149_999, now), Shown::NotQuicker(0));
            let pause = Duration::from_mins(minutes);
            assert!(!rates.should_try(0, LITTLE, now + pause - PIECE), "{minutes}");
            now += pause;
            assert!(rates.should_try(0, LITTLE, now), "{minutes}");
            rates.trial = None;
        }
        assert_eq!(rates.judge(0, 100_000, 49_999, now), Shown::Nothing);
    }
}
