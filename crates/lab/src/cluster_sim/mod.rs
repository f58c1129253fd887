//! `cargo xtask cluster-sim`: a million clients on 100 nodes of one logical server, in virtual
//! time. The nodes are the state machines of the crate `cluster`. The engine, the network, the
//! clients and the visitors are models. The engine has the prices and stalls that were measured.
//!
//! | module | content |
//! |---|---|
//! | `prices` | what a request costs the engine, and how long it is silent |
//! | `store`, `engine` | the records, and the cores and members that process the requests |
//! | `events` | what happens when: a heap of small events |
//! | `machine`, `clients` | the nodes with their drivers, and the clients as small records |
//! | `world` | the requests and messages of the nodes |
//! | `people` | clients log in, lose their node, move and restart |
//! | `visitor`, `visits` | visitors, and who serves them |
//! | `scenarios` | what happens to the cluster |
//! | `tally`, `report` | what is counted, and how it is shown |

mod clients;
mod engine;
mod events;
mod machine;
mod people;
mod prices;
mod report;
mod scenarios;
mod store;
mod tally;
mod visitor;
mod visits;
mod world;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::netem::optimized;
use crate::plot;
use scenarios::SimRun;
use world::{SimSizes, SimWorld};
use xtask::options;
use xtask::site::Site;

/// The nodes that are copied to measure the memory of one.
const COPIES: usize = 20;

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<_> = args.collect();
    let (checks, pairs): (Vec<_>, Vec<_>) =
        words.iter().cloned().partition(|word| word == "--check");
    let mut sizes = SimSizes { clients: 1_000_000, nodes: 100, visitors: 1_000, seed: 1 };
    let parsed = options::parse(pairs.into_iter(), |name, value| {
        match name {
            "--clients" => sizes.clients = number(name, value, 1_000, 5_000_000)?,
            "--nodes" => sizes.nodes = u16::try_from(number(name, value, 3, 900)?)?,
            "--visitors" => sizes.visitors = number(name, value, 1, 100_000)?,
            "--seed" => sizes.seed = options::number(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    options::then(parsed, || {
        let site = Site::here()?;
        if cfg!(debug_assertions) {
            // Without optimisation a run takes minutes.
            let mut again = Command::new(optimized(&site)?);
            return Err(again.arg("cluster-sim").args(&words).exec().into());
        }
        run(&site, sizes, !checks.is_empty())
    })
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32> {
    let number = options::number(name, value)?;
    ensure!((least..=most).contains(&number), "{name} wants {least} to {most}, not {value}");
    Ok(number)
}

/// Runs all scenarios. Table, JSON and plots are in `target/cluster-sim/`.
fn run(site: &Site, sizes: SimSizes, must_pass: bool) -> Result<()> {
    let SimSizes { clients, nodes, visitors, seed } = sizes;
    println!("{clients} clients, {nodes} nodes, {visitors} visitors in a second, seed {seed}");
    let start = Instant::now();
    let run = SimRun::of(sizes, state_of_a_node, |outcome| {
        println!("{:14} {:5.1} s", outcome.name, start.elapsed().as_secs_f64());
    });
    let took = start.elapsed().as_secs_f64();
    println!("\n{}\n{} events in {took:.1} s", report::table(&run), run.events);
    let dir = site.target.join("cluster-sim");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    fs::write(dir.join("latest.json"), format!("{:#}\n", report::json(&run)))?;
    let title = format!("{clients} clients on {nodes} nodes");
    fs::write(dir.join("plots.svg"), plot::svg(&title, &report::charts(&run)))?;
    println!("results: {}", dir.display());
    let misses = report::misses(&run);
    for miss in &misses {
        println!("missed: {miss}");
    }
    ensure!(!must_pass || misses.is_empty(), "{} bounds are missed", misses.len());
    Ok(())
}

/// The memory of the state of a node: what this process grows by when nodes are copied. The texts
/// of names are shared by copies and do not count.
fn state_of_a_node(world: &SimWorld) -> Option<u64> {
    let before = resident()?;
    let nodes: Vec<_> =
        world.machines.iter().filter_map(|machine| machine.node.clone()).take(COPIES).collect();
    let grown = resident()?.saturating_sub(before);
    Some(grown / nodes.len().max(1) as u64)
}

/// The resident bytes of this process.
fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
