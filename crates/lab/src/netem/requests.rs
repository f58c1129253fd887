//! `netem --requests`: the latency of requests at fixed times, 20 per second over one connection,
//! each of 1,024 bytes with an answer of as many. `load pulse` sends them at the right end, and an
//! echo answers at the left end.

use std::fs;
use std::path::Path as File;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::stage::{Daemon, Scheme, run_within};

use super::ends::{Ends, ORIGIN};
use super::matrix::Plan;
use super::path::Path;
use super::report::of_wire;
use super::stream::{GRACE, fresh, wait};
use super::systems::System;
use super::wire::{self, Wire};
use crate::bench::load_program;
use xtask::site::Site;

/// The most milliseconds of the 99th percentile at 100 ms.
struct Floor {
    scheme: Scheme,
    loss: f64,
    most: f64,
}

const RTT: f64 = 100.0;

const FLOORS: [Floor; 5] = [
    Floor { scheme: Scheme::KCP, loss: 1.0, most: 220.0 },
    Floor { scheme: Scheme::KCP, loss: 10.0, most: 300.0 },
    Floor { scheme: Scheme::KCP, loss: 20.0, most: 600.0 },
    Floor { scheme: Scheme::QUIC, loss: 10.0, most: 400.0 },
    Floor { scheme: Scheme::QUIC, loss: 20.0, most: 700.0 },
];

/// The figures of one measurement, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Latency {
    p50: f64,
    p99: f64,
    most: f64,
    requests: u64,
    errors: u64,
}

impl Latency {
    /// Of the report that `load pulse` prints.
    fn read(report: &str) -> Result<Self> {
        let report: Value =
            serde_json::from_str(report).with_context(|| format!("no report: {report:?}"))?;
        let times = &report["latency_us"];
        let of = |value: &Value| value.as_f64().context("a report without a figure");
        Ok(Self {
            p50: of(&times["p50"])? / 1e3,
            p99: of(&times["p99"])? / 1e3,
            most: of(&times["max"])? / 1e3,
            requests: report["requests"].as_u64().context("a report without requests")?,
            errors: report["errors"].as_u64().context("a report without errors")?,
        })
    }
}

/// Measures each system on each path, round by round. A failed measurement is a line with its
/// error.
pub(super) fn run(site: &Site, path: &Path, plan: &Plan, binary: &File) -> Result<ExitCode> {
    let dir = site.target.join("netem");
    fresh(&dir)?;
    let load = load_program(site);
    let ends = Ends::new(path)?;
    println!("{}\n", Ends::settings(path));
    let (mut cells, mut are_held) = (Vec::new(), true);
    for &rtt in &plan.rtts {
        for &loss in &plan.losses {
            for &system in &plan.systems {
                let path = Path { rtt, loss, ..path.clone() };
                let measured = measure(&ends, system, &path, plan.seconds, &dir, binary, &load);
                print!("{:10} {rtt:3} ms {loss:4} %  ", system.name());
                match &measured {
                    Ok((latency, wire)) => {
                        let Latency { p50, p99, most, requests, errors } = latency;
                        print!(
                            "p50 {p50:.0} p99 {p99:.0} most {most:.0} ms, {requests} requests, "
                        );
                        println!("{errors} without an answer  ({})", of_wire(wire, 0));
                    }
                    Err(error) => println!("-  {error:#}"),
                }
                let latency = measured.as_ref().ok().map(|(latency, _)| *latency);
                are_held &= judge(system, &path, latency);
                cells.push(cell(system, &path, latency));
            }
        }
    }
    let file = dir.join("requests.json");
    let value = json!({ "path": path.describe(), "cells": cells });
    fs::write(&file, format!("{value:#}\n"))?;
    println!("{}", file.display());
    ensure!(!plan.check || are_held, "a floor of latency is missed");
    Ok(ExitCode::SUCCESS)
}

/// Runs one measurement with new daemons, a new connection and a new wire.
fn measure(
    ends: &Ends,
    system: System,
    path: &Path,
    seconds: u32,
    dir: &File,
    binary: &File,
    load: &File,
) -> Result<(Latency, wire::Report)> {
    let dir = dir.join("run");
    fresh(&dir)?;
    let wire = Wire::start(ends, path.weather(), path.mtu, path.seed)?;
    let mut origin = ends.left.command(load);
    origin.args(["origin", "echo", "--listen", &format!("0.0.0.0:{ORIGIN}")]);
    let origin = Daemon::start("origin", &dir, &mut origin);
    wait(|| ends.left.listens(ORIGIN)).context("the echo does not listen")?;
    let running = system.start(ends, &dir, binary)?;
    let mut visitor = ends.right.command(load);
    visitor.args(["pulse", "--target", &running.address.to_string()]);
    visitor.args(["--seconds", &seconds.to_string()]);
    let limit = Duration::from_secs(seconds.into()) + GRACE * 3;
    let output = run_within(&mut visitor, limit);
    drop((running, origin));
    let wire = wire.finish()?;
    let output = output.context("load pulse does not end")?;
    ensure!(output.status.success(), "load pulse: {output:?}");
    Ok((Latency::read(&String::from_utf8_lossy(&output.stdout))?, wire))
}

fn cell(system: System, path: &Path, latency: Option<Latency>) -> Value {
    json!({
        "system": system.name(),
        "rtt_ms": path.rtt,
        "loss_percent": path.loss,
        "latency_ms": latency.map(|Latency { p50, p99, most, .. }| [p50, p99, most]),
        "requests": latency.map(|latency| latency.requests),
        "errors": latency.map(|latency| latency.errors),
    })
}

/// Prints a line for a floor of this path. Returns whether the system holds the floor: a system
/// without figures does not.
fn judge(system: System, path: &Path, latency: Option<Latency>) -> bool {
    let is_meant = |floor: &&Floor| {
        system == System::Tunnel(floor.scheme) && (path.rtt, path.loss) == (RTT, floor.loss)
    };
    let Some(Floor { most, .. }) = FLOORS.iter().find(is_meant) else { return true };
    let is_held = latency.is_some_and(|latency| latency.p99 <= *most && latency.errors == 0);
    let verdict = if is_held { "held" } else { "missed" };
    println!("  {} at {} %: p99 at most {most} ms: {verdict}", system.name(), path.loss);
    is_held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_in_milliseconds() {
        let report = r#"{"requests": 400, "errors": 1,
            "latency_us": {"p50": 100000.0, "p99": 252000.0, "max": 301500.0}}"#;
        let Latency { p50, p99, most, requests, errors } = Latency::read(report).unwrap();
        assert_eq!((p50, p99, most, requests, errors), (100.0, 252.0, 301.5, 400, 1));
        assert!(Latency::read("load: no route").is_err());
    }

    #[test]
    fn a_late_percentile_a_missing_answer_and_missing_figures_miss_a_floor() {
        let path = Path { rtt: RTT, loss: 10.0, ..Path::default() };
        let kcp = System::Tunnel(Scheme::KCP);
        let with =
            |p99, errors| Some(Latency { p50: 100.0, p99, most: p99, requests: 400, errors });
        assert!(judge(kcp, &path, with(299.0, 0)));
        assert!(!judge(kcp, &path, with(301.0, 0)));
        assert!(!judge(kcp, &path, with(299.0, 1)));
        assert!(!judge(kcp, &path, None));
        assert!(judge(System::Direct, &path, None), "no floor");
    }
}
