//! Decides how an unreachable server is logged. A server that restarts is away briefly, which does
//! not justify a warning.

use std::time::{Duration, Instant};

/// The time for which a server that was connected may be away before the log warns. An update or a
/// restart of a server takes less.
pub(super) const AWAY: Duration = Duration::from_secs(10);

/// An unreachable server is logged at once, and then at this period while nothing changes.
const REPEAT: Duration = Duration::from_secs(30);

/// The severity of a log line about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// The server was connected before, and has been away for less than [`AWAY`].
    News,
    /// The server refuses, or has not been reached since this process started.
    Warning,
    /// The server has been away for this time, which is [`AWAY`] or longer.
    LongAway(Duration),
}

impl Weight {
    fn is_warning(self) -> bool {
        self != Self::News
    }
}

/// A line that was logged: whether it was a warning, its text, and its time.
pub(super) type LastLine = Option<(bool, String, Instant)>;

/// The state of an outage of the server, shared by all links of a client.
#[derive(Debug, Default)]
pub(super) struct Outage {
    had_server: bool,
    since: Option<Instant>,
    /// The last line of any link.
    last: LastLine,
}

impl Outage {
    /// Records the loss of a link. The time of the first loss counts.
    pub(super) fn lost(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Records that a link has a carrier.
    pub(super) fn connected(&mut self) {
        *self = Self { had_server: true, ..Self::default() };
    }

    /// Whether the server has been away for [`AWAY`] or longer.
    pub(super) fn is_long(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= AWAY)
    }

    /// Records a failed attempt. Returns the severity of its line; `None` if it is not to be
    /// logged. `own` is the last line of the link. One of the links logs for all links that fail
    /// alike.
    pub(super) fn failed(
        &mut self,
        own: &mut LastLine,
        text: &str,
        is_refusal: bool,
        now: Instant,
    ) -> Option<Weight> {
        let since = *self.since.get_or_insert(now);
        let away = now.saturating_duration_since(since);
        let weight = match (is_refusal || !self.had_server, away >= AWAY) {
            (true, _) => Weight::Warning,
            (false, true) => Weight::LongAway(away),
            (false, false) => Weight::News,
        };
        let is_known = |last_line: &LastLine| {
            last_line.as_ref().is_some_and(|(is_warning, last, at)| {
                *is_warning == weight.is_warning()
                    && last == text
                    && now.saturating_duration_since(*at) < REPEAT
            })
        };
        if is_known(own) {
            return None;
        }
        let line = Some((weight.is_warning(), text.to_owned(), now));
        own.clone_from(&line);
        if is_known(&self.last) {
            return None;
        }
        self.last = line;
        Some(weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "tls://a:1: refused";

    /// The weights of the lines about attempts of two links at each second of an outage, by the
    /// second.
    fn lines(outage: &mut Outage, begin: Instant, seconds: u64) -> Vec<(u64, Weight)> {
        let mut own: [LastLine; 2] = Default::default();
        let mut lines = Vec::new();
        for second in 0..=seconds {
            let now = begin + Duration::from_secs(second);
            for own in &mut own {
                lines.extend(outage.failed(own, TEXT, false, now).map(|weight| (second, weight)));
            }
        }
        lines
    }

    #[test]
    fn a_server_that_is_back_within_the_time_is_news_and_no_warning() {
        let (mut outage, begin) = (Outage::default(), Instant::now());
        outage.connected();
        outage.lost(begin);
        assert_eq!(lines(&mut outage, begin, AWAY.as_secs() - 1), [(0, Weight::News)]);
        assert!(!outage.is_long(begin + AWAY - Duration::from_secs(1)));
        outage.connected();
        // The next outage has a time of its own.
        let again = begin + AWAY;
        assert_eq!(lines(&mut outage, again, AWAY.as_secs() - 1), [(0, Weight::News)]);
    }

    #[test]
    fn a_server_that_stays_away_is_one_warning_for_all_links_and_one_more_at_each_period() {
        let (mut outage, begin) = (Outage::default(), Instant::now());
        outage.connected();
        outage.lost(begin);
        let (first, second) = (AWAY, AWAY + REPEAT);
        let expected = [
            (0, Weight::News),
            (first.as_secs(), Weight::LongAway(first)),
            (second.as_secs(), Weight::LongAway(second)),
        ];
        assert_eq!(lines(&mut outage, begin, second.as_secs() + 1), expected);
        assert!(outage.is_long(begin + AWAY));
    }

    #[test]
    fn a_refusal_and_a_server_that_was_never_reached_are_warnings_at_once() {
        let (mut outage, now) = (Outage::default(), Instant::now());
        assert_eq!(lines(&mut outage, now, 1), [(0, Weight::Warning)]);
        outage.connected();
        assert_eq!(outage.failed(&mut None, TEXT, true, now), Some(Weight::Warning));
    }
}
