//! The long steps: their outcome depends on the speed of the machine, on wall-clock minutes or on
//! thousands of sockets. `crates/xtask/long.toml` says which paths each of them is about.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::advisories;
use super::conformance;
use super::end_to_end::{HEAVY, SLOW, at_once, end_to_end, is_short};
use super::kcp_go;
use super::miri;
use super::step::{Lengths, Step};
use super::steps;
use super::tools::{lab, tool};
use crate::dist;
use xtask::child::{cargo, run, run_tests};
use xtask::packages;
use xtask::site::{KCP_GO, Site};
use xtask::verdict::Verdict;

const fn step(
    name: &'static str,
    what: &'static str,
    run: fn(&Site, Lengths) -> Result<Verdict>,
) -> Step {
    Step { name, what, long: true, run }
}

pub(super) const STEPS: &[Step] = &[
    step("slow", "end-to-end cases that wait for minutes of wall-clock time", slow),
    step("heavy", "thousands of visitors and clients, small memories, idle time", heavy),
    step("nat-long", "all pairs of networks, and 200 MB over paths that change", steps::nat_long),
    step("webrtc-long", "100 MB between webrtc:// and each other program", steps::webrtc_long),
    step("engine", "three members of etcd: killed, stopped, without a quorum", steps::engine),
    step(
        "cluster-faults",
        "a cluster of real processes under faults: histories of claims and visits are judged",
        steps::cluster_faults,
    ),
    step(
        "timed",
        "tests of node, server and survey that measure time, in the release profile",
        timed,
    ),
    step("console-timed", "how soon the web console answers", steps::console_timed),
    step("glibc-e2e", "the optimised binary of glibc against real software", glibc_e2e),
    step(
        "dist-long",
        "packages of all processors, read by lintian, skopeo and podman",
        |site, _| dist::long(site),
    ),
    step("conformance", "h2spec, testssl.sh and Autobahn against names", |site, _| {
        conformance::check(site)
    }),
    step("schemas", "the admin API before schemathesis, 40 examples of each operation", schemas),
    step("advisories", "Cargo.lock against the RustSec database", |site, _| {
        advisories::check(site)
    }),
    step("miri", "the kernels of gf256 under Miri", |site, _| miri::check(site)),
    step("fuzz", "each fuzz target for some minutes", fuzz),
    step("chaos", "faults under real traffic, over every transport", chaos),
    step("soak", "churn, and whether memory, descriptors and tasks stay flat", soak),
    step("netem", "emulated paths: quic:// and direct paths keep their floors", netem),
    step("kcp-speed", "engine, FEC and envelope of kcp keep their floors", kcp_speed),
    step("bench", "every case on every system; the floors of benches/floors.toml", bench),
];

fn slow(site: &Site, _: Lengths) -> Result<Verdict> {
    end_to_end(site, &site.daemon()?, at_once(), |name| name.starts_with(SLOW))
}

/// One case at a time: each of them fills the machine.
fn heavy(site: &Site, _: Lengths) -> Result<Verdict> {
    end_to_end(site, &site.daemon()?, 1, |name| name.starts_with(HEAVY))
}

/// The ignored tests. One test at a time: each of them measures.
fn timed(site: &Site, _: Lengths) -> Result<Verdict> {
    let packages = ["node", "ops", "server", "survey"];
    let mut command = cargo(&site.root, &["test", "--release", "--lib"]);
    command.args(packages.iter().flat_map(|name| ["--package", name]));
    command.args(["--", "--ignored", "--test-threads=1"]);
    let tests = run_tests(&mut command)?;
    ensure!(tests.passed > 0, "no test measures time");
    Ok(Verdict::Passed(tests))
}

fn glibc_e2e(site: &Site, _: Lengths) -> Result<Verdict> {
    end_to_end(site, &site.daemon()?, at_once(), is_short)
}

fn schemas(site: &Site, _: Lengths) -> Result<Verdict> {
    lab(site, &["api"])
}

fn chaos(site: &Site, lengths: Lengths) -> Result<Verdict> {
    // The seed is fixed, so that a failure of one run is worth another with the same faults.
    lab(site, &["chaos", "--minutes", &lengths.chaos.to_string(), "--seed", "1"])
}

fn soak(site: &Site, lengths: Lengths) -> Result<Verdict> {
    lab(site, &["soak", "--minutes", &lengths.soak.to_string()])
}

fn netem(site: &Site, _: Lengths) -> Result<Verdict> {
    let systems = ["--systems", "direct,tunnel-tls,tunnel-quic,tunnel-peer-direct"];
    let floors = ["netem", "--check", "--rtt", "60,100", "--loss", "0,1,5"];
    lab(site, &[&floors[..], &systems].concat())?;
    let visits = ["--rtt", "60", "--loss", "0", "--seconds", "20"];
    lab(site, &[&["netem", "--visits", "--check"][..], &visits].concat())?;
    let both = ["--systems", "tunnel-tls,tunnel-quic", "--seconds", "6"];
    lab(site, &[&["netem", "--paths", "--check"][..], &both].concat())
}

fn kcp_speed(site: &Site, _: Lengths) -> Result<Verdict> {
    const SPEED: [&str; 7] =
        ["run", "--quiet", "--release", "--package", "kcp-go-crypto", "--example", "speed"];
    for words in [&["memory"][..], &["memory", "--fec"], &["udp"], &["acks"], &["sessions"]] {
        run(kcp_go::command(site, &SPEED).arg("--").args(words).arg("--check"))?;
    }
    // As a test the micro-benchmark runs once.
    let benchmark = ["test", "--release", "--package", "kcp-go", "--bench", "fec"];
    run(&mut kcp_go::command(site, &benchmark))?;
    Ok(Verdict::PASSED)
}

/// Three rounds end within half an hour; the figures of an issue want the default of seven.
fn bench(site: &Site, _: Lengths) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["nginx", "wrk", "h2load", "iperf3"]) {
        return Ok(Verdict::Skipped(reason));
    }
    // As tests the micro-benchmarks run once each.
    let args = ["test", "--profile", "e2e", "--package", "benches", "--benches"];
    run_tests(&mut cargo(&site.root, &args))?;
    lab(site, &["bench", "--rounds", "3", "--check", "--complete"])
}

/// Builds with the stable compiler: without a sanitizer, which safe code needs least, cargo-fuzz
/// asks for nothing that is unstable.
const FUZZ: [&str; 2] = ["--sanitizer", "none"];

/// A target stops here instead of taking the machine.
const FUZZ_MEMORY_MIB: u32 = 2048;

fn fuzz(site: &Site, lengths: Lengths) -> Result<Verdict> {
    let Some(cargo_fuzz) = tool(site, "cargo-fuzz")? else {
        return Ok(Verdict::Skipped("cargo-fuzz cannot be installed".to_owned()));
    };
    let mut targets = 0;
    for folder in fuzz_folders(&site.root)? {
        for file in files(&folder.join("fuzz/fuzz_targets"))? {
            let name = file.file_stem().context("a target has a name")?.to_owned();
            // New inputs go into the build folder, so that a run leaves the checkout as it was.
            let found = site.target.join("fuzz-corpus").join(&name);
            fs::create_dir_all(&found)?;
            let seconds = format!("-max_total_time={:.0}", lengths.fuzz * 60.0);
            let memory = format!("-rss_limit_mb={FUZZ_MEMORY_MIB}");
            let mut command = Command::new(&cargo_fuzz);
            command.current_dir(&folder).args(["fuzz", "run"]).args(FUZZ);
            command.arg("--target-dir").arg(site.target.join("fuzz")).arg(&name).arg(&found);
            command.arg(folder.join("fuzz/corpus").join(&name)).args(["--", &seconds, &memory]);
            run(&mut command)?;
            targets += 1;
        }
    }
    ensure!(targets > 0, "no fuzz target was found");
    println!("{targets} targets, {} minutes each", lengths.fuzz);
    Ok(Verdict::PASSED)
}

fn fuzz_folders(root: &Path) -> Result<Vec<PathBuf>> {
    let crates = [files(&root.join("crates"))?, files(&root.join(KCP_GO))?].concat();
    Ok(crates.into_iter().filter(|folder| folder.join("fuzz/Cargo.toml").exists()).collect())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}
