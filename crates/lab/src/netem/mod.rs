//! `cargo xtask netem`: two network namespaces joined by a wire in user space, with delay, jitter,
//! loss, reordering and a bottleneck. The kernel's real TCP and the real daemons can be measured
//! over paths that the machine does not have. The kernel's own emulator (`sch_netem`) is not
//! needed.
//!
//! | module | what |
//! |---|---|
//! | `wish` | the command line |
//! | `path` | the properties of the path |
//! | `cage` | namespaces that vanish with this process |
//! | `ends` | the two ends: devices, addresses, routes, settings of TCP |
//! | `wire` | carries packets between two TUN devices by the model of `testkit::netem` |
//! | `lateness` | how precise the wire was |
//! | `shell` | `netem run`: the caller's commands over the path |
//! | `systems` | the systems under test: TCP directly over the path, and through the tunnel |
//! | `stream` | one iperf3 stream, as its receiver measures it |
//! | `matrix`, `cell` | the measurements of a run |
//! | `requests` | the latency of requests at fixed times, with floors |
//! | `visits` | the first byte of visitors of private services, and the time to a direct path |
//! | `reading` | a client whose programs read from the server's side, over several paths |
//! | `choice` | a client that chooses among its transports by measurement |
//! | `two_paths` | a client with two paths: both at once, the loss of one, a move |
//! | `floors` | floors of `quic://` and `kcp://` on some paths |
//! | `report` | the tables and the JSON file |

mod cage;
mod cell;
mod choice;
mod ends;
mod floors;
mod lateness;
mod matrix;
mod path;
mod reading;
mod report;
mod requests;
mod shell;
mod stream;
mod systems;
mod two_paths;
mod visits;
mod wire;
mod wish;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench::build_load;
use wish::{Job, Wish};
use xtask::child::cargo;
use xtask::site::Site;

pub(crate) use wish::HELP;

/// The first word of the second run of this program, inside the namespaces. The binary to measure
/// and the words of the first run follow.
const INSIDE: &str = "inside";

fn help() -> String {
    format!("{HELP}{}{}", wish::OPTIONS, path::HELP)
}

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<_> = args.collect();
    let (binary, words) = match &args[..] {
        [first, binary, words @ ..] if first == INSIDE => (Some(PathBuf::from(binary)), words),
        words => (None, words),
    };
    if let [first] = words
        && ["help", "--help", "-h"].contains(&first.as_str())
    {
        println!("{}", help());
        return ExitCode::SUCCESS;
    }
    let wish = match Wish::parse(words) {
        Ok(wish) => wish,
        Err(error) => {
            eprintln!("xtask: {error:#}\n\n{}", help());
            return ExitCode::from(2);
        }
    };
    let done = match binary {
        None => outside(&wish, words),
        Some(binary) => inside(&wish, &binary),
    };
    done.unwrap_or_else(|error| {
        eprintln!("FAILED: {error:#}");
        ExitCode::FAILURE
    })
}

/// Builds the programs under test and enters the namespaces.
fn outside(wish: &Wish, words: &[String]) -> Result<ExitCode> {
    if let Some(reason) = cage::lacking()? {
        bail!("netem cannot run here: {reason}");
    }
    let site = Site::here()?;
    let binary = match (&wish.binary, &wish.job) {
        (Some(binary), _) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        (None, Job::Shell(_)) => PathBuf::new(),
        // The static binary has no WebRTC.
        (None, Job::Matrix(plan)) if plan.systems.contains(&systems::System::PeerWebrtc) => {
            site.build_with_glibc()?;
            site.glibc.clone()
        }
        (None, Job::Matrix(_)) => {
            site.build_static()?;
            site.tunnel.clone()
        }
    };
    if matches!(&wish.job, Job::Matrix(plan) if plan.requests || plan.visits || plan.paths || plan.choice)
    {
        build_load(&site)?;
    }
    let program = optimized(&site)?;
    let mut args = vec![OsString::from("netem"), INSIDE.into(), binary.into()];
    args.extend(words.iter().map(OsString::from));
    cage::run(&program, &args, wish.limit())
}

/// This program, built with optimisation: without it, a wire that carries 100,000 packets per
/// second is late, and 1.3 Gbit/s is its limit.
pub(crate) fn optimized(site: &Site) -> Result<PathBuf> {
    let args = ["build", "--quiet", "--profile", "e2e", "--package", "lab"];
    let status =
        cargo(&site.root, &args).stdin(Stdio::null()).status().context("starting cargo")?;
    ensure!(status.success(), "cargo {} ended with {status}", args.join(" "));
    Ok(site.target.join("e2e/lab"))
}

fn inside(wish: &Wish, binary: &Path) -> Result<ExitCode> {
    match &wish.job {
        Job::Shell(shell) => shell::run(&wish.path, shell),
        Job::Matrix(plan) if plan.requests => {
            requests::run(&Site::here()?, &wish.path, plan, binary)
        }
        Job::Matrix(plan) if plan.visits => {
            visits::run_all(&Site::here()?, &wish.path, plan, binary)
        }
        Job::Matrix(plan) if plan.choice => {
            choice::run_all(&Site::here()?, &wish.path, plan, binary)
        }
        Job::Matrix(plan) if plan.paths => {
            two_paths::run_all(&Site::here()?, &wish.path, plan, binary)
        }
        Job::Matrix(plan) => matrix::run(&Site::here()?, &wish.path, plan, binary),
    }
}
