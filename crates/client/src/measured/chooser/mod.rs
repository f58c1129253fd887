//! Decides which path the links to a server use, and which path is measured next. The decision is
//! pure: figures, rates and the time come in, and one step at a time comes out.
//!
//! ```text
//!   new network ── probe each path, at most FIRST ──> the best path
//!   busy for BUSY_FOR ── a trial of TRIAL on each path of which no rate is known ──> the fastest
//!   idle ── a path is nearer by 25 % and 10 ms for NEARER_FOR, at most once in PAUSE ──> that path
//!   another path than the chosen one, after a loss ── a probe in RETURN succeeds ──> back
//! ```
//!
//! ```text
//!   mod.rs      the first choice, the return after a loss, and a path that is nearer
//!   trials.rs   trials of paths during a transfer
//!   reason.rs   why a path is the chosen path
//! ```

mod reason;
mod trials;

use std::time::Duration;

use tokio::time::Instant;

pub(super) use reason::ChoiceReason;
use reason::why;
use trials::Series;
pub(super) use trials::TrialRate;

use super::figures::{DOWN, EQUAL, FASTER, Figures, UP, order};

/// The longest time for the first choice on a network by round trips.
const FIRST: Duration = Duration::from_secs(8);

/// The longest time of a probe. A path that needs longer is not the one to choose.
pub(super) const PROBE: Duration = Duration::from_secs(3);

/// The rate in bytes per second from which a link is busy: 64 kbit/s. TCP carries 100 kbit/s where
/// a tenth of the packets is lost, so a higher rate would miss the paths that are worst.
pub(super) const BUSY: u64 = 8 << 10;

/// The rate in bytes per second from which a queue may be full, so that round trips are those of
/// the queue: 1 Mbit/s.
pub(super) const LOADED: u64 = 128 << 10;

/// The time for which a path must be nearer.
const NEARER_FOR: Duration = Duration::from_secs(60);

/// The interval of the probes that confirm that a path is nearer.
const CONFIRM: Duration = Duration::from_secs(20);

/// The shortest time between two moves from a path that works to another, and between two probes of
/// a path that is not in use.
const PAUSE: Duration = Duration::from_secs(600);

/// How often the chosen path is probed while another path carries the links.
const RETURN: Duration = Duration::from_secs(60);

/// The pause between two attempts to bring links on several paths together.
const TOGETHER: Duration = Duration::from_secs(10);

/// The paths of the links at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Active {
    /// No link has a carrier.
    None,
    /// All links are on this path.
    One(usize),
    /// The links are on different paths.
    Several,
}

/// What is seen at a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenLinks<'a> {
    pub(super) now: Instant,
    /// What is known of each path.
    pub(super) paths: &'a [Figures],
    pub(super) active: Active,
    /// The rates since the last step by direction, in bytes per second; `None`: the links changed
    /// their path meanwhile.
    pub(super) rates: Option<[u64; 2]>,
}

/// A step to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Probe this path, and call [`Chooser::probed`].
    Probe(usize),
    /// Move all links to this path, and call [`Chooser::moved`].
    Move(usize),
}

/// A busy period of the links.
#[derive(Clone, Copy, Debug)]
struct Busy {
    since: Instant,
    direction: usize,
    best: u64,
}

/// The choice of the path to one server.
#[derive(Debug)]
pub(super) struct Chooser {
    chosen: Option<usize>,
    why: ChoiceReason,
    /// Whether figures were known at the start.
    remembers: bool,
    /// Since when the first choice on the network is being made.
    first: Option<Instant>,
    /// The paths that were probed for the first choice.
    asked: Vec<usize>,
    /// The probe under way.
    probing: Option<usize>,
    /// The move under way.
    moving: Option<usize>,
    busy: Option<Busy>,
    series: Option<Series>,
    /// Whether there was a series on this network.
    has_tried: bool,
    /// The number of trials of each path in which the transfer ended.
    interrupted: Vec<u32>,
    next_series: Option<Instant>,
    /// The earliest time of a trial of a path that is remembered as faster.
    next_repeat: Option<Instant>,
    /// The rate of each path whose trial found it equal to the path in use.
    equal_at: Vec<Option<u64>>,
    /// The number of series in a row that found no faster path.
    vain: u32,
    /// Since when a path is nearer than the chosen one.
    nearer: Option<(usize, Instant)>,
    /// When the links moved from a path that worked.
    moved: Option<Instant>,
    /// The earliest time of the next probe of the chosen path while another carries the links.
    return_at: Option<Instant>,
    /// The chosen path has answered the probe.
    returns: bool,
    /// When each path was probed last, by the index of the path.
    probed: Vec<Option<Instant>>,
    verdicts: Vec<TrialRate>,
}

impl Chooser {
    /// A chooser for a network of which these figures are remembered.
    pub(super) fn new(paths: &[Figures]) -> Self {
        Self {
            chosen: None,
            why: ChoiceReason::First,
            remembers: paths.iter().any(|path| path.is_known() || path.fails),
            first: None,
            asked: Vec::new(),
            probing: None,
            moving: None,
            busy: None,
            series: None,
            has_tried: false,
            interrupted: vec![0; paths.len()],
            next_series: None,
            next_repeat: None,
            equal_at: vec![None; paths.len()],
            vain: 0,
            nearer: None,
            moved: None,
            return_at: None,
            returns: false,
            probed: vec![None; paths.len()],
            verdicts: Vec::new(),
        }
    }

    /// The chosen path, and why it is.
    pub(super) fn choice(&self) -> Option<(usize, ChoiceReason)> {
        self.chosen.map(|path| (path, self.why))
    }

    /// Whether rates are needed twice a second.
    pub(super) const fn is_looking_closely(&self) -> bool {
        self.series.is_some() || self.busy.is_some() || self.first.is_some()
    }

    /// Whether the first choice on the network is being made.
    pub(super) const fn chooses_first(&self) -> bool {
        self.first.is_some()
    }

    /// The order in which a new carrier tries the paths.
    pub(super) fn order(&self, paths: &[Figures]) -> Vec<usize> {
        let mut order = order(paths);
        let is_usable = |path: &usize| paths.get(*path).is_some_and(|path| !path.fails);
        if let Some(chosen) = self.chosen.filter(is_usable) {
            order.retain(|path| *path != chosen);
            order.insert(0, chosen);
        }
        order
    }

    /// Takes the results of trials.
    pub(super) fn take_verdicts(&mut self) -> Vec<TrialRate> {
        std::mem::take(&mut self.verdicts)
    }

    /// Records that a command has moved the links to a path, which is kept for a while.
    pub(super) fn commanded(&mut self, path: usize, now: Instant) {
        self.take(path, ChoiceReason::Commanded);
        (self.series, self.first) = (None, None);
        self.moved = Some(now);
        (self.next_series, self.next_repeat) = (Some(now + PAUSE), Some(now + PAUSE));
    }

    /// Records the end of a probe.
    pub(super) fn probed(&mut self, path: usize, works: bool, now: Instant) {
        self.probing = None;
        if let Some(at) = self.probed.get_mut(path) {
            *at = Some(now);
        }
        self.returns = works && self.chosen == Some(path);
    }

    /// Records that the answer to a probe has waited in a full queue, so that the round trip of the
    /// path is not known. The path is probed again as soon as little is carried.
    pub(super) fn probe_was_in_queue(&mut self, path: usize) {
        if let Some(at) = self.probed.get_mut(path) {
            *at = None;
        }
    }

    /// Records that a probe could not begin, because the link dialled another path. The first
    /// choice tries the path again.
    pub(super) fn probe_was_put_off(&mut self, path: usize, now: Instant) {
        if self.first.is_some() {
            self.probing = None;
            self.asked.retain(|asked| *asked != path);
        } else {
            self.probed(path, false, now);
        }
    }

    /// Records that a path is available which was not: the next step may probe it, whatever the
    /// time of the last probe.
    pub(super) fn is_available_again(&mut self, path: usize, now: Instant) {
        if let Some(at) = self.probed.get_mut(path) {
            *at = None;
        }
        if self.chosen == Some(path) {
            self.return_at = Some(now);
        }
    }

    /// Decides on the next step.
    pub(super) fn step(&mut self, seen: &SeenLinks<'_>) -> Option<NextStep> {
        if seen.paths.len() < 2 || self.moving.is_some() {
            return None;
        }
        if seen.active == Active::None {
            // After a loss the order of the paths decides.
            self.series = None;
        }
        if self.series.is_some() {
            return self.go_on(seen);
        }
        let active = match seen.active {
            Active::None => {
                self.busy = None;
                return None;
            }
            Active::Several => return self.bring_together(seen),
            Active::One(path) => path,
        };
        let Some(chosen) = self.chosen else {
            self.chosen = Some(active);
            self.why = if self.remembers { ChoiceReason::Remembered } else { ChoiceReason::First };
            self.first = Some(seen.now);
            return None;
        };
        self.note_busy(seen);
        if active != chosen {
            return self.go_back(chosen, seen);
        }
        (self.return_at, self.returns) = (None, false);
        if let Some(began) = self.first {
            return self.choose_first(active, began, seen);
        }
        if let Some(step) = self.begin_series(active, seen) {
            return Some(step);
        }
        if self.busy.is_some_and(|busy| busy.best >= LOADED) {
            self.nearer = None;
            return None;
        }
        self.look_around(active, seen)
    }

    fn note_busy(&mut self, seen: &SeenLinks<'_>) {
        let Some(rates) = seen.rates else {
            self.busy = None;
            return;
        };
        let direction = if rates[DOWN] >= rates[UP] { DOWN } else { UP };
        let rate = rates[direction];
        self.busy = match self.busy {
            _ if rate < BUSY => None,
            Some(busy) if busy.direction == direction => {
                // The best of the last seconds.
                Some(Busy { best: rate.max(busy.best - busy.best / 8), ..busy })
            }
            Some(_) | None => Some(Busy { since: seen.now, direction, best: rate }),
        };
    }

    /// Brings links on several paths to the chosen path.
    fn bring_together(&mut self, seen: &SeenLinks<'_>) -> Option<NextStep> {
        self.busy = None;
        let to = self.chosen.or_else(|| order(seen.paths).first().copied())?;
        let is_usable = seen.paths.get(to).is_some_and(|path| !path.fails);
        if !is_usable || self.return_at.is_some_and(|at| seen.now < at) {
            return None;
        }
        self.return_at = Some(seen.now + TOGETHER);
        self.begin_move(to)
    }

    /// Returns to the chosen path, from another path after a loss.
    fn go_back(&mut self, chosen: usize, seen: &SeenLinks<'_>) -> Option<NextStep> {
        if std::mem::take(&mut self.returns) {
            return self.begin_move(chosen);
        }
        let at = *self.return_at.get_or_insert(seen.now + RETURN);
        if seen.now < at || self.probing.is_some() {
            return None;
        }
        self.return_at = Some(seen.now + RETURN);
        self.begin_probe(chosen)
    }

    const fn begin_probe(&mut self, path: usize) -> Option<NextStep> {
        self.probing = Some(path);
        Some(NextStep::Probe(path))
    }

    const fn begin_move(&mut self, path: usize) -> Option<NextStep> {
        self.moving = Some(path);
        self.busy = None;
        Some(NextStep::Move(path))
    }

    /// Probes the paths of which nothing is known on this network, and chooses the best.
    fn choose_first(
        &mut self,
        active: usize,
        began: Instant,
        seen: &SeenLinks<'_>,
    ) -> Option<NextStep> {
        let is_late = seen.now - began >= FIRST;
        if self.probing.is_some() && !is_late {
            return None;
        }
        let is_new = |nth: &usize| {
            *nth != active
                && !self.asked.contains(nth)
                && seen.paths.get(*nth).is_some_and(|path| path.rtt.is_none())
        };
        let next = (0..seen.paths.len()).find(is_new);
        if let Some(next) = next.filter(|_| !is_late) {
            self.asked.push(next);
            return self.begin_probe(next);
        }
        // Without the round trip of the active path there is nothing to compare.
        let own = seen.paths.get(active)?;
        if own.rtt.is_none() && !is_late {
            return None;
        }
        self.first = None;
        let best = *order(seen.paths).first()?;
        let other = seen.paths.get(best)?;
        if best == active || !other.is_nearer_than(own) && !other.is_faster_than(own, EQUAL) {
            return None;
        }
        self.take(best, why(seen.paths, best, active)?);
        self.begin_move(best)
    }

    /// Probes the paths that are not in use, and moves to a path that stays nearer.
    fn look_around(&mut self, active: usize, seen: &SeenLinks<'_>) -> Option<NextStep> {
        let own = seen.paths.get(active)?;
        let nearer = |nth: &usize| {
            let Some(path) = seen.paths.get(*nth) else { return false };
            !path.fails && path.is_nearer_than(own) && !own.is_faster_than(path, FASTER)
        };
        let rival = (0..seen.paths.len()).filter(nearer).min_by_key(|nth| seen.paths[*nth].rtt);
        self.nearer = rival.map(|rival| match self.nearer {
            Some((known, since)) if known == rival => (rival, since),
            Some(_) | None => (rival, seen.now),
        });
        let since_probe = |nth: usize| {
            let at = self.probed.get(nth).copied().flatten();
            at.map(|at| seen.now - at)
        };
        if let Some((rival, since)) = self.nearer {
            let is_fresh = since_probe(rival).is_some_and(|age| age < CONFIRM);
            let may_move = self.moved.is_none_or(|moved| seen.now - moved >= PAUSE);
            if is_fresh && may_move && seen.now - since >= NEARER_FOR {
                self.moved = Some(seen.now);
                self.take(rival, why(seen.paths, rival, active)?);
                return self.begin_move(rival);
            }
            if !is_fresh && may_move && self.probing.is_none() {
                return self.begin_probe(rival);
            }
        }
        // A path that was measured before this process began is probed when its figure is as old.
        let is_due = |nth: &usize| {
            let age = seen.paths.get(*nth).and_then(|path| path.rtt).map(|(_, age)| age);
            let since = since_probe(*nth).or(age).unwrap_or(PAUSE);
            *nth != active && since >= PAUSE
        };
        let due = (0..seen.paths.len()).find(is_due).filter(|_| self.probing.is_none())?;
        self.begin_probe(due)
    }

    fn take(&mut self, path: usize, why: ChoiceReason) {
        self.chosen = Some(path);
        self.why = why;
        self.nearer = None;
        self.return_at = None;
    }
}

#[cfg(test)]
mod tests;
