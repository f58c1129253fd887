//! When a client asks for its servers, as a plain value: time and random numbers come in.
//!
//! ```text
//!             at the start, each `every`, without a live link
//!   Resting ----------------------------------------------------> Asked
//!      ^                                                            |
//!      |        answered: `every`; failed: 1 s to 60 s              |
//!      +------------------------------------------------------------+
//! ```
//!
//! The driver asks when [`Asking::poll_ask`] says so, and reports each outcome before it polls
//! again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between a question and the next one that only the loss of all links causes.
/// A fleet whose server is gone asks the API with all its clients.
pub(crate) const OUTAGE: Duration = Duration::from_secs(10);

/// The time within which the clients of a fleet ask after the loss of all links, at random.
const SPREAD: Duration = Duration::from_secs(2);

/// The first pause after a failure, and the longest. A client may have no server until an answer
/// comes.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// The bounds of the time that an answer may ask for.
const EVERY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_hours(24));

/// The severity of the log line about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The first failure of its kind since the last answer.
    Warning,
    /// A failure of a kind that was logged already.
    Repeated,
}

/// The question that a client has asked before it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstQuestion {
    /// The time of the outcome.
    pub(crate) at: Instant,
    /// The time after which the source wants to be asked again; an error: there was no answer.
    pub(crate) wish: Result<Option<Duration>, ()>,
}

/// Decides when to ask. `K` is the kind of a failure.
#[derive(Debug)]
pub(crate) struct Asking<K> {
    every: Duration,
    /// The time of the next question.
    due: Instant,
    /// When the last question began.
    asked: Option<Instant>,
    is_asked: bool,
    /// Whether the loss of all links has set the time of the next question. Each attempt to connect
    /// reports the loss again, and must not draw again.
    is_hurried: bool,
    /// Whether all links were lost while a question was under way: the answer may be older.
    has_outage: bool,
    /// The number of failures since the last answer, and their kinds.
    failures: u32,
    kinds: BTreeSet<K>,
}

impl<K: Ord> Asking<K> {
    /// The first question is due at once.
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            due: now,
            asked: None,
            is_asked: false,
            is_hurried: false,
            has_outage: false,
            failures: 0,
            kinds: BTreeSet::new(),
        }
    }

    /// The first question was asked before, by [`FirstQuestion`]. `draw` is a random number from 0
    /// to 1.
    pub(crate) fn after(every: Duration, first: FirstQuestion, draw: f64) -> Self {
        let FirstQuestion { at, wish } = first;
        let mut asking = Self { asked: Some(at), ..Self::new(every, at) };
        match wish {
            Ok(wish) => drop(asking.handle_answer(wish, draw, at)),
            // The log has a line about it, and the first pause is short.
            Err(()) => asking.due = at + RETRY.0,
        }
        asking
    }

    /// Whether to ask now. If so, an outcome has to follow.
    pub(crate) fn poll_ask(&mut self, now: Instant) -> bool {
        if self.is_asked || now < self.due {
            return false;
        }
        (self.is_asked, self.asked) = (true, Some(now));
        self.is_hurried = false;
        true
    }

    /// The time of the next question. `None`: a question is under way.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_asked).then_some(self.due)
    }

    /// Records an answer, and the time after which its source wants to be asked again. `draw` is a
    /// random number from 0 to 1. Returns whether questions failed before.
    pub(crate) fn handle_answer(
        &mut self,
        wish: Option<Duration>,
        draw: f64,
        now: Instant,
    ) -> bool {
        self.is_asked = false;
        let pause = wish.unwrap_or(self.every).clamp(EVERY.0, EVERY.1);
        // Clients that started together do not ask together for ever.
        self.due = now + pause.mul_f64(1.0 - 0.1 * draw);
        self.kinds.clear();
        let failed = std::mem::take(&mut self.failures) > 0;
        if std::mem::take(&mut self.has_outage) {
            self.handle_outage(draw, now);
        }
        failed
    }

    /// Records a failure of this kind; the former servers stay. `draw` is a random number from 0 to
    /// 1.
    pub(crate) fn handle_failure(&mut self, kind: K, draw: f64, now: Instant) -> Weight {
        self.is_asked = false;
        // The pause of a failure is short enough for an outage.
        self.has_outage = false;
        let pause = RETRY.0.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        let pause = pause.min(RETRY.1);
        self.failures = self.failures.saturating_add(1).min(16);
        self.due = now + pause / 2 + (pause / 2).mul_f64(draw);
        if self.kinds.insert(kind) { Weight::Warning } else { Weight::Repeated }
    }

    /// Records that no link of any server is live. `draw` is a random number from 0 to 1.
    pub(crate) fn handle_outage(&mut self, draw: f64, now: Instant) {
        if self.is_asked {
            self.has_outage = true;
            return;
        }
        // A source that fails is asked again within a minute in any case, and a whole fleet that
        // asks at once would not help it.
        if self.failures > 0 || std::mem::replace(&mut self.is_hurried, true) {
            return;
        }
        let least = self.asked.map_or(now, |asked| now.max(asked + OUTAGE));
        self.due = self.due.min(least + SPREAD.mul_f64(draw));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_mins(5);

    struct Clock {
        asking: Asking<&'static str>,
        start: Instant,
    }

    impl Clock {
        fn new() -> Self {
            let start = Instant::now();
            Self { asking: Asking::new(EVERY, start), start }
        }

        fn at(&self, seconds: f64) -> Instant {
            self.start + Duration::from_secs_f64(seconds)
        }

        /// The second of the next question.
        fn due(&self) -> f64 {
            (self.asking.poll_timeout().unwrap() - self.start).as_secs_f64()
        }

        /// Asks when the question is due, and returns the second.
        fn ask(&mut self) -> f64 {
            let due = self.due();
            let before = self.at(due) - Duration::from_millis(1);
            assert!(due < 0.001 || !self.asking.poll_ask(before));
            assert!(self.asking.poll_ask(self.at(due)));
            assert!(self.asking.poll_timeout().is_none());
            assert!(!self.asking.poll_ask(self.at(due + 1e6)), "a question is under way");
            due
        }

        fn answer(&mut self, wish: Option<u64>, second: f64) -> bool {
            let now = self.at(second);
            self.asking.handle_answer(wish.map(Duration::from_secs), 0.0, now)
        }
    }

    #[test]
    fn the_first_question_is_asked_at_once_and_the_next_after_the_time_of_the_answer() {
        let mut clock = Clock::new();
        assert!(clock.ask() < 0.001);
        assert!(!clock.answer(None, 2.0));
        assert!((clock.ask() - 302.0).abs() < 0.001);
        for (wish, pause) in [(30, 30.0), (0, 10.0), (1_000_000, 86_400.0)] {
            let now = clock.at(1_000.0);
            clock.asking.handle_answer(Some(Duration::from_secs(wish)), 0.0, now);
            assert!((clock.due() - 1_000.0 - pause).abs() < 0.001, "{wish}");
        }
        let now = clock.at(0.0);
        clock.asking.handle_answer(None, 1.0, now);
        assert!((clock.due() - 270.0).abs() < 0.001, "a tenth of the time is random");
    }

    #[test]
    fn a_question_before_the_start_counts_as_the_first() {
        let start = Instant::now();
        let due = |wish| {
            let first = FirstQuestion { at: start, wish };
            let mut asking = Asking::<()>::after(EVERY, first, 0.0);
            assert!(!asking.poll_ask(start), "it was asked a moment ago");
            (asking.poll_timeout().unwrap() - start).as_secs()
        };
        assert_eq!(due(Ok(None)), 300);
        assert_eq!(due(Ok(Some(Duration::from_secs(30)))), 30);
        assert_eq!(due(Err(())), 1);
        // A server that is away at the start is asked for at most once in 10 s.
        let mut asking =
            Asking::<()>::after(EVERY, FirstQuestion { at: start, wish: Ok(None) }, 0.0);
        asking.handle_outage(0.0, start);
        assert_eq!(asking.poll_timeout(), Some(start + OUTAGE));
    }

    #[test]
    fn failures_are_repeated_after_growing_pauses_and_an_answer_ends_them() {
        let mut clock = Clock::new();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let now = clock.ask();
            let now = clock.at(now);
            clock.asking.handle_failure("500", 1.0, now);
            pauses.push((clock.asking.poll_timeout().unwrap() - now).as_secs());
        }
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses[39], 60);
        let now = clock.ask();
        assert!(clock.answer(None, now));
        let at = clock.ask();
        let now = clock.at(at);
        clock.asking.handle_failure("500", 0.0, now);
        assert!((clock.due() - at - 0.5).abs() < 0.001, "half of the pause is random");
    }

    #[test]
    fn a_failure_is_a_warning_once_for_each_kind_until_an_answer_comes() {
        let mut clock = Clock::new();
        let fail = |clock: &mut Clock, kind| {
            let now = clock.ask();
            let now = clock.at(now);
            clock.asking.handle_failure(kind, 0.0, now)
        };
        for (kind, weight) in [
            ("500", Weight::Warning),
            ("500", Weight::Repeated),
            ("silent", Weight::Warning),
            ("500", Weight::Repeated),
        ] {
            assert_eq!(fail(&mut clock, kind), weight, "{kind}");
        }
        let now = clock.ask();
        clock.answer(None, now);
        assert_eq!(fail(&mut clock, "500"), Weight::Warning);
    }

    #[test]
    fn the_loss_of_all_links_asks_again_soon_and_at_most_once_in_ten_seconds() {
        let mut clock = Clock::new();
        clock.ask();
        clock.answer(None, 0.0);
        let now = clock.at(60.0);
        clock.asking.handle_outage(0.5, now);
        assert!((clock.ask() - 61.0).abs() < 0.001);
        clock.answer(None, 61.5);
        for (second, draw) in [(62.0, 0.5), (63.0, 0.1), (70.9, 0.0)] {
            let now = clock.at(second);
            clock.asking.handle_outage(draw, now);
            assert!((clock.due() - 72.0).abs() < 0.001, "one of the numbers counts");
        }
        clock.ask();
        // Lost while the question is under way: its answer may not know.
        let now = clock.at(72.5);
        clock.asking.handle_outage(0.0, now);
        clock.answer(None, 73.0);
        assert!((clock.due() - 82.0).abs() < 0.001);
    }

    #[test]
    fn an_outage_makes_no_pause_longer_and_does_not_hurry_a_source_that_fails() {
        let mut clock = Clock::new();
        clock.ask();
        clock.answer(Some(10), 0.0);
        let now = clock.at(9.0);
        clock.asking.handle_outage(1.0, now);
        assert!((clock.due() - 10.0).abs() < 0.001);
        for _ in 0..10 {
            let now = clock.ask();
            let now = clock.at(now);
            clock.asking.handle_failure("500", 1.0, now);
        }
        let due = clock.due();
        let now = clock.at(due - 30.0);
        clock.asking.handle_outage(0.0, now);
        assert!((clock.due() - due).abs() < 0.001);
    }
}
