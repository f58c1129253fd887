//! `cargo xtask bench`: puts the same load on every system that can be started on this machine,
//! side by side in one run.
//!
//! Machines are shared and noisy, so only ratios taken in one run are meaningful. A round puts each
//! load on one system after the other, `direct` (no daemon between visitor and origin) first. A
//! ratio is taken within its round. The report shows the median over the rounds and the range.
//!
//! | module | what |
//! |---|---|
//! | `options` | the command line |
//! | `build`, `versions` | builds the programs, and lists their versions |
//! | `case` | the loads that every system gets |
//! | `network` | a network namespace with a known congestion control |
//! | `origins` | nginx, iperf3 and `load origin`, at the far end |
//! | `loads` | wrk, iperf3 and `load`: their command lines and reports |
//! | `daemons` | processor time and memory, from `/proc` |
//! | `rounds`, `progress` | the run, and its progress lines |
//! | `complete` | `--complete`: whether every figure is there |
//! | `figure`, `spread`, `outcome` | figures, median and range, ratios |
//! | `results`, `machine` | all results of a run, and the machine of the measurement |
//! | `table`, `record`, `report` | output for the terminal, for programs, for a browser |
//! | `floors` | `benches/floors.toml` and its verdicts |
//! | `stop` | Ctrl-C |

mod build;
mod case;
mod complete;
mod daemons;
mod figure;
mod floors;
mod loads;
mod machine;
mod network;
mod options;
mod origins;
mod outcome;
mod progress;
mod record;
mod report;
mod results;
mod rounds;
mod spread;
mod stop;
mod table;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::systems;
pub(crate) use build::{build_load, load_program, prepare};
pub(crate) use case::Case;
pub(crate) use figure::number;
use floors::Verdict;
pub(crate) use loads::measure;
use machine::Machine;
use options::Options;
pub(crate) use origins::Origins;
use results::Results;
use rounds::Plan;
use versions::versions;
use xtask::packages;
use xtask::site::Site;

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let mut words: Vec<_> = args.collect();
    let is_inside = words.first().is_some_and(|word| word == network::INSIDE);
    if is_inside {
        words.remove(0);
    }
    match Options::read(words.iter().cloned(), &names()) {
        Err(error) => xtask::options::then(Err(error), || Ok(())),
        Ok(options) if is_inside => xtask::options::then(Ok(()), || inside(&options)),
        Ok(options) => xtask::options::then(Ok(()), || command(&options, &words)),
    }
}

/// Builds the programs, and enters the network with a known congestion control.
fn command(options: &Options, words: &[String]) -> Result<()> {
    let site = Site::here()?;
    // Report a mistake in the file before the hour of measuring, not after it.
    let floors = if options.check { read_floors(&site)? } else { Vec::new() };
    if options.congestion != network::HOST {
        network::check(&options.congestion)?;
    }
    let load = ready(&site, options)?;
    if options.congestion != network::HOST {
        let Some(reason) = network::lacking(&options.congestion) else {
            return Err(network::enter(words.iter().map(Into::into)));
        };
        let (wanted, host) = (&options.congestion, network::congestion());
        println!("measured with this host's {host}, not with {wanted}: {reason}");
    }
    judge(&run(&site, options, &load)?, options, &floors)
}

/// The second run of this program, in its own network namespace. Everything is built.
fn inside(options: &Options) -> Result<()> {
    let site = Site::here()?;
    network::configure(&options.congestion)?;
    let floors = if options.check { read_floors(&site)? } else { Vec::new() };
    judge(&run(&site, options, &load_program(&site))?, options, &floors)
}

/// Builds the programs of the run.
fn ready(site: &Site, options: &Options) -> Result<PathBuf> {
    let software: Vec<_> = options.cases.iter().flat_map(|case| case.software()).copied().collect();
    if let Some(reason) = packages::lacking(&software) {
        anyhow::bail!("{reason}; `cargo xtask test packages` installs what these cases need");
    }
    site.build_static()?;
    let wanted = |system: &&systems::System| options.systems.contains(&system.name);
    if systems::all().iter().filter(wanted).any(systems::System::needs_glibc) {
        site.build_with_glibc()?;
    }
    build_load(site)
}

/// Measures and writes all reports.
fn run(site: &Site, options: &Options, load: &Path) -> Result<Results> {
    prepare()?;
    let (mut present, mut left_out) = (Vec::new(), Vec::new());
    for system in systems::all().iter().filter(|s| options.systems.contains(&s.name)) {
        match system.lacking(site) {
            None => present.push(system),
            Some(reason) => left_out.push((system.name, reason)),
        }
    }
    for (system, reason) in &left_out {
        println!("{system} is left out: {reason}");
    }
    let dir = site.target.join(if options.quick { "bench/quick" } else { "bench" });
    let files = dir.join("run");
    // Remove the files of an earlier run.
    let _ = fs::remove_dir_all(&files);
    let mut origins = Origins::start(&files.join("origins"), load, &options.cases)?;
    let machine = Machine::here(site);
    println!("\n{machine}");
    let plan = Plan { site, options, systems: &present, load, dir: files };
    let outcomes = rounds::run(&plan, &mut origins)?;
    drop(origins);

    let results = Results {
        machine,
        versions: versions(site, &present),
        rounds: options.rounds,
        seconds: options.seconds,
        left_out,
        outcomes,
    };
    write_down(&dir, &results)?;
    Ok(results)
}

fn write_down(dir: &Path, results: &Results) -> Result<()> {
    println!();
    for outcome in &results.outcomes {
        println!("{}", table::table(outcome));
    }
    let files = [
        ("latest.json", format!("{:#}\n", record::record(results))),
        ("report.html", report::html(results)),
    ];
    for (name, text) in files {
        let file = dir.join(name);
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        println!("wrote {}", file.display());
    }
    Ok(())
}

fn read_floors(site: &Site) -> Result<Vec<floors::Floor>> {
    let file = site.root.join("benches/floors.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    floors::parse(&text, &names()).with_context(|| format!("{}", file.display()))
}

/// Prints the verdict on each floor. A missed floor is an error, and so is a run that can judge no
/// floor.
fn judge(results: &Results, options: &Options, floors: &[floors::Floor]) -> Result<()> {
    if options.complete {
        complete::is_complete(results)?;
    }
    if !options.check {
        return Ok(());
    }
    println!();
    let (mut held, mut missed) = (0, Vec::new());
    for floor in floors {
        match floors::judge(floor, &results.outcomes, &results.left_out) {
            Verdict::Held(line) => {
                held += 1;
                println!("held    {line}");
            }
            Verdict::Skipped(line) => println!("skipped {line}"),
            Verdict::Missed(line) => {
                println!("MISSED  {line}");
                missed.push(line);
            }
        }
    }
    ensure!(missed.is_empty(), "{} floors missed:\n  {}", missed.len(), missed.join("\n  "));
    ensure!(held > 0, "no floor is about what was run");
    println!("{held} floors held");
    Ok(())
}

fn names() -> Vec<&'static str> {
    systems::all().iter().map(|system| system.name).collect()
}

#[cfg(test)]
mod tests {
    use super::case::DIRECT;
    use super::results::tests::results;
    use super::*;

    #[test]
    fn a_missed_floor_is_a_failure_and_so_is_judging_nothing() {
        let judged = |case: &str, bound: f64| {
            let text = format!(
                "[[floor]]\ncase = \"{case}\"\nsystem = \"tunnel-tcp\"\n\
                 ratio_to = \"direct\"\nat_least = {bound}\n"
            );
            let options = Options { check: true, ..Options::quick(&[]) };
            judge(&results(), &options, &floors::parse(&text, &[DIRECT, "tunnel-tcp"]).unwrap())
        };
        assert!(judged("http-100", 0.5).is_ok());
        let missed = judged("http-100", 0.51).unwrap_err().to_string();
        assert!(missed.contains("1 floors missed:\n  http-100 tunnel-tcp: rate to direct 0.500"));
        let nothing = judged("bulk-up", 0.1).unwrap_err().to_string();
        assert!(nothing.contains("no floor"), "{nothing}");
    }

    #[test]
    fn the_file_of_floors_is_good() {
        read_floors(&Site::here().unwrap()).unwrap();
    }
}
