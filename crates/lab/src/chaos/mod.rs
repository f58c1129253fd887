//! `cargo xtask chaos`: two real daemons under faults, with third-party software as constant
//! traffic. The path between the daemons breaks in every way, processes die, and clocks and names
//! change.
//!
//! | module | what |
//! |---|---|
//! | `schedule` | the faults and their times; a seed repeats them |
//! | `field` | the daemons, the path, the clocks, the names, and the effect of each fault |
//! | `names` | a host name that changes its address, for one process only |
//! | `outages` | the times at which an end was dead, and the failures they excuse |
//! | `traffic` | ssh, rsync, curl, iperf3 and the test's own visitors |
//! | `ledger` | the result of every piece of work |
//! | `report` | the table at the end |
//!
//! No visitor may see an error, except for work in flight while a process died.

mod field;
mod ledger;
mod names;
mod outages;
mod report;
mod schedule;
mod traffic;

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use testkit::stage::Scheme;

use field::Field;
use ledger::Ledger;
use report::Report;
use schedule::Schedule;
use traffic::Traffic;
use xtask::site::Site;
use xtask::verdict::SKIPPED;
use xtask::{options, packages};

/// The programs that must be installed.
const SOFTWARE: &[&str] =
    &["nginx", "iperf3", "curl", "sshd", "ssh", "rsync", "faketime", "unshare"];

/// The interval of progress lines on a terminal, and in a log.
const TELL: Duration = Duration::from_secs(1);
const TELL_LINES: Duration = Duration::from_secs(10);

/// The options of a run.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// The duration in minutes, shared by all transports.
    minutes: f64,
    /// The seed of the schedule of faults.
    seed: u64,
}

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut options = Options { minutes: 2.0, seed: u64::from(now.subsec_micros()) };
    let parsed = options::parse(args, |name, value| {
        match name {
            "--minutes" => options.minutes = options::minutes(name, value)?,
            "--seed" => options.seed = options::number(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    if let Some(reason) = packages::lacking(SOFTWARE).filter(|_| parsed.is_ok()) {
        println!("{reason}");
        return ExitCode::from(SKIPPED);
    }
    options::then(parsed, || run(&Site::here()?, &options))
}

/// Runs all transports in sequence. The error has the number of failures; each failure is printed.
fn run(site: &Site, options: &Options) -> Result<()> {
    let binary = site.daemon()?;
    let time = Duration::from_secs_f64(options.minutes * 60.0 / Scheme::ALL.len() as f64);
    let mut failures = 0;
    for &scheme in Scheme::ALL {
        let dir = site.target.join("chaos").join(scheme.name);
        let report = round(&binary, scheme, &dir, time, options.seed)?;
        println!("{report}");
        if report.is_good() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        } else {
            fs::write(dir.join("report.txt"), report.to_string())?;
            println!("logs are kept in {}", dir.display());
        }
        failures += report.failures();
    }
    ensure!(failures == 0, "{failures} failures with seed {}", options.seed);
    Ok(())
}

fn round(
    binary: &Path,
    scheme: Scheme,
    dir: &PathBuf,
    time: Duration,
    seed: u64,
) -> Result<Report> {
    // Remove the files of an earlier run.
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    println!("\n{} for {} s with seed {seed}, in {}", scheme.name, time.as_secs(), dir.display());
    let origins = traffic::Origins::start(dir);
    let ledger = Arc::new(Ledger::new(dir));
    let mut field = Field::start(binary, scheme, dir, &origins, &ledger)?;
    let traffic = Traffic::start(&field.entrances(), &origins, &ledger)?;

    let mut progress = Told::default();
    for (pause, fault) in Schedule::new(seed) {
        let until = Instant::now() + pause;
        if ledger.elapsed() + pause >= time {
            break;
        }
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20).min(pause));
            progress.tell(&ledger);
        }
        field.apply(fault);
        field.check();
    }
    while ledger.elapsed() < time {
        std::thread::sleep(Duration::from_millis(50));
        progress.tell(&ledger);
    }
    progress.end(&ledger);
    field.calm();
    traffic.finish();
    field.finish();
    Ok(Report::of(scheme, seed, &ledger))
}

/// The time of the last progress line.
#[derive(Debug, Default)]
struct Told(Option<Instant>);

impl Told {
    fn tell(&mut self, ledger: &Ledger) {
        let is_terminal = std::io::stdout().is_terminal();
        let every = if is_terminal { TELL } else { TELL_LINES };
        if self.0.is_none_or(|last| last.elapsed() >= every) {
            self.0 = Some(Instant::now());
            let end = if is_terminal { '\r' } else { '\n' };
            print!("{}{end}", ledger.progress());
            let _ = std::io::stdout().flush();
        }
    }

    fn end(&self, ledger: &Ledger) {
        println!("{}", ledger.progress());
    }
}
