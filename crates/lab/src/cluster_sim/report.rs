//! The results of a run: a table, JSON, and plots.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::scenarios::{SimOutcome, SimRun};
use super::tally::{SimSecond, SimTally, Values};
use crate::plot::{Chart, Line};

/// The least median of the batches while the engine is slow.
const BATCHES: u32 = 64;

/// The width of a column of the table.
const WIDTH: usize = 16;

/// A row of the table.
type Row = (&'static str, fn(&SimOutcome, &[SimSecond]) -> String);

fn three(values: &Values) -> String {
    let [p50, p99, most] = values.quantiles();
    format!("{p50}/{p99}/{most}")
}

fn per_second(seconds: &[SimSecond], of: fn(&SimSecond) -> u32) -> String {
    let mut values = Values::default();
    seconds.iter().for_each(|second| values.add(of(second)));
    three(&values)
}

fn per_million(count: u64, tally: &SimTally) -> String {
    format!("{:.0}", count as f64 * 1e6 / tally.visitors.max(1) as f64)
}

const ROWS: &[Row] = &[
    ("virtual seconds", |it, _| (it.until - it.from).to_string()),
    ("s until 99.9 % are reached", |it, _| {
        it.reached_after().map_or_else(|| "not reached".to_owned(), |time| format!("{time:.2}"))
    }),
    ("s below 99.9 %", |it, _| format!("{:.2}", it.tally.unwell as f64 / 1e6)),
    ("least reached", |it, _| it.tally.least.to_string()),
    ("absences of clients", |it, _| it.tally.absences.len().to_string()),
    ("  ms p50/p99/max", |it, _| three(&it.tally.absences)),
    ("log-ins", |it, _| it.tally.log_ins.to_string()),
    ("writes/s p50/p99/max", |_, seconds| per_second(seconds, |second| second.writes)),
    ("write batches/s", |_, seconds| per_second(seconds, |second| second.batches)),
    ("writes of a batch", |it, _| three(&it.tally.batches)),
    ("  after a slow answer", |it, _| three(&it.tally.slow_batches)),
    ("look-ups/s", |_, seconds| per_second(seconds, |second| second.look_ups)),
    ("look-ups of a batch", |it, _| three(&it.tally.look_ups)),
    ("busy cores of the engine, %", |_, seconds| {
        per_second(seconds, |second| (second.busy / 10_000) as u32)
    }),
    ("ms until an answer", |it, _| three(&it.tally.answers)),
    ("  given up after 1 s", |it, _| it.tally.given_up.to_string()),
    ("largest backlog", |it, _| it.tally.backlog.to_string()),
    ("  of one node", |it, _| it.tally.node_backlog.to_string()),
    ("epochs ended", |it, _| it.tally.epochs_ended.to_string()),
    ("visitors", |it, _| it.tally.visitors.to_string()),
    ("  ms until served", |it, _| three(&it.tally.waits)),
    ("  waited", |it, _| it.tally.held.to_string()),
    ("  not served within 5 s", |it, _| it.tally.failed.to_string()),
    ("refused OPENs per million", |it, _| per_million(it.tally.refused, &it.tally)),
    ("MOVED answers per million", |it, _| per_million(it.tally.moved, &it.tally)),
    ("served by a former process", |it, _| it.tally.former.to_string()),
    ("  oldest, ms", |it, _| it.tally.former_age.to_string()),
    ("served by a wrong owner", |it, _| it.tally.wrong.to_string()),
    ("kicks", |it, _| it.tally.kicks.to_string()),
    ("  of the newest process", |it, _| it.tally.wrong_kicks.to_string()),
];

fn seconds_of<'a>(run: &'a SimRun, outcome: &SimOutcome) -> &'a [SimSecond] {
    let last = run.seconds.len();
    let (from, until) = (outcome.from as usize, outcome.until as usize);
    &run.seconds[from.min(last)..until.min(last)]
}

/// All figures, a column for each scenario.
pub(super) fn table(run: &SimRun) -> String {
    let mut text = format!("{:28}", "");
    for outcome in &run.outcomes {
        let _ = write!(text, " {:>WIDTH$}", outcome.name);
    }
    for (name, value) in ROWS {
        let _ = write!(text, "\n{name:28}");
        for outcome in &run.outcomes {
            let _ = write!(text, " {:>WIDTH$}", value(outcome, seconds_of(run, outcome)));
        }
    }
    text.push('\n');
    if let Some(bytes) = run.node_bytes {
        let _ = writeln!(text, "state of a node: {:.1} MB", bytes as f64 / 1e6);
    }
    text
}

/// What the run misses.
pub(super) fn misses(run: &SimRun) -> Vec<String> {
    let mut found = Vec::new();
    for outcome in &run.outcomes {
        let SimOutcome { name, limit, tally, .. } = outcome;
        if tally.wrong > 0 {
            found.push(format!("{name}: {} visitors served by a wrong owner", tally.wrong));
        }
        match (limit, outcome.reached_after()) {
            (_, None) => found.push(format!("{name}: 99.9 % of the clients are not reached")),
            (Some(limit), Some(time)) if time > *limit as f64 => {
                found.push(format!("{name}: reached after {time:.2} s, {limit} s are allowed"));
            }
            (Some(_) | None, Some(_)) => {}
        }
    }
    let batches = run.outcomes.first().map_or(0, |it| it.tally.slow_batches.quantiles()[0]);
    if batches < BATCHES {
        found.push(format!("cold start: {batches} writes of a batch after a slow answer"));
    }
    found
}

/// The figures and the seconds.
pub(super) fn json(run: &SimRun) -> Value {
    let outcomes: Vec<_> = run
        .outcomes
        .iter()
        .map(|outcome| {
            let seconds = seconds_of(run, outcome);
            let figures = ROWS.iter().map(|(name, value)| {
                ((*name).trim().to_owned(), Value::from(value(outcome, seconds)))
            });
            let figures: serde_json::Map<_, _> = figures.collect();
            json!({
                "name": outcome.name, "from": outcome.from, "until": outcome.until,
                "reached_after_s": outcome.reached_after(), "limit_s": outcome.limit,
                "figures": figures,
            })
        })
        .collect();
    let series = |of: fn(&SimSecond) -> u64| run.seconds.iter().map(of).collect::<Vec<_>>();
    json!({
        "clients": run.sizes.clients, "nodes": run.sizes.nodes, "visitors": run.sizes.visitors,
        "seed": run.sizes.seed, "events": run.events, "node_bytes": run.node_bytes,
        "scenarios": outcomes,
        "seconds": {
            "reached": series(|second| u64::from(second.reached)),
            "writes": series(|second| u64::from(second.writes)),
            "look_ups": series(|second| u64::from(second.look_ups)),
            "busy_us": series(|second| second.busy),
            "backlog": series(|second| u64::from(second.backlog)),
            "visitors": series(|second| u64::from(second.visitors)),
            "failed": series(|second| u64::from(second.failed)),
        },
    })
}

/// The seconds as charts, one below the other.
pub(super) fn charts(run: &SimRun) -> Vec<Chart> {
    let clients = f64::from(run.sizes.clients);
    let line = |name: &str, of: &dyn Fn(&SimSecond) -> f64| Line {
        name: name.to_owned(),
        points: (0_u32..).map(f64::from).zip(run.seconds.iter().map(of)).collect(),
    };
    let chart = |title: &str, y: &str, lines| Chart {
        title: title.to_owned(),
        x: "seconds of virtual time".to_owned(),
        y: y.to_owned(),
        lines,
    };
    vec![
        chart(
            "clients that each node finds",
            "%",
            vec![line("reached", &|second| f64::from(second.reached) * 100.0 / clients)],
        ),
        chart(
            "the engine",
            "records in a second",
            vec![
                line("writes", &|second| f64::from(second.writes)),
                line("look-ups", &|second| f64::from(second.look_ups)),
            ],
        ),
        chart("busy cores", "cores", vec![line("busy", &|second| second.busy as f64 / 1e6)]),
        chart("writes that wait", "writes", vec![line("wait", &|it| f64::from(it.backlog))]),
        chart(
            "not served within 5 s",
            "visitors",
            vec![line("failed", &|it| f64::from(it.failed))],
        ),
    ]
}
