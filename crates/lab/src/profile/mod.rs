//! `cargo xtask profile CASE`: shows where the daemons of a system spend their time under the load
//! of a case. The results are a flame graph and a table of the top functions, in `target/profile/`.
//!
//! | module | what |
//! |---|---|
//! | `perf` | perf(1) as a child |
//! | `stacks` | parses the text of perf into counted stacks |
//! | `flame` | draws the stacks |
//! | `top` | lists the stacks' top functions |

mod flame;
mod perf;
mod stacks;
mod top;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench::{self, Case, Origins};
use crate::systems::{self, System};
use stacks::Stacks;
use xtask::child::{cargo, run as run_program};
use xtask::site::{OF_GLIBC, Site};
use xtask::{options, packages};

/// The options of a run.
#[derive(Debug)]
struct Options {
    case: &'static Case,
    system: &'static System,
    /// Seconds of load.
    seconds: f64,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let name = args.next().context("which case? As `cargo xtask profile http-100`")?;
        let case = Case::named(&name).with_context(|| {
            let names: Vec<_> = Case::all().iter().map(|case| case.name).collect();
            format!("there is no case {name}; there are {}", names.join(", "))
        })?;
        let mut read = Self { case, system: system_named("tunnel-tcp")?, seconds: 5.0 };
        options::parse(args, |name, value| {
            match name {
                "--system" => read.system = system_named(value)?,
                "--seconds" => {
                    read.seconds = options::number(name, value)?;
                    ensure!((0.1..=600.0).contains(&read.seconds), "{name} wants 0.1 to 600");
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(read)
    }
}

fn system_named(name: &str) -> Result<&'static System> {
    systems::all().iter().find(|system| system.name == name).with_context(|| {
        let names: Vec<_> = systems::all().iter().map(|system| system.name).collect();
        format!("there is no system {name}; there are {}", names.join(", "))
    })
}

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    match Options::read(args) {
        Err(error) => options::then(Err(error), || Ok(())),
        Ok(options) => options::then(Ok(()), || run(&options)),
    }
}

fn run(options: &Options) -> Result<()> {
    let Options { case, system, seconds } = *options;
    if let Some(reason) = perf::lacking().or_else(|| packages::lacking(case.software())) {
        bail!("{reason}");
    }
    let mut site = Site::here()?;
    bench::prepare()?;
    site.tunnel = build(&site)?;
    if let Some(reason) = system.lacking(&site) {
        bail!("{} cannot be started: {reason}", system.name);
    }
    let load = bench::build_load(&site)?;

    let dir = site.target.join("profile");
    let files = dir.join("run");
    // Remove the files of an earlier run.
    let _ = fs::remove_dir_all(&files);
    let daemons = files.join("daemons");
    fs::create_dir_all(&daemons).with_context(|| format!("making {}", daemons.display()))?;
    let origins = Origins::start(&files.join("origins"), &load, &[case])?;
    let running = system.start(&site, &daemons, &origins.list(case), case.clients())?;
    let pids = running.pids().to_vec();
    ensure!(!pids.is_empty(), "{} has no daemon to look into", system.name);
    println!("{} on {} for {seconds} s", case.name, system.name);
    let data = files.join("perf.data");
    let recording = perf::Recording::start(&pids, &data)?;
    let sample = bench::measure(case, &load, &running, seconds)?;
    recording.finish()?;
    drop((running, origins));

    let role = |pid| match pids.iter().position(|known| *known == pid)? {
        0 => Some("server"),
        1 => Some("client"),
        _ => Some("other daemons"),
    };
    let stacks = Stacks::read(perf::script(&data)?.lines(), role);
    ensure!(stacks.total() > 0, "perf has seen nothing of the daemons");
    let title = format!("{} on {}", case.name, system.name);
    let table = top::text(&title, &stacks);
    println!("\n{table}");
    for (figure, value) in &sample {
        println!("while perf looked on: {} {}", figure.key(), bench::number(*value));
    }
    let name = format!("{}-{}", case.name, system.name);
    for (extension, text) in [("svg", flame::svg(&title, &stacks)), ("txt", table)] {
        let file = dir.join(format!("{name}.{extension}"));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        println!("wrote {}", file.display());
    }
    Ok(())
}

/// Builds the release binary with symbols and frame pointers, in a target folder of its own.
fn build(site: &Site) -> Result<PathBuf> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = cargo(&site.root, &["build", "--profile", "perf"]);
    command.args(OF_GLIBC);
    run_program(command.env("RUSTFLAGS", format!("{flags} -C force-frame-pointers=yes")))?;
    Ok(site.target.join("perf/tunnel"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options> {
        Options::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_case_is_named_and_the_rest_has_defaults() {
        let options = read("http-100").unwrap();
        assert_eq!((options.case.name, options.system.name), ("http-100", "tunnel-tcp"));
        let options = read("bulk-up --seconds 2 --system tunnel-tls").unwrap();
        assert_eq!((options.system.name, options.seconds), ("tunnel-tls", 2.0));
        for (line, complaint) in [
            ("", "which case"),
            ("http-99", "no case http-99"),
            ("http-1 --system pigeon", "no system pigeon"),
            ("http-1 --seconds 0", "0.1 to 600"),
            ("http-1 --speed 1", "no such option"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
