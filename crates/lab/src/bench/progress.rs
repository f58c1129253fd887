//! The progress of a run: a line per round and case, and the time left.

use std::time::Instant;

use super::case::{Case, DIRECT, Group};
use super::figure::{Figure, number};
use super::options::Options;
use super::outcome::Row;

/// Seconds of a load in addition to its own duration, including the daemons' start. It is used for
/// the first estimate of the time left.
const BESIDE: f64 = 1.2;

/// The last round of a case in one line: the rate of `direct` and the other systems' ratios to it.
pub(super) fn progress<'a>(case: &Case, rows: impl Iterator<Item = &'a Row>) -> String {
    let mut words = Vec::new();
    let mut direct = None;
    for row in rows {
        let figure = case.figures()[0];
        let last = row.rounds.last().and_then(|round| round.as_ref().ok());
        let words_of_it = match last.and_then(|sample| sample.get(&figure)) {
            None => format!("{} ERROR", row.system),
            Some(rate) if row.system == DIRECT => {
                direct = Some(*rate);
                format!("{} {} {}", row.system, number(*rate), case.unit())
            }
            Some(value) if figure == Figure::Rate && direct.is_some() => {
                format!("{} {}", row.system, number(value / direct.unwrap_or(1.0)))
            }
            Some(value) => format!("{} {}", row.system, number(*value)),
        };
        words.push(words_of_it);
    }
    format!("{}: {}", case.name, words.join(", "))
}

/// The estimated seconds of one load of a case.
pub(super) fn weight(options: &Options, case: &Case) -> f64 {
    let loads = match case.group {
        // Idle visitors and clients connect twice, and an echo is measured beside both directions.
        Group::Idle | Group::Echo | Group::Storm => 2.0,
        // The search has about four offers of half the time, and two measurements follow.
        Group::Datagrams => 4.0,
        Group::Http | Group::Bulk | Group::Forward | Group::Connections => 1.0,
    };
    (options.seconds * case.stretch + BESIDE) * loads
}

/// Estimates the time left from the time used.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    all: f64,
    done: f64,
}

impl Clock {
    /// Starts the clock with an estimate of all the work, and prints the estimate.
    pub(super) fn start(all: f64) -> Self {
        println!("this takes about {}", minutes(all));
        Self { start: Instant::now(), all, done: 0.0 }
    }

    /// Counts `weight` of the work as done.
    pub(super) fn done(&mut self, weight: f64) {
        self.done += weight;
    }

    /// The time left in words.
    pub(super) fn left(&self) -> String {
        let pace = self.start.elapsed().as_secs_f64() / self.done.max(f64::EPSILON);
        minutes(pace * (self.all - self.done).max(0.0))
    }
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::outcome::tests::row;

    #[test]
    fn progress_shows_the_last_round_relative_to_direct() {
        let rows = [
            row(DIRECT, &[1.0, 100_000.0]),
            row("tunnel-tcp", &[1.0, 48_000.0]),
            row("rathole-tcp", &[1.0, f64::NAN]),
        ];
        let line = progress(Case::named("http-100").unwrap(), rows.iter());
        assert_eq!(line, "http-100: direct 100,000 requests/s, tunnel-tcp 0.48, rathole-tcp ERROR");
        let line = progress(Case::named("http-100").unwrap(), rows[1..].iter());
        assert_eq!(line, "http-100: tunnel-tcp 48,000, rathole-tcp ERROR");
    }

    #[test]
    fn the_time_left_follows_the_pace() {
        let start = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let mut clock = Clock { start, all: 20.0, done: 0.0 };
        clock.done(5.0);
        assert_eq!(clock.left(), "30 s");
        clock.done(15.0);
        assert_eq!(clock.left(), "0 s");
        assert_eq!(minutes(300.0), "5 min");
    }
}
