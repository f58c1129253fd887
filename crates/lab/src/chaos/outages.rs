//! When an end was dead, and what that excuses. Nothing else does.

use std::time::{Duration, Instant};

/// A program that was started so long before a process was told to end may have connected only
/// after it: ssh on a busy machine.
const START_UP: Duration = Duration::from_secs(1);

/// The daemons cut what is left a little before their process is gone.
const FAREWELL: Duration = Duration::from_millis(300);

/// One death of a process, up to the moment when a visitor got through again.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// From here on new visitors may be turned away.
    closed: Instant,
    /// From here on what was open may be cut.
    cut: Instant,
    /// `None` while it lasts.
    over: Option<Instant>,
}

/// All deaths of a run.
#[derive(Debug, Default)]
pub(super) struct Outages(Vec<Outage>);

/// A piece of work that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) started: Instant,
    pub(super) ended: Instant,
    /// Whether it opens connections in mid-work as well.
    pub(super) opens_late: bool,
}

impl Outages {
    /// A process is told to end at `now` and may let open streams finish for `drain`.
    pub(super) fn begin(&mut self, now: Instant, drain: Duration) {
        let cut = now + drain.saturating_sub(FAREWELL);
        self.0.push(Outage { closed: now, cut, over: None });
    }

    /// A visitor got through.
    pub(super) fn end(&mut self, now: Instant) {
        for outage in self.0.iter_mut().filter(|outage| outage.over.is_none()) {
            outage.over = Some(now);
        }
    }

    /// Whether this work was in flight across a death.
    pub(super) fn excuse(&self, work: Span) -> bool {
        self.0.iter().any(|outage| {
            let before_its_end = outage.over.is_none_or(|over| work.started < over);
            let was_cut = work.ended >= outage.cut;
            let is_late = work.opens_late || work.started + START_UP >= outage.closed;
            before_its_end && (was_cut || is_late && work.ended >= outage.closed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_in_flight_across_a_death_is_excused() {
        let zero = Instant::now();
        let at = |seconds| zero + Duration::from_secs(seconds);
        let mut outages = Outages::default();
        outages.begin(at(100), Duration::from_secs(10));
        let excuse = |outages: &Outages, started, ended, opens_late| {
            outages.excuse(Span { started: at(started), ended: at(ended), opens_late })
        };
        assert!(!excuse(&outages, 90, 99, true), "before it");
        assert!(!excuse(&outages, 90, 105, false), "open streams may finish for ten seconds");
        assert!(excuse(&outages, 90, 105, true), "it connects again and again");
        assert!(excuse(&outages, 90, 110, false), "cut");
        assert!(excuse(&outages, 101, 102, false), "turned away");
        outages.end(at(120));
        assert!(excuse(&outages, 119, 130, false), "began before a visitor got through");
        assert!(!excuse(&outages, 121, 122, true), "after it");
    }
}
