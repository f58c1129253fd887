//! Trials of paths during a transfer: the links move to a path for some seconds, and the rate of
//! the transfer is the measurement.

use std::time::Duration;

use tokio::time::Instant;

use super::super::figures::{EQUAL, FASTER, HEADERS, is_more, order};
use super::{Active, BUSY, ChoiceReason, Chooser, NextStep, PAUSE, SeenLinks};

/// The time for which a link must be busy before other paths are tried. A page is over by then.
const BUSY_FOR: Duration = Duration::from_millis(1500);

/// The longest trial of a path, and the time after which a trial ends whose rate grows no more.
const TRIAL: Duration = Duration::from_secs(3);
const SETTLED: Duration = Duration::from_millis(1500);

/// The time in which a link has to be on the path of a trial.
const ARRIVES: Duration = Duration::from_secs(3);

/// The largest number of paths that are tried one after the other, and of trials of a path in which
/// the transfer ended too early.
const AT_ONCE: usize = 3;
pub(super) const IN_VAIN: u32 = 3;

/// The pause between two series of trials while paths are left that were not tried.
const NEXT_TRIALS: Duration = Duration::from_secs(60);

/// The factor by which a transfer must be faster than a trial that found two equal rates, before
/// the path is tried again: the rate was that of the transfer, and not of the paths.
const CLEARER: u64 = 4;

/// The largest number of doublings of a pause between trials that found no faster path.
const DOUBLED: u32 = 5;

/// The age at which a rate is measured again.
const OLD_RATE: Duration = Duration::from_secs(24 * 60 * 60);

/// The rate in bytes per second below which a path counts as policed if another path is faster by a
/// half (`link::strain`).
const LITTLE: u64 = 2_000_000;

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct TrialRate {
    pub(in super::super) path: usize,
    pub(in super::super) direction: usize,
    pub(in super::super) rate: u64,
    pub(in super::super) policed: bool,
}

/// A series of trials.
#[derive(Debug)]
pub(super) struct Series {
    direction: usize,
    /// The path before the trials.
    home: usize,
    /// The rates of the paths that were tried; the first is that of `home`.
    rates: Vec<(usize, u64)>,
    trial: PathTrial,
}

/// The trial of one path.
#[derive(Debug)]
struct PathTrial {
    path: usize,
    /// When the links were told to move.
    begun: Instant,
    /// Since when the links are on the path.
    arrived: Option<Instant>,
    best: u64,
    /// The rate of the last look.
    last: u64,
    /// The number of looks in which the rate did not grow.
    calm: u32,
}

impl Chooser {
    /// The path that a trial is measuring.
    pub(in super::super) fn trial(&self) -> Option<usize> {
        self.series.as_ref().map(|series| series.trial.path)
    }

    /// Records the end of a move.
    pub(in super::super) fn moved(&mut self, path: usize, works: bool) {
        self.moving = None;
        if let Some(series) = self.series.as_mut().filter(|series| series.trial.path == path)
            && !works
            && series.trial.arrived.is_none()
        {
            // The next step ends this trial.
            series.trial.begun -= ARRIVES;
        }
    }

    /// Begins a series of trials during a transfer.
    pub(super) fn begin_series(&mut self, active: usize, seen: &SeenLinks<'_>) -> Option<NextStep> {
        let busy = self.busy?;
        let is_early = self.next_series.is_some_and(|at| seen.now < at);
        if seen.now - busy.since < BUSY_FOR || is_early {
            return None;
        }
        let path = self.next_trial((active, busy.direction), busy.best, seen, &[])?;
        self.series = Some(Series {
            direction: busy.direction,
            home: active,
            rates: vec![(active, busy.best)],
            trial: PathTrial::new(path, seen.now),
        });
        self.begin_move(path)
    }

    /// The path to try next: one of which no rate is known, or one that is remembered as faster.
    fn next_trial(
        &self,
        (home, direction): (usize, usize),
        rate: u64,
        seen: &SeenLinks<'_>,
        tried: &[(usize, u64)],
    ) -> Option<usize> {
        let may_repeat = self.next_repeat.is_none_or(|at| seen.now >= at);
        let is_candidate = |nth: &usize| {
            let Some(path) = seen.paths.get(*nth) else { return false };
            let equal_at = self.equal_at.get(*nth).copied().flatten();
            let is_clearer = equal_at.is_some_and(|equal| rate / CLEARER >= equal);
            let is_tired = self.interrupted.get(*nth).is_none_or(|count| *count >= IN_VAIN);
            let is_over = *nth == home || tried.iter().any(|(of, _)| of == nth);
            let known = path.goodput.get(direction).copied().flatten();
            let is_due = match known {
                Some((_, age)) if age >= OLD_RATE => !is_tired,
                Some((known, _)) => is_clearer || may_repeat && is_more(known, rate, FASTER),
                None => !is_tired,
            };
            !is_over && !path.fails && is_due
        };
        order(seen.paths).into_iter().find(is_candidate)
    }

    /// Goes on with a series of trials.
    pub(super) fn go_on(&mut self, seen: &SeenLinks<'_>) -> Option<NextStep> {
        let mut series = self.series.take()?;
        let trial = &mut series.trial;
        if seen.active != Active::One(trial.path) {
            if trial.arrived.is_none() && seen.now - trial.begun < ARRIVES {
                self.series = Some(series);
                return None;
            }
            // The links did not come, or have lost the path.
            let path = trial.path;
            series.rates.push((path, 0));
            return self.next_of(series, seen);
        }
        let arrived = *trial.arrived.get_or_insert(seen.now);
        if let Some(rates) = seen.rates {
            let rate = rates[series.direction];
            let grows = is_more(rate, trial.best, 10);
            trial.calm = if grows { 0 } else { trial.calm + 1 };
            trial.best = trial.best.max(rate);
            trial.last = rate;
        }
        let age = seen.now - arrived;
        if age < TRIAL && (age < SETTLED || trial.calm < 2) {
            self.series = Some(series);
            return None;
        }
        let (path, best) = (trial.path, trial.best);
        let (_, most) = fastest(&series.rates);
        if best < BUSY || trial.last < best / 4 && best <= most {
            // The transfer is over.
            if let Some(count) = self.interrupted.get_mut(path) {
                *count += 1;
            }
            return self.end(series, seen);
        }
        series.rates.push((path, best));
        self.next_of(series, seen)
    }

    /// Tries the next path of a series, or ends the series.
    fn next_of(&mut self, mut series: Series, seen: &SeenLinks<'_>) -> Option<NextStep> {
        let (_, most) = fastest(&series.rates);
        let next = (series.rates.len() <= AT_ONCE)
            .then(|| self.next_trial((series.home, series.direction), most, seen, &series.rates));
        let Some(next) = next.flatten() else { return self.end(series, seen) };
        series.trial = PathTrial::new(next, seen.now);
        self.series = Some(series);
        self.begin_move(next)
    }

    /// Ends a series: the fastest path is chosen. A path whose connection keeps its window over a
    /// pause comes before a path that is a little faster, unless it is farther: a page after a
    /// pause waits for less.
    fn end(&mut self, series: Series, seen: &SeenLinks<'_>) -> Option<NextStep> {
        let Series { direction, home, rates, .. } = series;
        let own = rates.first().map_or(0, |(_, rate)| *rate);
        let (_, most) = fastest(&rates);
        let keeps = |path: usize| {
            let one = seen.paths.get(path).filter(|one| one.keeps_window);
            let home = seen.paths.get(home);
            one.is_some_and(|one| home.is_none_or(|home| !home.is_nearer_than(one)))
        };
        let keepers: Vec<_> = rates.iter().copied().filter(|(path, _)| keeps(*path)).collect();
        let (_, kept) = fastest(&keepers);
        let (among, top) =
            if is_more(most, kept, HEADERS) { (&rates, most) } else { (&keepers, kept) };
        let equal = among.iter().filter(|(_, rate)| !is_more(top, *rate, EQUAL));
        // The first path of the file, so that chance does not decide.
        let best = equal.map(|(path, _)| *path).min_by_key(|path| (*path != home, *path));
        let percent = if self.has_tried { FASTER } else { EQUAL };
        let is_faster = is_more(most, own, percent);
        let chosen = match best {
            Some(best) if is_faster || !self.has_tried => best,
            Some(_) | None => home,
        };
        let others = rates.iter().filter(|(path, _)| *path != chosen);
        let other = others.copied().max_by_key(|(_, rate)| *rate);
        let was_measured = rates.len() > 1;
        let carried = rates.iter().find(|(path, _)| *path == chosen).map_or(own, |(_, rate)| *rate);
        for (path, rate) in rates.into_iter().filter(|(_, rate)| *rate > 0) {
            let is_equal = !is_more(most, rate, FASTER);
            if let Some(equal_at) = self.equal_at.get_mut(path) {
                *equal_at = is_equal.then_some(rate);
            }
            let policed = rate < LITTLE && is_more(most, rate, 50);
            self.verdicts.push(TrialRate { path, direction, rate, policed });
        }
        self.has_tried |= was_measured;
        if chosen == home {
            self.vain += 1;
            if let Some(other) = other {
                self.take(home, ChoiceReason::NoFaster { own, other });
            }
        } else {
            self.vain = 0;
            self.moved = Some(seen.now);
            let why = match other {
                Some(other) if carried > own => ChoiceReason::Faster { own: carried, other },
                Some(_) | None => ChoiceReason::KeepsWindow { own: carried, other: (home, own) },
            };
            self.take(chosen, why);
        }
        let doubled = PAUSE * 2u32.pow(self.vain.saturating_sub(1).min(DOUBLED));
        (self.next_series, self.next_repeat) =
            (Some(seen.now + NEXT_TRIALS), Some(seen.now + doubled));
        (seen.active != Active::One(chosen)).then(|| self.begin_move(chosen)).flatten()
    }
}

impl PathTrial {
    const fn new(path: usize, now: Instant) -> Self {
        Self { path, begun: now, arrived: None, best: 0, last: 0, calm: 0 }
    }
}

/// The first of the fastest paths.
fn fastest(rates: &[(usize, u64)]) -> (usize, u64) {
    let faster =
        |known: (usize, u64), one: &(usize, u64)| if one.1 > known.1 { *one } else { known };
    rates.iter().fold(rates.first().copied().unwrap_or_default(), faster)
}
