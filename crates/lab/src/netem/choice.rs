//! `netem --choice`: a client that chooses among its transports by measurement, against a client
//! with each transport alone. After 10 s of a transfer a page of small objects and a download are
//! loaded; the sum of both times counts.

use std::fs;
use std::path::Path as File;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::stage::Scheme;

use super::ends::Ends;
use super::matrix::Plan;
use super::path::Path;
use super::reading::{Stage, load, read_from_source};
use super::stream::fresh;
use crate::bench::load_program;
use xtask::site::Site;

/// The transports of the client, in the order of its file.
const SCHEMES: [Scheme; 3] = [Scheme::TLS, Scheme::QUIC, Scheme::KCP];

/// The transfer before the measurement.
const WARM: Duration = Duration::from_secs(10);

/// A page: objects of this size over connections of their own, side by side and one after the
/// other.
const OBJECT: usize = 30_000;
const BESIDE: usize = 4;
const BEHIND: usize = 3;

/// The bytes of the download.
const DOWNLOAD: usize = 4_000_000;

/// The loads of a measurement; the median counts.
const LOADS: usize = 3;

/// The most that the choice may take, as a share of the best transport.
const MOST: f64 = 1.05;

/// A client with one transport, or with all and the choice.
type Client = (&'static str, Vec<(Scheme, usize)>, &'static str);

/// Measures each cell.
pub(super) fn run_all(site: &Site, path: &Path, plan: &Plan, binary: &File) -> Result<ExitCode> {
    let dir = site.target.join("netem");
    fresh(&dir)?;
    let load = load_program(site);
    let ends = Ends::new(path)?;
    ends.left.default_route()?;
    println!("{}", Ends::settings(path));
    println!("s for a page and a download after 10 s of a transfer, median of {LOADS}\n");
    let (mut cells, mut are_held) = (Vec::new(), true);
    for &rtt in &plan.rtts {
        for &loss in &plan.losses {
            let path = Path { rtt, loss, ..path.clone() };
            let (is_held, cell) = compare(&ends, &path, &dir, (binary, &load))?;
            are_held &= is_held;
            cells.push(cell);
        }
    }
    let file = dir.join("choice.json");
    let value = json!({ "path": path.describe(), "cells": cells });
    fs::write(&file, format!("{value:#}\n"))?;
    println!("{}", file.display());
    ensure!(!plan.check || are_held, "the choice is slower than a transport");
    Ok(ExitCode::SUCCESS)
}

/// Compares the choice with each transport over one path.
fn compare(
    ends: &Ends,
    path: &Path,
    dir: &File,
    programs: (&File, &File),
) -> Result<(bool, Value)> {
    let alone = SCHEMES.iter().map(|&scheme| (scheme.name, vec![(scheme, 0)], "connections: 1\n"));
    let all: Vec<_> = SCHEMES.iter().map(|&scheme| (scheme, 0)).collect();
    let choice: Client = ("measured", all, "connections: 1\nchoose: measured\n");
    let clients: Vec<Client> = alone.chain([choice]).collect();
    print!("{:3} ms {:4} %  ", path.rtt, path.loss);
    let mut times = Vec::new();
    for (name, paths, lines) in &clients {
        let time = measure(ends, path, (paths, lines), dir, programs).context(*name)?;
        print!("{name} {:.2} s  ", time.as_secs_f64());
        times.push(time.as_secs_f64());
    }
    let measured = times.pop().context("a choice")?;
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let share = measured / best;
    let is_held = share <= MOST;
    println!("{share:.2} of the best: {}", if is_held { "held" } else { "missed" });
    let cell = json!({
        "rtt_ms": path.rtt, "loss_percent": path.loss, "alone_s": times, "measured_s": measured,
    });
    Ok((is_held, cell))
}

/// The median time of a page and a download.
fn measure(
    ends: &Ends,
    path: &Path,
    (paths, lines): (&[(Scheme, usize)], &str),
    dir: &File,
    programs: (&File, &File),
) -> Result<Duration> {
    let stage = Stage::start(ends, path, paths, lines, dir, programs)?;
    let (begin, mut warm) = (Instant::now(), read_from_source()?);
    while begin.elapsed() < WARM {
        std::io::copy(&mut std::io::Read::take(&mut warm, 100_000), &mut std::io::sink())?;
    }
    drop(warm);
    // The bytes of the transfer that are still on their way.
    thread::sleep(Duration::from_secs(1));
    let mut times = Vec::new();
    for _ in 0..LOADS {
        let begin = Instant::now();
        for _ in 0..BEHIND {
            thread::scope(|scope| {
                let loads: Vec<_> = (0..BESIDE).map(|_| scope.spawn(|| load(OBJECT))).collect();
                let join = |load: thread::ScopedJoinHandle<'_, Result<()>>| {
                    load.join().map_err(|_| anyhow::anyhow!("a load panicked"))?
                };
                loads.into_iter().try_for_each(join)
            })?;
        }
        load(DOWNLOAD)?;
        times.push(begin.elapsed());
    }
    drop(stage);
    times.sort();
    times.get(LOADS / 2).copied().context("a load")
}

/// The time limit of a run.
pub(super) fn limit(plan: &Plan) -> Duration {
    let cells = plan.rtts.len() * plan.losses.len() * (SCHEMES.len() + 1);
    Duration::from_secs(120) * cells as u32
}
