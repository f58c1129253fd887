//! `target/bench/latest.json`: all results of a run, for programs.
//!
//! ```json
//! { "format": 1, "date": "2026-11-21T17:00:00Z", "commit": "4b2af42e0c1d",
//!   "machine": { "cpu": "AMD EPYC", "cores": 2, "kernel": "6.18.44", "memory_mib": 24105 },
//!   "versions": { "wrk": "4.1.0", "haproxy-2hop": "2.6.12" },
//!   "rounds": 7, "seconds": 3.0,
//!   "left_out": { "rathole-tcp": "not installed: rathole" },
//!   "cases": [ {
//!     "name": "http-100", "what": "HTTP, 100 keep-alive connections", "unit": "requests/s",
//!     "systems": [ { "name": "tunnel-tcp",
//!       "figures": { "rate": { "median": 70634.0, "least": 69000.0, "most": 71000.0 } },
//!       "of_direct": { "median": 0.49, "least": 0.48, "most": 0.51 },
//!       "rounds": [
//!         { "rate": 70634.0, "p99_ms": 2.1 }, { "error": "wrk: Socket errors: read 3" }
//!       ]
//!     } ] } ] }
//! ```
//!
//! `figures` and `of_direct` cover all rounds. If a round failed, they are absent, and `error` has
//! the reason. Figures have the same keys as in `floors.toml`.

use serde_json::{Map, Value, json};

use super::outcome::{Outcome, Row};
use super::results::Results;
use super::spread::Spread;

/// The version of the format. It increases when a reader of the old format would misread the new
/// one.
const FORMAT: u32 = 1;

pub(super) fn record(results: &Results) -> Value {
    let named = |pairs: &[(&'static str, String)]| -> Map<String, Value> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect()
    };
    json!({
        "format": FORMAT,
        "date": results.machine.date,
        "commit": results.machine.commit,
        "machine": results.machine.json(),
        "versions": named(&results.versions),
        "rounds": results.rounds,
        "seconds": results.seconds,
        "left_out": named(&results.left_out),
        "cases": results.outcomes.iter().map(case).collect::<Vec<_>>(),
    })
}

fn case(outcome: &Outcome) -> Value {
    json!({
        "name": outcome.case.name,
        "what": outcome.case.what,
        "unit": outcome.case.unit(),
        "systems": outcome.rows.iter().map(|row| system(outcome, row)).collect::<Vec<_>>(),
    })
}

fn system(outcome: &Outcome, row: &Row) -> Value {
    let mut entry = Map::from_iter([("name".to_owned(), json!(row.system))]);
    if let Some(error) = row.error() {
        entry.insert("error".to_owned(), json!(error));
    } else {
        let figures = outcome.case.figures().iter();
        let figures: Map<_, _> = figures
            .filter_map(|figure| Some((figure.key().to_owned(), spread(row.spread(*figure)?))))
            .collect();
        entry.insert("figures".to_owned(), Value::Object(figures));
    }
    if let Some(ratio) = outcome.of_direct(row) {
        entry.insert("of_direct".to_owned(), spread(ratio));
    }
    let rounds = row.rounds.iter().map(|round| match round {
        Ok(sample) => {
            sample.iter().map(|(figure, value)| (figure.key().to_owned(), json!(value))).collect()
        }
        Err(error) => Map::from_iter([("error".to_owned(), json!(error))]),
    });
    entry.insert("rounds".to_owned(), rounds.map(Value::Object).collect());
    Value::Object(entry)
}

fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "least": spread.least, "most": spread.most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::results;

    #[test]
    fn the_record_has_medians_ratios_and_every_round_and_no_figure_beside_an_error() {
        let record = record(&results());
        let systems = &record["cases"][0]["systems"];
        let tunnel =
            systems.as_array().unwrap().iter().find(|s| s["name"] == "tunnel-tcp").unwrap();
        assert_eq!(tunnel["figures"]["rate"]["median"], 50.0);
        assert_eq!(tunnel["of_direct"], json!({ "median": 0.5, "least": 0.45, "most": 0.5 }));
        assert_eq!(tunnel["rounds"][1], json!({ "rate": 90.0, "p99_ms": 0.09 }));
        let broken = systems.as_array().unwrap().iter().find(|s| s["name"] == "haproxy-2hop");
        let broken = broken.unwrap();
        assert!(broken.get("figures").is_none() && broken.get("of_direct").is_none(), "{broken}");
        assert_eq!(broken["error"], "error in 1 of 3 rounds: wrk: Socket errors: read 3");
        assert_eq!(broken["rounds"][2]["error"], "wrk: Socket errors: read 3");
        assert_eq!(record["left_out"]["rathole-tcp"], "not installed: rathole");
        assert_eq!(record["machine"]["cores"], 2);
    }
}
