//! The measurements of a run.

use std::path::Path as File;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use testkit::stage::Scheme;

use super::cell::{CASE_FLOOR, CASE_RATE, CASE_RTT, CASE_SECONDS, Cell};
use super::ends::Ends;
use super::floors;
use super::path::Path;
use super::report::{self, Measured};
use super::stream::{self, GRACE, Way, fresh};
use super::systems::System;
use super::wire::Wire;
use xtask::site::Site;

/// The time of a measurement in addition to its seconds, about: daemons, connecting, losses at
/// both.
const OVERHEAD: Duration = Duration::from_millis(1500);

/// The most time of a round of visits.
const PATIENCE_OF_VISITS: Duration = Duration::from_secs(30);

/// The plan of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Whether a missed floor is a failure.
    pub(super) check: bool,
    /// Whether the latency of requests is measured instead of the rate of a stream.
    pub(super) requests: bool,
    /// Whether the first byte of visitors is measured instead, and the time until a link of clients
    /// is direct.
    pub(super) visits: bool,
    /// Whether a client with two paths is measured instead.
    pub(super) paths: bool,
    /// Whether the choice by measurement is measured instead.
    pub(super) choice: bool,
    pub(super) rtts: Vec<f64>,
    pub(super) losses: Vec<f64>,
    pub(super) systems: Vec<System>,
    ways: Vec<Way>,
    pub(super) seconds: u32,
}

impl Plan {
    pub(super) fn new(quick: bool, only_case: bool) -> Self {
        let [mut rtts, mut losses] =
            [vec![20.0, 60.0, 150.0, 300.0], vec![0.0, 0.1, 1.0, 5.0, 10.0, 20.0]];
        if quick {
            [rtts, losses] = [vec![60.0], vec![0.0, 1.0]];
        }
        if only_case {
            rtts.clear();
        }
        Self {
            check: false,
            requests: false,
            visits: false,
            paths: false,
            choice: false,
            rtts,
            losses,
            // A WebSocket is a TCP connection as well, so it is measured only on request.
            systems: vec![System::Direct, System::Tunnel(Scheme::TCP), System::Tunnel(Scheme::TLS)],
            ways: if quick { vec![Way::Down] } else { Way::BOTH.to_vec() },
            seconds: if quick { 2 } else { 5 },
        }
    }

    /// Restricts the plan to systems with these names.
    pub(super) fn choose(&mut self, names: &str) -> Result<()> {
        let system = |name: &str| System::all().find(|system| system.name() == name);
        self.systems = names
            .split(',')
            .map(|name| system(name).with_context(|| format!("no such system: {name}")))
            .collect::<Result<_>>()?;
        Ok(())
    }

    pub(super) fn set_seconds(&mut self, seconds: u32) -> Result<()> {
        ensure!((1..=600).contains(&seconds), "--seconds is from 1 to 600");
        self.seconds = seconds;
        Ok(())
    }

    /// The time limit of the whole run.
    pub(super) fn limit(&self) -> Duration {
        let each = |seconds: u32| Duration::from_secs(seconds.into()) + GRACE + OVERHEAD;
        if self.visits {
            let paths = (self.rtts.len() * self.losses.len()) as u32;
            return (Duration::from_secs(60) + PATIENCE_OF_VISITS * self.seconds) * paths;
        }
        let cells = self.cells() as u32;
        let case = (self.systems.len() * self.ways.len()) as u32;
        each(self.seconds) * cells + each(CASE_SECONDS) * case + Duration::from_secs(60)
    }

    fn cells(&self) -> usize {
        self.rtts.len() * self.losses.len() * self.systems.len() * self.ways.len()
    }

    /// The measurements of the case with a floor.
    fn case(&self, path: &Path) -> Vec<Cell> {
        let path = Path { rtt: CASE_RTT, rate: Some(CASE_RATE), ..path.without_trouble() };
        let cell = |(system, way)| Cell { system, way, path: path.clone(), seconds: CASE_SECONDS };
        let pairs =
            self.systems.iter().flat_map(|system| self.ways.iter().map(|way| (*system, *way)));
        pairs.map(cell).collect()
    }

    /// The matrix.
    fn matrix(&self, path: &Path) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(self.cells());
        for &rtt in &self.rtts {
            for &loss in &self.losses {
                for &system in &self.systems {
                    for &way in &self.ways {
                        let path = Path { rtt, loss, ..path.clone() };
                        cells.push(Cell { system, way, path, seconds: self.seconds });
                    }
                }
            }
        }
        cells
    }
}

/// Runs all measurements. A failed measurement is a dash in the table.
pub(super) fn run(site: &Site, path: &Path, plan: &Plan, binary: &File) -> Result<ExitCode> {
    let start = Instant::now();
    let dir = site.target.join("netem");
    fresh(&dir)?;
    let (case, matrix) = (plan.case(path), plan.matrix(path));
    let each = |cell: &Cell| Duration::from_secs(cell.seconds.into()) + OVERHEAD;
    let time: Duration = case.iter().chain(&matrix).map(each).sum();
    println!(
        "{} measurements in about {} s, at most {} s; one iperf3 stream, Mbit/s at its receiver",
        case.len() + matrix.len(),
        time.as_secs(),
        plan.limit().as_secs()
    );
    let ends = Ends::new(path)?;
    println!("{}\n", Ends::settings(path));

    let case = measure_all(&ends, &case, &dir, binary);
    let is_met = report::print_case(&case);
    let matrix = measure_all(&ends, &matrix, &dir, binary);
    report::print_matrix(path, &matrix);
    let are_held = floors::print(&matrix);
    report::write(&dir.join("latest.json"), path, &case, &matrix)?;
    println!("{} s; {}", start.elapsed().as_secs(), dir.join("latest.json").display());
    if plan.check && !is_met {
        bail!("the floor of {CASE_FLOOR} of {CASE_RATE} Mbit/s at {CASE_RTT} ms is missed");
    }
    ensure!(!plan.check || are_held, "a floor is missed");
    Ok(ExitCode::SUCCESS)
}

fn measure_all(ends: &Ends, cells: &[Cell], dir: &File, binary: &File) -> Vec<Measured> {
    let measured = cells.iter().map(|cell| {
        let result = measure(ends, cell, &dir.join("run"), binary);
        let measured = Measured::new(cell, result);
        println!("{measured}");
        measured
    });
    measured.collect()
}

/// Runs one measurement with new daemons, new connections and a new wire.
fn measure(ends: &Ends, cell: &Cell, dir: &File, binary: &File) -> Result<report::Figures> {
    fresh(dir)?;
    let before = ends.troubles()?;
    let path = &cell.path;
    let wire = Wire::start(ends, path.weather(), path.mtu, path.seed)?;
    let origin = stream::origin(ends, dir)?;
    let running = cell.system.start(ends, dir, binary)?;
    let idle = running.cpu();
    let rates = stream::visit(ends, running.address, cell.way, cell.seconds, dir, origin);
    let cpu = running.cpu() - idle;
    drop(running);
    let wire = wire.finish()?;
    let after = ends.troubles()?;
    let [overruns, resent] = [after.0 - before.0, after.1 - before.1];
    Ok(report::Figures { rates, cpu, wire, overruns, resent })
}
