//! The times at which an end was dead, and the failures they excuse. Nothing else excuses a
//! failure.

use std::time::{Duration, Instant};

/// A program that started within this time before a process was told to end may have connected
/// after that moment: ssh on a busy machine.
const START_UP: Duration = Duration::from_secs(1);

/// The daemons cut remaining streams this long before their process is gone.
const FAREWELL: Duration = Duration::from_millis(300);

/// One death of a process, until a visitor got through again.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// From this time on, new visitors may be refused.
    closed: Instant,
    /// From this time on, open streams may be cut.
    cut: Instant,
    /// The end of the outage; `None` while it lasts.
    over: Option<Instant>,
}

/// All deaths of a run.
#[derive(Debug, Default)]
pub(super) struct Outages(Vec<Outage>);

/// The time span of a piece of work that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) started: Instant,
    pub(super) ended: Instant,
    /// Whether the work also opens connections after its start.
    pub(super) opens_late: bool,
}

impl Outages {
    /// Records that a process is told to end at `now` and may let open streams finish for `drain`.
    pub(super) fn begin(&mut self, now: Instant, drain: Duration) {
        let cut = now + drain.saturating_sub(FAREWELL);
        self.0.push(Outage { closed: now, cut, over: None });
    }

    /// Records that a visitor got through.
    pub(super) fn end(&mut self, now: Instant) {
        for outage in self.0.iter_mut().filter(|outage| outage.over.is_none()) {
            outage.over = Some(now);
        }
    }

    /// Whether the work was in flight across a death.
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
