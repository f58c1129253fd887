//! The rounds of a run. Each round measures one system after the other, so that changes of the
//! machine's speed affect all systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::case::{Case, DIRECT, Group};
use super::figure::Sample;
use super::options::Options;
use super::origins::Origins;
use super::outcome::{Outcome, Row};
use super::progress::{Clock, progress, weight};
use super::{loads, stop};
use crate::systems::{Running, System};
use xtask::site::Site;

/// The pause between two loads, for clearing away the last load. It is multiplied by the case's
/// stretch.
const PAUSE: Duration = Duration::from_millis(150);

/// The most rounds of a slow case.
const SLOW_ROUNDS: u32 = 3;

/// A system with this number of failures is not measured again: it has no figures, and a system
/// that hangs takes minutes each time.
const FAILURES: usize = 2;

/// All inputs of a run.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) site: &'a Site,
    pub(super) options: &'a Options,
    /// The systems that can be started on this machine, `direct` first.
    pub(super) systems: &'a [&'static System],
    /// The load program.
    pub(super) load: &'a Path,
    /// The folder for files and logs.
    pub(super) dir: PathBuf,
}

/// One system in one case.
#[derive(Debug)]
struct Entry {
    case: &'static Case,
    system: &'static System,
    dir: PathBuf,
    row: Row,
}

/// Runs all cases. An error is about this machine or Ctrl-C; a system's error is in its row.
pub(super) fn run(plan: &Plan<'_>, origins: &mut Origins) -> Result<Vec<Outcome>> {
    let mut clock = clock(plan);
    let mut outcomes = Vec::new();
    for group in Group::ALL {
        let cases: Vec<_> =
            plan.options.cases.iter().copied().filter(|case| case.group == group).collect();
        if !cases.is_empty() {
            outcomes.extend(run_group(plan, group, &cases, origins, &mut clock)?);
        }
    }
    Ok(outcomes)
}

fn run_group(
    plan: &Plan<'_>,
    group: Group,
    cases: &[&'static Case],
    origins: &mut Origins,
    clock: &mut Clock,
) -> Result<Vec<Outcome>> {
    let mut entries = entries(plan, cases);
    let rounds = rounds(plan.options, group);
    for round in 1..=rounds {
        for case in cases {
            let rows = entries.iter_mut().filter(|entry| entry.case.name == case.name);
            for entry in rows {
                if entry.is_given_up() {
                    entry.row.rounds.push(Err("given up".to_owned()));
                    clock.done(weight(plan.options, case));
                    continue;
                }
                let sample = entry.measure(plan, origins);
                // An interrupted load is neither a figure nor an error of the system.
                stop::check()?;
                if let Err(error) = &sample {
                    let logs = entry.dir.display();
                    println!("  {} {}: {error}; logs: {logs}", case.name, entry.row.system);
                    origins.mend();
                }
                entry.row.rounds.push(sample);
                clock.done(weight(plan.options, case));
                stop::sleep(PAUSE.mul_f64(case.stretch))?;
            }
            let rows = entries.iter().filter(|entry| entry.case.name == case.name);
            let line = progress(case, rows.map(|entry| &entry.row));
            println!("{round}/{rounds} {line}; {} left", clock.left());
        }
    }
    Ok(outcomes(entries))
}

fn entries(plan: &Plan<'_>, cases: &[&'static Case]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for case in cases {
        for system in plan.systems.iter().filter(|system| case.is_for(system)) {
            entries.push(Entry {
                case,
                system,
                dir: plan.dir.join(case.name).join(system.name),
                row: Row { system: system.name, rounds: Vec::new() },
            });
        }
    }
    entries
}

/// Ends the daemons and collects the results. Entries are sorted by case.
fn outcomes(entries: Vec<Entry>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for Entry { case, row, .. } in entries {
        match outcomes.last_mut() {
            Some(outcome) if outcome.case.name == case.name => outcome.rows.push(row),
            _ => outcomes.push(Outcome { case, rows: vec![row] }),
        }
    }
    outcomes
}

impl Entry {
    /// Whether the system failed too often. `direct` never counts as failed: the others need it in
    /// every round.
    fn is_given_up(&self) -> bool {
        let failures = self.row.rounds.iter().filter(|round| round.is_err()).count();
        self.system.name != DIRECT && failures >= FAILURES
    }

    /// Starts the daemons, puts the load on them and ends them. Daemons of another system would
    /// take a share of the machine if they still ran; some use a tenth of a core at rest.
    fn measure(&self, plan: &Plan<'_>, origins: &Origins) -> Result<Sample, String> {
        let sample = self.start(plan, origins).and_then(|running| {
            loads::measure(self.case, plan.load, &running, plan.options.seconds)
        });
        sample.map_err(|error| format!("{error:#}"))
    }

    fn start(&self, plan: &Plan<'_>, origins: &Origins) -> Result<Running> {
        // Remove the files of an earlier round.
        let _ = fs::remove_dir_all(&self.dir);
        fs::create_dir_all(&self.dir).with_context(|| format!("making {}", self.dir.display()))?;
        self.system.start(plan.site, &self.dir, &origins.list(self.case), self.case.clients())
    }
}

/// A clock with an estimate of the run's duration.
fn clock(plan: &Plan<'_>) -> Clock {
    let of_case = |case: &&Case| {
        let rounds = f64::from(rounds(plan.options, case.group));
        let systems = plan.systems.iter().filter(|system| case.is_for(system)).count();
        weight(plan.options, case) * rounds * systems as f64
    };
    Clock::start(plan.options.cases.iter().map(of_case).sum())
}

fn rounds(options: &Options, group: Group) -> u32 {
    if group.is_slow() { options.rounds.min(SLOW_ROUNDS) } else { options.rounds }
}
