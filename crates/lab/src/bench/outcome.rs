//! The results of a run as data: a row per system in each case, and a sample or an error per round
//! in each row.

use super::case::{Case, DIRECT};
use super::figure::{Figure, Sample};
use super::spread::Spread;

/// The results of all systems in one case.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) case: &'static Case,
    pub(crate) rows: Vec<Row>,
}

/// The results of one system in one case.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) system: &'static str,
    /// Samples by round. Rows of a group share their rounds: equal indices mean the same round.
    pub(crate) rounds: Vec<Result<Sample, String>>,
}

impl Outcome {
    pub(crate) fn row(&self, system: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.system == system)
    }

    /// The row's rate relative to `direct`, round by round. `None` for `direct` itself.
    pub(crate) fn of_direct(&self, row: &Row) -> Option<Spread> {
        let direct = self.row(DIRECT).filter(|_| row.system != DIRECT)?;
        row.ratio(direct, Figure::Rate)
    }
}

impl Row {
    /// The reason why the row has no figures: one failed round is enough.
    pub(crate) fn error(&self) -> Option<String> {
        let errors: Vec<_> = self.rounds.iter().filter_map(|round| round.as_ref().err()).collect();
        let first = errors.first()?;
        Some(format!("error in {} of {} rounds: {first}", errors.len(), self.rounds.len()))
    }

    /// The spread of a figure over the rounds, if all rounds succeeded.
    pub(crate) fn spread(&self, figure: Figure) -> Option<Spread> {
        if self.error().is_some() {
            return None;
        }
        Spread::of(self.values(figure).into_iter().flatten())
    }

    /// A figure relative to another row's figure in the same round. It is a median of ratios,
    /// because the machine's speed changes between rounds. Rounds in which the other row failed do
    /// not count.
    pub(crate) fn ratio(&self, to: &Self, figure: Figure) -> Option<Spread> {
        if self.error().is_some() {
            return None;
        }
        let pairs = self.values(figure).into_iter().zip(to.values(figure));
        Spread::of(pairs.filter_map(|(own, other)| Some(own? / other?)))
    }

    fn values(&self, figure: Figure) -> Vec<Option<f64>> {
        let value = |round: &Result<Sample, String>| round.as_ref().ok()?.get(&figure).copied();
        self.rounds.iter().map(value).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row with these rates. The p99 is a thousandth of each rate; NaN is an error.
    pub(in crate::bench) fn row(system: &'static str, rates: &[f64]) -> Row {
        let sample = |rate: &f64| {
            if rate.is_nan() {
                return Err("wrk: Socket errors: read 3".to_owned());
            }
            Ok(Sample::from([(Figure::Rate, *rate), (Figure::P99, *rate / 1000.0)]))
        };
        Row { system, rounds: rates.iter().map(sample).collect() }
    }

    pub(in crate::bench) fn outcome(case: &str, rows: Vec<Row>) -> Outcome {
        Outcome { case: Case::named(case).unwrap(), rows }
    }

    #[test]
    fn a_ratio_is_the_median_of_ratios_of_the_same_round() {
        // The machine was twice as fast in the second round, so a ratio of medians would be 0.4.
        let direct = row(DIRECT, &[100.0, 200.0, 110.0]);
        let tunnel = row("tunnel-tcp", &[50.0, 44.0, 55.0]);
        let outcome = outcome("http-100", vec![direct, tunnel]);
        let found = outcome.of_direct(&outcome.rows[1]).unwrap();
        assert_eq!(found, Spread { median: 0.5, least: 0.22, most: 0.5 });
        assert_eq!(outcome.of_direct(&outcome.rows[0]), None);
    }

    #[test]
    fn one_bad_round_takes_the_figures_away_but_not_those_of_others() {
        let direct = row(DIRECT, &[100.0, f64::NAN, 100.0]);
        let tunnel = row("tunnel-tcp", &[50.0, 90.0, 52.0]);
        assert_eq!(direct.error().unwrap(), "error in 1 of 3 rounds: wrk: Socket errors: read 3");
        assert_eq!(direct.spread(Figure::Rate), None);
        assert_eq!(direct.ratio(&tunnel, Figure::Rate), None);
        let ratio = tunnel.ratio(&direct, Figure::Rate).unwrap();
        assert_eq!(ratio, Spread { median: 0.51, least: 0.5, most: 0.52 });
        assert_eq!(tunnel.error(), None);
        assert_eq!(tunnel.spread(Figure::CpuPerGb), None, "not measured");
    }
}
