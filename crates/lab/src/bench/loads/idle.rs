//! Idle visitors and their cost per visitor. The cost is the slope between few and many visitors,
//! because a daemon's memory before the first visitor tells nothing about the cost of another
//! visitor.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Done, ours, program};
use crate::bench::case::ONE_HOP;
use crate::bench::figure::{Figure, Sample};
use crate::bench::{daemons, stop};

/// The part of the visitors at the lower point of the slope: pools and tables have their first size
/// by then. The upper point is 8,000 or 16,000 visitors higher, because memory grows in steps of
/// 2 MiB.
const FEW: u32 = 9;

/// The pause after the last visitor has connected: memory that the connecting needed is freed.
const SETTLE: Duration = Duration::from_secs(1);

/// The pause where one process connects visitors and targets: `tunnel proxy` brings a connection to
/// rest after 15 s to 30 s without a byte. The other systems of the case have the same time.
const AT_REST: Duration = Duration::from_secs(35);

/// Source addresses: an address has 28,000 ports, and closed connections keep some of them.
const SOURCES: &str = "4";

/// The daemons' resources while visitors were idle.
#[derive(Debug)]
struct Held {
    resident: Vec<u64>,
    /// Processor time per second: 0 to 1 for a thread.
    busy: Vec<f64>,
}

/// Runs `load idle` with few visitors and then with `many`. The many are watched for `seconds`.
pub(super) fn measure(
    load: &Path,
    target: SocketAddr,
    many: u32,
    pids: &[u32],
    seconds: f64,
    deadline: Duration,
) -> Result<Done> {
    let settle = if many == ONE_HOP { AT_REST } else { SETTLE };
    let deadline = deadline + settle;
    let few = many / FEW;
    let few_held = hold(load, target, few, pids, (settle, Duration::ZERO), deadline)?;
    let watch = Duration::from_secs_f64(seconds);
    let many_held = hold(load, target, many, pids, (settle, watch), deadline)?;
    Ok(Done { sample: sample(&few_held, &many_held, f64::from(many - few)), units: 0.0 })
}

fn sample(few: &Held, many: &Held, more: f64) -> Sample {
    let slopes = few.resident.iter().zip(&many.resident);
    let steepest = slopes.map(|(few, many)| (*many as f64 - *few as f64) / more).reduce(f64::max);
    let busiest = many.busy.iter().copied().reduce(f64::max);
    let mut sample = Sample::new();
    sample.extend(steepest.map(|slope| (Figure::RssPerVisitor, slope)));
    sample.extend(busiest.map(|busy| (Figure::IdleCpu, busy * 100.0)));
    sample
}

fn hold(
    load: &Path,
    target: SocketAddr,
    visitors: u32,
    pids: &[u32],
    (settle, watch): (Duration, Duration),
    deadline: Duration,
) -> Result<Held> {
    let hold = (settle + watch).as_secs_f64() + 0.5;
    let mut command = Command::new(load);
    command.args(["idle", "--target", &target.to_string(), "--sources", SOURCES]);
    command.args(["--connections", &visitors.to_string(), "--hold", &hold.to_string()]);
    let (mut held, mut said) = (None, String::new());
    program::run_lines(&mut command, deadline, |line| {
        line.clone_into(&mut said);
        let report: Value = serde_json::from_str(line).context("load: no JSON")?;
        if report["event"] == "open" {
            ours::good_report(line)?;
            stop::sleep(settle)?;
            held = Some(look(pids, watch)?);
        }
        Ok(())
    })?;
    // Every visitor was still connected at the end.
    ours::good_report(&said)?;
    held.context("load idle: it never said that all are open")
}

fn look(pids: &[u32], watch: Duration) -> Result<Held> {
    let cpu = || pids.iter().map(|pid| daemons::exact_cpu(*pid)).collect::<Option<Vec<_>>>();
    let gone = "a daemon has ended";
    let (start, before) = (Instant::now(), cpu().context(gone)?);
    stop::sleep(watch)?;
    let (seconds, after) = (start.elapsed().as_secs_f64(), cpu().context(gone)?);
    let used = before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before));
    let resident: Option<_> = pids.iter().map(|pid| daemons::resident(*pid)).collect();
    Ok(Held {
        busy: used.map(|used| used.as_secs_f64() / seconds).collect(),
        resident: resident.context(gone)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_that_grows_most_and_the_busiest_one_count() {
        let few = Held { resident: vec![10 << 20, 30 << 20], busy: Vec::new() };
        let many = Held { resident: vec![26 << 20, 38 << 20], busy: vec![0.0001, 0.0025] };
        let sample = sample(&few, &many, 16_384.0);
        let wanted = [(Figure::RssPerVisitor, 1024.0), (Figure::IdleCpu, 0.25)];
        assert_eq!(sample, Sample::from(wanted));
    }
}
