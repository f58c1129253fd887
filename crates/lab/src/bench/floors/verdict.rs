//! Decides whether a run meets a floor.

use super::{Bound, Floor, What};
use crate::bench::figure::{Figure, number};
use crate::bench::outcome::{Outcome, Row};
use crate::bench::spread::Spread;

/// The verdict about one floor, with the line that reports it.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Held(String),
    Missed(String),
    /// The run lacks figures that the floor needs.
    Skipped(String),
}

/// Judges a floor by the figures of a run. `left_out` lists the systems that could not be started
/// on this machine, with the reasons.
pub(crate) fn judge(
    floor: &Floor,
    outcomes: &[Outcome],
    left_out: &[(&'static str, String)],
) -> Verdict {
    match found(floor, outcomes, left_out) {
        Err(verdict) => verdict,
        Ok(spread) => {
            let (held, words, bound) = match floor.bound {
                Bound::AtLeast(bound) => (spread.median >= bound, "at least", bound),
                Bound::AtMost(bound) => (spread.median <= bound, "at most", bound),
            };
            let line = format!(
                "{floor} {} ({} .. {}), floor: {words} {}",
                precise(spread.median),
                precise(spread.least),
                precise(spread.most),
                bound
            );
            if held { Verdict::Held(line) } else { Verdict::Missed(line) }
        }
    }
}

/// Formats a value with one digit more than in tables, so that a figure close to its floor does not
/// look equal to it.
fn precise(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { number(value) }
}

fn found(
    floor: &Floor,
    outcomes: &[Outcome],
    left_out: &[(&'static str, String)],
) -> Result<Spread, Verdict> {
    let skipped = |reason: String| Verdict::Skipped(format!("{floor}: {reason}"));
    let missed = |reason: String| Verdict::Missed(format!("{floor}: {reason}"));
    let row = |case: &str, system: &str| -> Result<&Row, Verdict> {
        let outcome = outcomes.iter().find(|outcome| outcome.case.name == case);
        let outcome = outcome.ok_or_else(|| skipped(format!("{case} was not run")))?;
        outcome.row(system).ok_or_else(|| {
            let reason = left_out.iter().find(|(name, _)| *name == system);
            skipped(reason.map_or_else(
                || format!("{system} took no part in {case}"),
                |(_, reason)| format!("{system} was left out: {reason}"),
            ))
        })
    };
    // A failure of the floor's own system is a missed floor; a failure of the other system is not.
    let own = row(floor.case.name, floor.system)?;
    if let Some(error) = own.error() {
        return Err(missed(error));
    }
    let spread = match &floor.what {
        What::Figure(figure) => own.spread(*figure),
        What::ToSystem(figure, other) => {
            let other = row(floor.case.name, other)?;
            own.ratio(other, *figure)
        }
        What::ToCase(case) => {
            let other = row(case.name, floor.system)?;
            own.ratio(other, Figure::Rate)
        }
    };
    spread.ok_or_else(|| skipped("there is no round to compare".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::floors::parse;
    use crate::bench::outcome::tests::{outcome, row};

    fn floor(lines: &str) -> Floor {
        let text = format!("[[floor]]\nsystem = \"tunnel-tcp\"\n{lines}");
        parse(&text, &["direct", "tunnel-tcp", "rathole-tcp"]).unwrap().remove(0)
    }

    fn run() -> Vec<Outcome> {
        vec![
            outcome(
                "http-100",
                vec![row("direct", &[100.0, 200.0, 100.0]), row("tunnel-tcp", &[50.0, 90.0, 49.0])],
            ),
            outcome("http-1000", vec![row("tunnel-tcp", &[40.0, 81.0, f64::NAN])]),
        ]
    }

    fn verdict(lines: &str) -> Verdict {
        let left_out = [("rathole-tcp", "not installed".to_owned())];
        judge(&floor(lines), &run(), &left_out)
    }

    #[test]
    fn the_median_of_paired_ratios_decides() {
        let lines = "case = \"http-100\"\nratio_to = \"direct\"\n";
        let said = "http-100 tunnel-tcp: rate to direct 0.490 (0.450 .. 0.500), floor: at least";
        assert_eq!(
            verdict(&format!("{lines}at_least = 0.49")),
            Verdict::Held(format!("{said} 0.49"))
        );
        assert_eq!(
            verdict(&format!("{lines}at_least = 0.491")),
            Verdict::Missed(format!("{said} 0.491"))
        );
        let lines = "case = \"http-100\"\nfigure = \"p99_ms\"\n";
        assert!(matches!(verdict(&format!("{lines}at_most = 0.05")), Verdict::Held(_)));
        assert!(matches!(verdict(&format!("{lines}at_most = 0.049")), Verdict::Missed(_)));
    }

    #[test]
    fn an_error_of_the_system_misses_the_floor() {
        let lines = "case = \"http-1000\"\ncase_ratio_to = \"http-100\"\nat_least = 0.01";
        let Verdict::Missed(line) = verdict(lines) else { panic!("a failed request is no figure") };
        assert!(line.contains("error in 1 of 3 rounds: wrk: Socket errors"), "{line}");
    }

    #[test]
    fn what_is_not_there_is_skipped_with_the_reason() {
        for (lines, reason) in [
            ("case = \"http-100\"\nratio_to = \"rathole-tcp\"", "was left out: not installed"),
            ("case = \"http-1000\"\nratio_to = \"direct\"", "error in 1 of 3"),
            ("case = \"bulk-up\"\nratio_to = \"direct\"", "bulk-up was not run"),
        ] {
            match verdict(&format!("{lines}\nat_least = 1.4")) {
                Verdict::Skipped(line) | Verdict::Missed(line) => {
                    assert!(line.contains(reason), "{line}");
                }
                Verdict::Held(line) => panic!("{line}"),
            }
        }
        let absent = judge(
            &floor("case = \"http-100\"\nratio_to = \"rathole-tcp\"\nat_least = 1.4"),
            &run(),
            &[],
        );
        let Verdict::Skipped(line) = absent else { panic!("{absent:?}") };
        assert!(line.contains("rathole-tcp took no part in http-100"), "{line}");
    }
}
