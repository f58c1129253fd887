//! The steps, in order. Each can run alone: what it needs built, it builds.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Step, Verdict, When, programs};
use crate::child::{Tally, capture, cargo, find, run, run_tests};
use crate::site::Site;
use crate::{api, bench, chaos, packages, python, soak, walls};

const fn step(name: &'static str, what: &'static str, run: fn(&Site) -> Result<Verdict>) -> Step {
    Step { name, what, when: When::Always, run }
}

const fn slow(name: &'static str, what: &'static str, run: fn(&Site) -> Result<Verdict>) -> Step {
    Step { when: When::Slow, ..step(name, what, run) }
}

const fn long(name: &'static str, what: &'static str, run: fn(&Site) -> Result<Verdict>) -> Step {
    Step { when: When::Long, ..step(name, what, run) }
}

pub(super) const STEPS: &[Step] = &[
    step("packages", "software that tests and builds need is there", packages::install),
    step("fmt", "every file is formatted", fmt),
    step("walls", "dependencies point one way, licences are allowed", check_walls),
    step("clippy", "no warning in any target", clippy),
    step("doc", "no warning in the documentation, private items included", doc),
    step("pure", "the pure crates build where there is no operating system", pure),
    step("unit", "unit, simulation, conformance tests; fuzz corpora replayed", unit),
    step("interop", "quic:// and another implementation of QUIC understand each other", interop),
    step("units", "systemd finds nothing to say about the units", units),
    slow("release", "the release binary builds", release),
    slow("examples", "the release binary accepts every file in examples/", examples),
    slow("e2e", "the optimized binary against real software", e2e),
    slow(
        "api",
        "the admin API before schemathesis, metrics before promtool and as OTLP",
        admin_api,
    ),
    slow("static", "the static binary builds and runs in an empty root", build_static),
    long("heavy", "thousands of visitors and clients, small memories, idle time", heavy),
    long("chaos", "2 minutes of faults under real traffic, 1 minute of churn", faults),
    long("bench", "the benches build; a short round of each, whatever its figures", short_bench),
];

const OK: Result<Verdict> = Ok(Verdict::Passed(Tally { passed: 0, ignored: 0 }));

/// A target without sockets, threads and clock: what builds for it uses none.
const BARE_TARGET: &str = "wasm32-unknown-unknown";

fn fmt(site: &Site) -> Result<Verdict> {
    run(&mut cargo(&site.root, &["fmt", "--all", "--check"]))?;
    OK
}

fn check_walls(site: &Site) -> Result<Verdict> {
    walls::check(&site.root)?;
    if capture(&mut cargo(&site.root, &["deny", "--version"]))?.0 {
        let args = ["deny", "check", "--config", ".deny.toml", "bans", "licenses", "sources"];
        run(&mut cargo(&site.root, &args))?;
    }
    OK
}

fn clippy(site: &Site) -> Result<Verdict> {
    let args = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    run(&mut cargo(&site.root, &args))?;
    let feature = ["--package", "tunnel", "--all-targets", "--features", "otlp"];
    let args = [&["clippy"][..], &feature, &["--", "--deny", "warnings"]].concat();
    run(&mut cargo(&site.root, &args))?;
    OK
}

fn doc(site: &Site) -> Result<Verdict> {
    let args = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    run(cargo(&site.root, &args).env("RUSTDOCFLAGS", "--deny warnings"))?;
    OK
}

fn pure(site: &Site) -> Result<Verdict> {
    if !has_target(BARE_TARGET)? {
        if find("rustup").is_none() {
            return Ok(Verdict::Skipped(format!("target {BARE_TARGET} is missing, and rustup")));
        }
        run(Command::new("rustup").args(["target", "add", BARE_TARGET]))?;
    }
    let mut args = vec!["build", "--target", BARE_TARGET];
    args.extend(walls::PURE.iter().flat_map(|name| ["--package", name]));
    run(&mut cargo(&site.root, &args))?;
    OK
}

fn has_target(triple: &str) -> Result<bool> {
    let (_, sysroot) = capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(triple).is_dir())
}

fn unit(site: &Site) -> Result<Verdict> {
    // Those of `tunnel` that need an optimized binary have a step of their own.
    let but_tunnel = ["--workspace", "--exclude", "tunnel"];
    let mut built = programs::build(&site.root, &but_tunnel)?;
    built.extend(programs::build(&site.root, &["--package", "tunnel", "--bins"])?);
    let mut tests = programs::run(&built, cores())?;
    tests += run_tests(&mut cargo(&site.root, &[&["test", "--doc"][..], &but_tunnel].concat()))?;
    Ok(Verdict::Passed(tests))
}

/// Shares no code with quinn.
const QUIC_PEER: &str = "aioquic==1.7.2";

fn interop(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["python3"]) {
        return Ok(Verdict::Skipped(reason));
    }
    let Some(bin) = python::with(&site.target.join("tools/quic"), &[QUIC_PEER])? else {
        return Ok(Verdict::Skipped(format!("{QUIC_PEER} cannot be had (pip)")));
    };
    let feature = ["--package", "transport-quic", "--features", "interop", "--test", "interop"];
    let lint = [&["clippy"][..], &feature, &["--", "--deny", "warnings"]].concat();
    run(&mut cargo(&site.root, &lint))?;
    let mut tests = cargo(&site.root, &[&["test"][..], &feature].concat());
    let tests = run_tests(tests.env("QUIC_PEER_PYTHON", bin.join("python")))?;
    ensure!(tests.passed > 0, "no test against another implementation");
    Ok(Verdict::Passed(tests))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get)
}

fn release(site: &Site) -> Result<Verdict> {
    site.build_release()?;
    OK
}

fn examples(site: &Site) -> Result<Verdict> {
    release(site)?;
    let files = files_with_extension(&site.root.join("examples"), "yaml")?;
    ensure!(!files.is_empty(), "examples/ holds no *.yaml");
    let tunnel = &site.tunnel;
    // What the examples leave to whoever copies them lies beside the copies, made as they say.
    let copies = site.target.join("examples");
    if copies.exists() {
        fs::remove_dir_all(&copies)?;
    }
    fs::create_dir_all(&copies)?;
    let (_, token) = capture(Command::new(tunnel).args(["generate", "token"]))?;
    let token = token.trim();
    fs::write(copies.join("token"), token)?;
    let certs = ["generate", "certs", "-s", "example.com", "--client", "home", "-o"];
    capture(Command::new(tunnel).args(certs).arg(&copies))?;
    for file in &files {
        let copy = copies.join(file.file_name().context("an example without a name")?);
        fs::copy(file, &copy)?;
        let mut check = Command::new(tunnel);
        check.args(["check", "--config"]).arg(copy);
        run(check.env("TUNNEL_TOKEN", token).env("CREDENTIALS_DIRECTORY", &copies))?;
    }
    Ok(Verdict::Passed(Tally { passed: files.len() as u64, ignored: 0 }))
}

fn e2e(site: &Site) -> Result<Verdict> {
    end_to_end(site, &["--skip", HEAVY])
}

fn admin_api(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["curl", "python3"]) {
        return Ok(Verdict::Skipped(reason));
    }
    let hindered = api::check(site)?;
    Ok(hindered.map_or_else(|| Verdict::Passed(Tally::default()), Verdict::Skipped))
}

fn heavy(site: &Site) -> Result<Verdict> {
    end_to_end(site, &[HEAVY])
}

/// End-to-end tests at a time.
const THREADS_PER_CORE: usize = 3;

/// The module of the end-to-end tests that fill the machine.
const HEAVY: &str = "heavy::";

fn end_to_end(site: &Site, selection: &[&str]) -> Result<Verdict> {
    let software = [
        "nginx",
        "wrk",
        "iperf3",
        "curl",
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
    let args = ["test", "--profile", "e2e", "--package", "tunnel", "--test", "*", "--"];
    // They wait more than they work: 130 s instead of 270 on two cores. Those that measure run alone
    // all the same.
    let threads = ["--test-threads", &(cores() * THREADS_PER_CORE).to_string()];
    let tests = run_tests(&mut cargo(&site.root, &[&args, selection, &threads].concat()))?;
    ensure!(tests.passed > 0, "no end-to-end test was selected");
    Ok(Verdict::Passed(tests))
}

/// The seed is fixed, so that a failure of one run is worth another with the same faults.
fn faults(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(chaos::SOFTWARE) {
        return Ok(Verdict::Skipped(reason));
    }
    chaos::run(site, &chaos::Options { minutes: 2.0, seed: 1 })?;
    soak::run(site, &soak::Options { minutes: 1.0, ..soak::Options::default() })?;
    OK
}

/// No figure decides here: a machine that builds is no place to measure.
fn short_bench(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["nginx", "wrk", "iperf3"]) {
        return Ok(Verdict::Skipped(reason));
    }
    // As tests the micro-benchmarks run once each.
    let args = ["test", "--profile", "e2e", "--package", "benches", "--benches"];
    let tests = run_tests(&mut cargo(&site.root, &args))?;
    bench::smoke(site)?;
    Ok(Verdict::Passed(tests))
}

fn build_static(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["cc", "musl-gcc", "file"]) {
        return Ok(Verdict::Skipped(reason));
    }
    run(Command::new("./build-static.sh").current_dir(&site.root))?;
    OK
}

/// Checks copies whose program exists: systemd wants to see the file, and nothing is to be
/// installed for a check.
fn units(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["systemd-analyze"]) {
        return Ok(Verdict::Skipped(reason));
    }
    let copies = site.target.join("units");
    fs::create_dir_all(&copies)?;
    let files = files_with_extension(&site.root.join("systemd"), "service")?;
    ensure!(!files.is_empty(), "systemd/ holds no unit");
    for file in &files {
        let name = file.file_name().context("a file has a name")?;
        let unit = fs::read_to_string(file)?;
        ensure!(unit.contains("=/usr/bin/tunnel "), "{}: no ExecStart", file.display());
        fs::write(copies.join(name), unit.replace("=/usr/bin/tunnel ", "=/bin/true "))?;
        let mut verify = Command::new("systemd-analyze");
        let (good, said) = capture(verify.args(["verify", "--man=no"]).arg(copies.join(name)))?;
        if !good || !said.trim().is_empty() {
            bail!("{}: {}", file.display(), said.trim());
        }
        println!("{}: nothing to say", file.display());
    }
    Ok(Verdict::Passed(Tally { passed: files.len() as u64, ignored: 0 }))
}

fn files_with_extension(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
