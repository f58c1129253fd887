//! `cargo xtask soak`: visitors that come and go as badly as they can, for a long time, and whether
//! both daemons stay as small as they were.
//!
//! | module | what |
//! |---|---|
//! | `churn` | aborted downloads, failed dials, short connections, at a steady pace |
//! | `sample` | what a daemon has at a moment: memory, descriptors, tasks, streams |
//! | `verdict` | what counts as flat |

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

/// What the daemons free is to be gone from their memory. Left to itself glibc puts buffers of more
/// than 128 KiB into its heaps once one was freed, where small things that stay keep them from the
/// system: over 15 minutes a daemon then wanders between 7 and 14 MB, and with this it stays within
/// 0.1 MB of 4.6. (mallopt(3), "Dynamic mmap threshold".)
const ALLOCATOR: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "65536"), ("MALLOC_TRIM_THRESHOLD_", "65536")];

/// Between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// Churn before it counts: until then pools of buffers grow to what this load needs, and a run of a minute
/// would compare a daemon that is still small with one that is not.
const WARM_UP: Duration = Duration::from_secs(40);

/// Before the first sample: a target whose visitor has left is kept open for 5 s.
const REST: Duration = Duration::from_secs(8);

/// How long all that was churned may take to go away.
const SETTLE: Duration = Duration::from_secs(30);

/// How often the progress is told.
const TELL: Duration = Duration::from_secs(10);

/// A run.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// How long; 20 make the counts of the reliability list.
    minutes: f64,
    /// What the tunnel runs over.
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

/// The error says what did not stay flat or failed. Plot and logs stay in `target/soak/`.
fn run(site: &Site, options: &Options) -> Result<()> {
    let binary = site.daemon()?;
    let dir = site.target.join("soak");
    // What a former run left.
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
    let mut told = start;
    while start.elapsed() < time {
        std::thread::sleep(EVERY);
        samples.push(Both::of(&mut running, start.elapsed())?);
        if told.elapsed() >= TELL {
            told = Instant::now();
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

/// A sample without visitors, so long after the start; where there is a base, once it is reached
/// or time is up.
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
