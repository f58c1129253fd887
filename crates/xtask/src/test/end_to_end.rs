//! The end-to-end cases with a binary: what they need of this machine, and which cases a step runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::cases::{Cases, Exception};
use super::programs::{self, Program, cores, named};
use xtask::site::Site;
use xtask::verdict::Verdict;
use xtask::{packages, python};

/// The test program of the end-to-end cases: it starts processes, so its cases run in a step of
/// their own.
pub(super) const E2E: &str = "tunnel/e2e";

/// The variable with the binary that the end-to-end cases start.
pub(super) const BINARY: &str = "TUNNEL_TEST_BINARY";

/// The module of the end-to-end cases that fill the machine.
pub(super) const HEAVY: &str = "heavy::";

/// The module of the end-to-end cases that wait for minutes of wall-clock time.
pub(super) const SLOW: &str = "slow::";

/// The module of the end-to-end cases that run public suites.
pub(super) const CONFORMANCE: &str = "doors::conformance::";

/// The module of the end-to-end cases that run other implementations of WebRTC.
pub(super) const WEBRTC_PROGRAMS: &str = "webrtc::programs::";

pub(super) fn is_short(name: &str) -> bool {
    ![HEAVY, SLOW, CONFORMANCE, WEBRTC_PROGRAMS].iter().any(|module| name.starts_with(module))
}

/// End-to-end cases at a time: they wait more than they work. Cases that measure run alone all the
/// same.
pub(super) fn at_once() -> u16 {
    u16::try_from(cores() * 3).unwrap_or(u16::MAX)
}

/// All test programs of the workspace, with every feature. Programs that tests start are built
/// beside them.
pub(super) fn test_programs(site: &Site) -> Result<Vec<Program>> {
    programs::build(&site.root, &["--workspace", "--all-features"])
}

/// The folder of the public suites for names.
pub(super) fn suites(site: &Site) -> PathBuf {
    site.target.join("tools/conformance")
}

/// The gRPC of Google, which has its own HTTP/2.
const GRPC: &str = "grpcio==1.85.3";

/// The end-to-end cases that `wanted` accepts, with this binary.
pub(super) fn end_to_end(
    site: &Site,
    binary: &Path,
    at_once: u16,
    wanted: fn(&str) -> bool,
) -> Result<Verdict> {
    end_to_end_with(site, binary, &[], at_once, wanted)
}

pub(super) fn end_to_end_with(
    site: &Site,
    binary: &Path,
    exceptions: &[Exception<'_>],
    at_once: u16,
    wanted: fn(&str) -> bool,
) -> Result<Verdict> {
    let software = [
        "nginx",
        "wrk",
        "iperf3",
        "curl",
        "wget",
        "sshd",
        "ssh",
        "rsync",
        "faketime",
        "openssl",
        "apache2",
        "caddy",
        "tinyproxy",
        "microsocks",
        "systemd-cat",
    ];
    if let Some(reason) = packages::lacking(&software) {
        return Ok(Verdict::Skipped(reason));
    }
    let built = test_programs(site)?;
    let program = named(&built, E2E)?;
    let Some(bin) = python::with(&site.target.join("tools/grpc"), &[GRPC])? else {
        return Ok(Verdict::Skipped(format!("{GRPC} cannot be had (pip)")));
    };
    let grpc = bin.join("python");
    let stage = site.target.join("e2e-stage.lock");
    fs::write(&stage, "")?;
    let tools = suites(site);
    let cases = Cases {
        program: &program.executable,
        folder: &program.folder,
        environment: &[
            (BINARY, binary),
            ("TUNNEL_TEST_STAGE", &stage),
            ("GRPC_PYTHON", &grpc),
            ("TUNNEL_TEST_TOOLS", &tools),
        ],
        exceptions,
        times: site.target.join("e2e-times.json"),
        homes: site.target.join("e2e-homes"),
        at_once,
    };
    Ok(Verdict::Passed(cases.run(wanted)?))
}
