//! `cargo xtask soak`: visitors come and go abruptly for a long time, and the memory and
//! descriptors of both daemons must not grow.
//!
//! | module | what |
//! |---|---|
//! | `churn` | aborted downloads, failed dials, short connections, at a steady pace |
//! | `sample` | a daemon's resources at a moment: memory, descriptors, tasks, streams |
//! | `verdict` | the definition of flat |

mod churn;
mod sample;
mod verdict;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::stage::{Origin, Running, Scheme, Setup, free_port};

use crate::plot::{self, Chart, Line};
use churn::{Churn, Places};
use sample::{Both, Sample};
use xtask::options;
use xtask::site::Site;

/// Makes glibc return the memory that the daemons free. By default, once a buffer of more than 128
/// KiB was freed, glibc puts such buffers into its heaps. Small allocations that stay there keep
/// the heap's memory from the system. Over 15 minutes a daemon then varies between 7 and 14 MB;
/// with this setting it stays within 0.1 MB of 4.6 MB. (mallopt(3), "Dynamic mmap threshold".)
const ALLOCATOR: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "65536"), ("MALLOC_TRIM_THRESHOLD_", "65536")];

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// Churn before the first counted sample. Until then the pools of buffers grow to the size that
/// this load needs, and a run of one minute would compare a daemon before this growth with
/// the same daemon after it.
const WARM_UP: Duration = Duration::from_secs(40);

/// The pause before the first sample: a target whose visitor has left is kept open for 5 s.
const REST: Duration = Duration::from_secs(8);

/// The time limit for the resources of all visitors to go away.
const SETTLE: Duration = Duration::from_secs(30);

/// The interval of progress lines.
const TELL: Duration = Duration::from_secs(10);

/// The options of a run.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// The duration; 20 minutes reach the counts of the reliability list.
    minutes: f64,
    /// The transport of the tunnel.
    scheme: Scheme,
}

impl Default for Options {
    fn default() -> Self {
        Self { minutes: 20.0, scheme: Scheme::TLS }
    }
}

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let mut options = Options::default();
    let parsed = options::parse(args, |name, value| {
        match name {
            "--minutes" => options.minutes = options::minutes(name, value)?,
            "--transport" => options.scheme = scheme(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    options::then(parsed, || run(&Site::here()?, &options))
}

fn scheme(name: &str) -> Result<Scheme> {
    Scheme::named(name).with_context(|| {
        let names: Vec<_> = Scheme::ALL.iter().map(|scheme| scheme.name).collect();
        format!("no such transport: {name}; there are {}", names.join(", "))
    })
}

/// Runs the soak. The error has the resources that grew and the visits that failed. Plot and logs
/// stay in `target/soak/`.
fn run(site: &Site, options: &Options) -> Result<()> {
    let binary = site.daemon()?;
    let dir = site.target.join("soak");
    // Remove the files of an earlier run.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let source = Origin::start(churn::endless);
    let echo = Origin::echo();
    let closed = free_port();
    let mut setup = Setup::kept(&binary, options.scheme, &dir);
    setup.client_lines.push_str("connections: 2\n");
    for env in [&mut setup.server_env, &mut setup.client_env] {
        env.extend(ALLOCATOR.map(|(name, value)| (name, value.into())));
    }
    let setup = setup.service("source", source.port()).service("echo", echo.port());
    let mut running = setup.service("closed", closed).forward(closed).start();
    let places = Places {
        source: running.public("source"),
        echo: running.public("echo"),
        closed: [running.public("closed"), running.local()],
    };
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    let scheme = options.scheme.name;
    println!("\nsoak for {} s over {scheme}, in {}", time.as_secs(), dir.display());

    churn::warm_up(&places)?;
    println!("warming up for {} s", WARM_UP.as_secs());
    Churn::start(places, WARM_UP)?.finish()?;
    std::thread::sleep(REST);
    let mut samples = vec![settled(&mut running, None, Duration::ZERO)?];
    let churn = Churn::start(places, time)?;
    let start = Instant::now();
    let mut reported = start;
    while start.elapsed() < time {
        std::thread::sleep(EVERY);
        samples.push(Both::of(&mut running, start.elapsed())?);
        if reported.elapsed() >= TELL {
            reported = Instant::now();
            println!("{:4} s  {}", start.elapsed().as_secs(), churn.progress());
        }
    }
    let counted = churn.finish()?;
    println!("{counted}");
    let churned = samples.len();
    samples.push(settled(&mut running, samples.first().copied(), start.elapsed())?);
    draw(&dir, options, &samples)?;
    let complaints = verdict::judge(&samples[..churned], &samples[churned]);
    ensure!(complaints.is_empty(), "{}", complaints.join("\n  "));
    println!("flat: memory, descriptors and tasks of both daemons");
    Ok(())
}

/// A sample without visitors, with `at` as its time. With a base, the sample is taken when the base
/// is reached or the time is up.
fn settled(running: &mut Running, base: Option<Both>, at: Duration) -> Result<Both> {
    let start = Instant::now();
    loop {
        std::thread::sleep(EVERY);
        let later = if base.is_some() { start.elapsed() } else { Duration::ZERO };
        let now = Both::of(running, at + later)?;
        let is_base = base.is_none_or(|base| verdict::is_back(&base, &now));
        if now.is_quiet() && is_base || start.elapsed() > SETTLE {
            return Ok(now);
        }
    }
}

fn draw(dir: &Path, options: &Options, samples: &[Both]) -> Result<()> {
    let chart = |title: &str, y: &str, of: fn(&Sample) -> f64| {
        let line = |name: &str, end: fn(&Both) -> &Sample| Line {
            name: name.to_owned(),
            points: samples.iter().map(|both| (both.at.as_secs_f64(), of(end(both)))).collect(),
        };
        Chart {
            title: title.to_owned(),
            x: "seconds".to_owned(),
            y: y.to_owned(),
            lines: vec![line("server", |both| &both.server), line("client", |both| &both.client)],
        }
    };
    let charts = [
        chart("resident memory", "MiB", |sample| sample.resident as f64 / f64::from(1 << 20)),
        chart("descriptors", "open", |sample| sample.descriptors as f64),
        chart("tasks", "alive", |sample| sample.tasks as f64),
        chart("streams", "open", |sample| sample.streams as f64),
    ];
    let file = dir.join("soak.svg");
    let title = format!("Churn over {}, {} min", options.scheme.name, options.minutes);
    fs::write(&file, plot::svg(&title, &charts)).context("writing the plot")?;
    println!("plot: {}", file.display());
    Ok(())
}
