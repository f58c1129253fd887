//! `cargo xtask chaos`: two real daemons, a path between them that breaks in every way, processes
//! that die, clocks and names that change, and ordinary software through it all the time.
//!
//! | module | what |
//! |---|---|
//! | `schedule` | which fault comes when; a seed repeats it |
//! | `field` | the daemons, the path, the clocks, the names, and what a fault does to them |
//! | `names` | a host name that moves, for one process only |
//! | `outages` | when an end was dead, and what that excuses |
//! | `traffic` | ssh, rsync, curl, iperf3 and visitors of our own |
//! | `ledger` | what became of every piece of work |
//! | `report` | the table at the end |
//!
//! No visitor may see an error, except work that was in flight while a process really died.

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

/// What has to be installed.
const SOFTWARE: &[&str] =
    &["nginx", "iperf3", "curl", "sshd", "ssh", "rsync", "faketime", "unshare"];

/// How often the progress is told: on a terminal, and where lines stay.
const TELL: Duration = Duration::from_secs(1);
const TELL_LINES: Duration = Duration::from_secs(10);

/// A run.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Shared by all transports.
    minutes: f64,
    /// Of the schedule of faults.
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

/// All transports, one after the other. The error counts the failures; what they were is printed.
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
    // What a former run left.
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    println!("\n{} for {} s with seed {seed}, in {}", scheme.name, time.as_secs(), dir.display());
    let origins = traffic::Origins::start(dir);
    let ledger = Arc::new(Ledger::new(dir));
    let mut field = Field::start(binary, scheme, dir, &origins, &ledger)?;
    let traffic = Traffic::start(&field.entrances(), &origins, &ledger)?;

    let mut told = Told::default();
    for (pause, fault) in Schedule::new(seed) {
        let until = Instant::now() + pause;
        if ledger.elapsed() + pause >= time {
            break;
        }
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20).min(pause));
            told.tell(&ledger);
        }
        field.apply(fault);
        field.check();
    }
    while ledger.elapsed() < time {
        std::thread::sleep(Duration::from_millis(50));
        told.tell(&ledger);
    }
    told.end(&ledger);
    field.calm();
    traffic.finish();
    field.finish();
    Ok(Report::of(scheme, seed, &ledger))
}

/// When the progress was last told.
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
