//! The programs that make the load, and their reports.
//!
//! | module | what |
//! |---|---|
//! | `program` | a child with a deadline |
//! | `wrk`, `h2load`, `iperf` | command line and report of third-party programs |
//! | `ours` | `load connections`, `load echo` and `load storm` |
//! | `udp` | `load udp`, with a look at the daemons |
//! | `idle` | `load idle`, with a look at the daemons |

mod h2load;
mod idle;
mod iperf;
mod ours;
mod program;
mod udp;
mod wrk;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::case::{Case, Load};
use super::daemons;
use super::figure::{Figure, Sample};
use crate::systems::{Running, UDP, WEB};

/// Time for a load in addition to its seconds, until all visitors have connected: five times the
/// slowest peer's time for 10,000 connections.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Done {
    sample: Sample,
    /// The number of requests, connections or gigabytes by which processor time is divided.
    units: f64,
}

/// Puts the load of a case on a system for `seconds`. Returns the figures of the load and of the
/// daemons. A failed request is an error, and so is a daemon that has ended.
pub(crate) fn measure(case: &Case, load: &Path, system: &Running, seconds: f64) -> Result<Sample> {
    let pids = system.pids();
    alive(pids)?;
    daemons::forget_peaks(pids);
    let before = daemons::cpu(pids).context("a daemon has ended")?;
    let outcome = apply(case, load, system, seconds * case.stretch);
    // If both failed, the ended daemon explains the failed load.
    alive(pids)?;
    let Done { mut sample, units } = outcome?;
    let after = daemons::cpu(pids).context("a daemon has ended")?;
    if pids.is_empty() {
        return Ok(sample);
    }
    if let Some(figure) = case.cpu_figure().filter(|figure| !sample.contains_key(figure)) {
        let used = (after - before).as_secs_f64() / units;
        let micros = figure != Figure::CpuPerGb;
        sample.insert(figure, if micros { used * 1e6 } else { used });
    }
    let peak: Option<u64> = pids.iter().map(|pid| daemons::peak(*pid)).sum();
    let peak = peak.context("a daemon has ended")? as f64 / f64::from(1 << 20);
    sample.insert(Figure::PeakRss, peak);
    Ok(sample)
}

/// Applies the load without measuring the daemons.
pub(crate) fn apply(case: &Case, load: &Path, system: &Running, seconds: f64) -> Result<Done> {
    let deadline = Duration::from_secs_f64(seconds) + PATIENCE;
    let at = |origin| system.address(origin);
    match case.load {
        Load::Http(connections) => {
            let mut command = wrk::command(&system.url(WEB, "/"), connections, seconds);
            wrk::parse(&program::run(&mut command, deadline)?)
        }
        Load::Streams(streams) => {
            let mut command = h2load::command(&system.url(WEB, "/"), at(WEB), streams, seconds);
            h2load::parse(&program::run(&mut command, deadline)?)
        }
        Load::Downloads(connections) => {
            let mut command = wrk::command(&system.url(WEB, "/download"), connections, seconds);
            wrk::parse_bytes(&program::run(&mut command, deadline)?)
        }
        Load::Bulk { streams, down } => {
            let mut command = iperf::command(at("iperf"), streams, down, seconds);
            iperf::parse(&program::run(&mut command, deadline)?)
        }
        Load::Forward { down } => {
            let origin = if down { "source" } else { "sink" };
            ours::bulk(load, system.by_proxy(origin), down, seconds, deadline)
        }
        Load::Datagrams(payload) => {
            udp::measure(load, at(UDP), payload, system.pids(), seconds, deadline)
        }
        Load::Connections => ours::connections(load, at("echo"), seconds, deadline),
        Load::EchoBesideBulk => {
            let targets = [at("echo"), at("sink"), at("source")];
            ours::echo_beside_bulk(load, targets, seconds, deadline)
        }
        Load::Idle(visitors) => {
            idle::measure(load, at("echo"), visitors, system.pids(), seconds, deadline)
        }
        Load::Storm(clients) => ours::storm(load, system.login(), clients, deadline),
    }
}

fn alive(pids: &[u32]) -> Result<()> {
    match daemons::first_dead(pids) {
        None => Ok(()),
        Some(index) => bail!("daemon {} of {} has ended by itself", index + 1, pids.len()),
    }
}
