//! The workspace with the sessions that kcp-go understands. No other step of the suite compiles it,
//! because nothing of it is in the daemon.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::programs::{self, Program, Run};
use xtask::child::{cargo, run, run_tests};
use xtask::go;
use xtask::site::{KCP_GO, Site};
use xtask::verdict::Verdict;

/// The folder of the peer's source, in the workspace. Its `go.mod` names the version of kcp-go.
const PEER: &str = "sessions/tests/peer";

/// The test programs that need the peer.
const INTEROP: [&str; 2] = ["sessions/interop", "tokio/interop"];

/// A command of cargo in the workspace. Its compiled files are below the build folder in use.
pub(super) fn command(site: &Site, args: &[&str]) -> Command {
    let mut command = cargo(&site.root.join(KCP_GO), args);
    command.arg("--target-dir").arg(target(site));
    command
}

fn target(site: &Site) -> PathBuf {
    site.target.join("kcp-go")
}

/// Everything about the workspace: format, warnings, tests, and kcp-go itself.
pub(super) fn check(site: &Site) -> Result<Verdict> {
    format(site)?;
    let all = ["--workspace", "--all-features"];
    let mut clippy = command(site, &[&["clippy", "--all-targets"], &all[..]].concat());
    run(clippy.args(["--", "--deny", "warnings"]))?;
    let doc = ["doc", "--no-deps", "--document-private-items"];
    run(command(site, &[&doc[..], &all].concat()).env("RUSTDOCFLAGS", "--deny warnings"))?;

    let folder = target(site).display().to_string();
    let built = [&all[..], &["--target-dir", &folder]].concat();
    let built = programs::build(&site.root.join(KCP_GO), &built)?;
    let is_apart = |program: &&Program| INTEROP.contains(&&*program.name);
    let runs = built.iter().filter(|program| !is_apart(program));
    let runs: Vec<Run<'_>> = runs.map(|program| (program, &[][..])).collect();
    ensure!(!runs.is_empty(), "no test program");
    let times = target(site).join("unit-times.json");
    let mut tests = programs::run(&runs, programs::at_once(), &times)?;
    tests += run_tests(&mut command(site, &[&["test", "--doc"], &all[..]].concat()))?;

    let peer = site.target.join("tools/kcp-peer");
    if let Some(reason) = go::build(&site.root.join(KCP_GO).join(PEER), &peer)? {
        return Ok(Verdict::Skipped(reason));
    }
    tests += programs::against(&built, &INTEROP, &[("KCP_PEER", &peer)])?;
    Ok(Verdict::Passed(tests))
}

/// Every file is formatted.
pub(super) fn format(site: &Site) -> Result<()> {
    run(&mut cargo(&site.root.join(KCP_GO), &["fmt", "--all", "--check"]))
}
