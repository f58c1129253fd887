//! The short suite, in its order. Each step can run alone: what it needs built, it builds.
//!
//! Three builds serve all steps: `check` (clippy), the debug build of all test programs with the
//! daemon beside them, and the static binary that users get.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::beside;
use super::cases::Exception;
use super::end_to_end::{
    BINARY, E2E, WEBRTC_PROGRAMS, at_once, end_to_end, end_to_end_with, is_short, test_programs,
};
use super::kcp_go;
use super::programs::{self, against, named};
use super::step::{Lengths, Step};
use super::tools::{files_with_extension, lab};
use super::units;
use crate::{dist, walls};
use xtask::child::{Tally, capture, cargo, find, run, run_tests};
use xtask::packages::BARE_TARGET;
use xtask::site::{KCP_GO, Site};
use xtask::verdict::Verdict;
use xtask::{go, node, packages, python};

const fn step(
    name: &'static str,
    what: &'static str,
    run: fn(&Site, Lengths) -> Result<Verdict>,
) -> Step {
    Step { name, what, long: false, run }
}

pub(super) const STEPS: &[Step] = &[
    step("packages", "software that tests and builds need is there", |site, _| {
        packages::install(site)
    }),
    step("fmt", "every file is formatted", fmt),
    step(
        "walls",
        "dependencies point one way, files are in no circle, documents name what exists",
        check_walls,
    ),
    step("clippy", "no warning in any target", clippy),
    step("doc", "no warning in the documentation, private items included", doc),
    step("pure", "the pure crates build where there is no operating system", pure),
    step("build", "all test programs are built, with every feature", build),
    step("unit", "unit, simulation, conformance tests; fuzz corpora replayed", unit),
    step("interop", "quic:// and another implementation of QUIC understand each other", interop),
    step("nat", "clients behind NATs of the kernel find a direct path, or say why not", nat),
    step("kcp-interop", "the workspace of kcp-go: all its tests, and kcp-go itself", |site, _| {
        kcp_go::check(site)
    }),
    step("browser", "a browser visits a private service by a code", browser),
    step("console", "the web console in a browser: its looks, its flows, attacks on it", console),
    step(
        "webrtc-interop",
        "webrtc:// and aiortc, pion and Chromium understand each other",
        webrtc_interop,
    ),
    step("units", "systemd finds nothing to say about the units", |site, _| units::check(site)),
    step("e2e", "the static binary against real software", e2e),
    step(
        "api",
        "the admin API before schemathesis, metrics before promtool and as OTLP",
        admin_api,
    ),
    step(
        "static",
        "the static binary runs in an empty root, reads the examples, carries bytes",
        build_static,
    ),
    step(
        "dist",
        "packages have the same bytes twice, and are installed, upgraded, removed, purged",
        packages_of_a_release,
    ),
];

/// The steps that wait more than they compute.
pub(super) const WAITING: &[&str] =
    &["unit", "interop", "nat", "kcp-interop", "browser", "console", "webrtc-interop"];

/// The steps that need the static binary.
pub(super) const STATIC: &[&str] = &["e2e", "api", "static", "dist"];

fn fmt(site: &Site, _: Lengths) -> Result<Verdict> {
    run(&mut cargo(&site.root, &["fmt", "--all", "--check"]))?;
    kcp_go::format(site)?;
    Ok(Verdict::PASSED)
}

fn check_walls(site: &Site, _: Lengths) -> Result<Verdict> {
    walls::check(&site.root)?;
    if capture(&mut cargo(&site.root, &["deny", "--version"]))?.0 {
        // It finds `.deny.toml` by itself, also in a folder above; the place of `--config` differs
        // by its version.
        let args = ["deny", "check", "bans", "licenses", "sources"];
        for workspace in [site.root.clone(), site.root.join(KCP_GO)] {
            run(&mut cargo(&workspace, &args))?;
        }
    }
    Ok(Verdict::PASSED)
}

fn clippy(site: &Site, _: Lengths) -> Result<Verdict> {
    let deny = ["--", "--deny", "warnings"];
    let all = ["clippy", "--workspace", "--all-targets", "--all-features"];
    run(cargo(&site.root, &all).args(deny))?;
    // The daemon as most people build it.
    let daemon = ["clippy", "--package", "tunnel", "--bins"];
    run(cargo(&site.root, &daemon).args(deny))?;
    // The same without WebRTC.
    run(cargo(&site.root, &daemon).arg("--no-default-features").args(deny))?;
    Ok(Verdict::PASSED)
}

fn doc(site: &Site, _: Lengths) -> Result<Verdict> {
    let args = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    run(cargo(&site.root, &args).env("RUSTDOCFLAGS", "--deny warnings"))?;
    Ok(Verdict::PASSED)
}

fn pure(site: &Site, _: Lengths) -> Result<Verdict> {
    if let Some(reason) = packages::provide_target(BARE_TARGET)? {
        return Ok(Verdict::Skipped(reason));
    }
    let mut args = vec!["build", "--target", BARE_TARGET];
    args.extend(walls::PURE.iter().flat_map(|name| ["--package", name]));
    run(&mut cargo(&site.root, &args))?;
    let mut args = vec!["build", "--target", BARE_TARGET];
    args.extend(walls::PURE_OF_KCP_GO.iter().flat_map(|(name, _)| ["--package", name]));
    run(&mut kcp_go::command(site, &args))?;
    Ok(Verdict::PASSED)
}

/// The test programs that run a second time, in which a byte moves as a page wherever it can.
const PAGED: [&str; 2] = ["relay/descriptors", "relay/pump"];

/// The rule of that second time.
const ALWAYS_PAGES: &[(&str, &str)] = &[("TUNNEL_PAGES", "always")];

/// The test program that needs another implementation of QUIC.
const INTEROP: &str = "transport-quic/interop";

/// The test programs that make network namespaces: of the library, and of the binary.
const NAT: [&str; 2] = ["transport-quic/nat", "tunnel/nat"];

/// The module of the cases of [`NAT`] that only the long suite runs.
const LONG_NAT: &str = "long::";

/// The test program that needs other implementations of WebRTC.
const WEBRTC_INTEROP: &str = "transport-webrtc/interop";

/// The test program that waits for elections of three members of etcd.
const ENGINE: &str = "etcd/three";

/// The test program that has a cluster under faults.
const FAULTS: &str = "tunnel/faults";

/// The variable that selects scenarios of it by a part of their names.
const SCENARIO: &str = "TUNNEL_CLUSTER_SCENARIO";

fn build(site: &Site, _: Lengths) -> Result<Verdict> {
    ensure!(!test_programs(site)?.is_empty(), "no test program");
    Ok(Verdict::PASSED)
}

/// The daemon of the build of the test programs, with every feature. It serves the steps that
/// examine more than speed, so that they need no build of their own.
fn debug_daemon(site: &Site) -> PathBuf {
    site.target.join("debug/tunnel")
}

fn unit(site: &Site, _: Lengths) -> Result<Verdict> {
    let built = test_programs(site)?;
    let apart = [E2E, INTEROP, NAT[0], NAT[1], WEBRTC_INTEROP, ENGINE, FAULTS];
    let wanted = built.iter().filter(|p| !apart.contains(&&*p.name));
    let mut runs: Vec<programs::Run<'_>> = wanted.map(|program| (program, &[][..])).collect();
    // The same tests, with every byte as a page.
    for name in PAGED {
        runs.push((named(&built, name)?, ALWAYS_PAGES));
    }
    let mut tests =
        programs::run(&runs, programs::at_once(), &site.target.join("unit-times.json"))?;
    let documented = ["test", "--doc", "--workspace", "--all-features"];
    tests += run_tests(&mut cargo(&site.root, &documented))?;
    Ok(Verdict::Passed(tests))
}

/// Shares no code with quinn.
const QUIC_PEER: &str = "aioquic==1.7.2";

fn interop(site: &Site, _: Lengths) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["python3"]) {
        return Ok(Verdict::Skipped(reason));
    }
    let Some(bin) = python::with(&site.target.join("tools/quic"), &[QUIC_PEER])? else {
        return Ok(Verdict::Skipped(format!("{QUIC_PEER} cannot be had (pip)")));
    };
    against_peers(site, &[INTEROP], &[("QUIC_PEER_PYTHON", &bin.join("python"))])
}

fn nat(site: &Site, _: Lengths) -> Result<Verdict> {
    behind_nats(site, &NAT, &["--skip", LONG_NAT], |site| Ok(debug_daemon(site)))
}

/// The cases of the long suite, of the binary alone.
pub(super) fn nat_long(site: &Site, _: Lengths) -> Result<Verdict> {
    behind_nats(site, &NAT[1..], &[LONG_NAT], Site::daemon)
}

fn behind_nats(
    site: &Site,
    names: &[&str],
    wanted: &[&str],
    binary: fn(&Site) -> Result<PathBuf>,
) -> Result<Verdict> {
    if !packages::is_root()? {
        return Ok(Verdict::Skipped("only root makes network namespaces".to_owned()));
    }
    if let Some(reason) =
        packages::lacking(&["unshare", "ip", "nft", "sysctl", "miniupnpd", "sshd", "ssh"])
    {
        return Ok(Verdict::Skipped(reason));
    }
    let (built, binary) = (test_programs(site)?, binary(site)?);
    let mut sum = Tally::default();
    for name in names {
        let program = named(&built, name)?;
        let mut tests = Command::new(&program.executable);
        tests.current_dir(&program.folder).args(wanted).env(BINARY, &binary);
        let tests = run_tests(&mut tests)?;
        ensure!(tests.passed > 0, "no test of NATs in {name}");
        sum += tests;
    }
    Ok(Verdict::Passed(sum))
}

/// Shares no code with the crate webrtc.
const WEBRTC_PEER: &str = "aiortc==1.16.0";

/// The folder of the source of a peer on pion. Its `go.mod` names the version.
const PION_PEER: &str = "crates/transport-webrtc/tests/interop/peer";

/// The other implementations, by the variables that name them, or why one of them is not to be had.
type WebrtcPeers = Result<[(&'static str, PathBuf); 3], String>;

fn webrtc_peers(site: &Site) -> Result<WebrtcPeers> {
    if let Some(reason) = packages::lacking(&["python3", "chromium-headless-shell"]) {
        return Ok(Err(reason));
    }
    let Some(bin) = python::with(&site.target.join("tools/webrtc"), &[WEBRTC_PEER])? else {
        return Ok(Err(format!("{WEBRTC_PEER} cannot be had (pip)")));
    };
    let pion = site.target.join("tools/webrtc-peer");
    if let Some(reason) = go::build(&site.root.join(PION_PEER), &pion)? {
        return Ok(Err(reason));
    }
    let chromium = find("chromium-headless-shell").context("chromium-headless-shell is gone")?;
    Ok(Ok([
        ("WEBRTC_PEER_PYTHON", bin.join("python")),
        ("WEBRTC_PEER_PION", pion),
        ("WEBRTC_PEER_CHROMIUM", chromium),
    ]))
}

/// The same streams with 100 MB in each direction.
pub(super) fn webrtc_long(site: &Site, _: Lengths) -> Result<Verdict> {
    let peers = match webrtc_peers(site)? {
        Ok(peers) => peers,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let mut variables: Vec<(&str, &Path)> = vec![("WEBRTC_INTEROP_MB", Path::new("100"))];
    variables.extend(peers.iter().map(|(name, path)| (*name, path.as_path())));
    against_peers(site, &[WEBRTC_INTEROP], &variables)
}

fn webrtc_interop(site: &Site, _: Lengths) -> Result<Verdict> {
    let peers = match webrtc_peers(site)? {
        Ok(peers) => peers,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let peers: Vec<(&str, &Path)> =
        peers.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let verdict = against_peers(site, &[WEBRTC_INTEROP], &peers)?;
    let Verdict::Passed(mut sum) = verdict else { return Ok(verdict) };
    // The programs of the manual, with a private service.
    let (binary, built) = (debug_daemon(site), test_programs(site)?);
    let program = named(&built, E2E)?;
    let mut tests = Command::new(&program.executable);
    tests.arg(WEBRTC_PROGRAMS).current_dir(&program.folder);
    tests.env(BINARY, &binary).envs(peers.iter().copied());
    let tests = run_tests(&mut tests)?;
    ensure!(tests.passed > 0, "no test of {WEBRTC_PROGRAMS}");
    sum += tests;
    Ok(Verdict::Passed(sum))
}

/// Three members of etcd, of which some are killed or stopped.
pub(super) fn engine(site: &Site, _: Lengths) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["etcd"]) {
        return Ok(Verdict::Skipped(reason));
    }
    against_peers(site, &[ENGINE], &[])
}

/// A cluster of real processes under faults. One scenario at a time: each of them fills the
/// machine.
pub(super) fn cluster_faults(site: &Site, lengths: Lengths) -> Result<Verdict> {
    if !packages::is_root()? {
        return Ok(Verdict::Skipped("only root makes network namespaces".to_owned()));
    }
    if let Some(reason) =
        packages::provide(&["unshare", "ip", "nft", "etcd", "etcdctl", "haproxy"])?
    {
        return Ok(Verdict::Skipped(reason));
    }
    let (built, binary) = (test_programs(site)?, site.daemon()?);
    let program = named(&built, FAULTS)?;
    let mut tests = Command::new(&program.executable);
    tests.current_dir(&program.folder).args(["--test-threads=1", "--nocapture"]);
    tests.args(std::env::var_os(SCENARIO)).env(BINARY, &binary);
    tests.env("TUNNEL_CLUSTER_MINUTES", lengths.cluster.to_string());
    let tests = run_tests(&mut tests)?;
    ensure!(tests.passed > 0, "no scenario of a cluster under faults");
    Ok(Verdict::Passed(tests))
}

/// Runs test programs of this workspace that find other implementations by variables of the
/// environment.
fn against_peers(site: &Site, names: &[&str], peers: &[(&str, &Path)]) -> Result<Verdict> {
    Ok(Verdict::Passed(against(&test_programs(site)?, names, peers)?))
}

/// Steers a browser by its pipe for debuggers. Screenshots are in `target/browser`.
const BROWSER_VISIT: &str = "crates/tunnel/tests/browser/visit.py";

fn browser(site: &Site, _: Lengths) -> Result<Verdict> {
    let chromium = "chromium-headless-shell";
    let (programs, target) =
        (packages::provide(&["python3", chromium])?, packages::provide_target(BARE_TARGET)?);
    if let Some(reason) = programs.or(target) {
        return Ok(Verdict::Skipped(reason));
    }
    test_programs(site)?;
    let mut visit = Command::new("python3");
    // `-B`: the sources stay as they are.
    visit.arg("-B").arg(site.root.join(BROWSER_VISIT)).arg(debug_daemon(site)).arg(chromium);
    let tests = run_tests(visit.arg(site.target.join("browser")))?;
    ensure!(tests.passed > 0, "no test of a browser's visit");
    Ok(Verdict::Passed(tests))
}

/// Steers a browser by playwright. Screenshots are in `target/console`.
const CONSOLE: &str = "crates/tunnel/tests/console/main.mjs";

/// What the tests of the console need of npm. Preact and uPlot are there for their types, and as a
/// second opinion on the vendored files.
const CONSOLE_PACKAGES: &[&str] = &[
    "playwright-core@1.65.1",
    "axe-core@4.14.1",
    "typescript@7.0.2",
    "preact@11.2.0",
    "uplot@1.6.32",
];

fn console(site: &Site, _: Lengths) -> Result<Verdict> {
    in_console(site, false)
}

/// The tests of the console that measure time.
pub(super) fn console_timed(site: &Site, _: Lengths) -> Result<Verdict> {
    in_console(site, true)
}

fn in_console(site: &Site, is_timed: bool) -> Result<Verdict> {
    let chromium = "chromium-headless-shell";
    if let Some(reason) = packages::provide(&["node", chromium])? {
        return Ok(Verdict::Skipped(reason));
    }
    let tools = match node::with(&site.target.join("tools/console"), CONSOLE_PACKAGES)? {
        Ok(tools) => tools,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let chromium = find(chromium).context("chromium-headless-shell is gone")?;
    let binary = if is_timed {
        site.daemon()?
    } else {
        test_programs(site)?;
        debug_daemon(site)
    };
    let mut tests = Command::new("node");
    tests.env("CONSOLE_TIMED", if is_timed { "1" } else { "0" });
    tests.arg(site.root.join(CONSOLE)).arg(binary).arg(chromium);
    let tests = run_tests(tests.args([&tools, &site.target, &site.root]))?;
    ensure!(tests.passed > 0, "no test of the web console");
    Ok(Verdict::Passed(tests))
}

/// The end-to-end cases that the static binary cannot pass: it has no WebRTC, and loads no library
/// that changes its clock.
fn needs_glibc(name: &str) -> bool {
    name.contains("webrtc") || name.starts_with("clocks::")
}

fn e2e(site: &Site, _: Lengths) -> Result<Verdict> {
    let binary = shipped(site)?;
    let debug = debug_daemon(site);
    let exception = Exception { applies: needs_glibc, variable: BINARY, value: &debug };
    end_to_end_with(site, &binary, &[exception], at_once(), is_short)
}

/// The static binary, or the optimised binary of glibc where this machine cannot build it. The step
/// `static` counts as skipped there.
fn shipped(site: &Site) -> Result<PathBuf> {
    static_binary(site)?.or_else(|reason| {
        println!("no static binary, so the optimised binary of glibc is tested: {reason}");
        site.daemon()
    })
}

/// A few examples of each operation; the long step `schemas` asks for more.
fn admin_api(site: &Site, _: Lengths) -> Result<Verdict> {
    test_programs(site)?;
    let (binary, with_otlp) = (shipped(site)?, debug_daemon(site));
    let [binary, with_otlp] = [&binary, &with_otlp].map(|file| file.display().to_string());
    lab(site, &["api", "--examples", "5", "--binary", &binary, "--otlp-binary", &with_otlp])
}

/// The programs that build the static binary.
const OF_STATIC: &[&str] = &["cc", "musl-gcc", "file", "python3"];

/// Builds the binary that users get. `Err`: why this machine cannot.
fn static_binary(site: &Site) -> Result<Result<PathBuf, String>> {
    if let Some(reason) = packages::lacking(OF_STATIC) {
        return Ok(Err(reason));
    }
    beside::finish(site)?;
    Ok(Ok(site.target.join("static/tunnel")))
}

/// Begins the build of the static binary where this machine has what it needs.
pub(super) fn build_ahead(site: &Site) -> Result<()> {
    if packages::lacking(OF_STATIC).is_some() { Ok(()) } else { beside::start(site) }
}

fn build_static(site: &Site, _: Lengths) -> Result<Verdict> {
    let binary = match static_binary(site)? {
        Ok(binary) => binary,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let mut tests = examples(site, &binary)?;
    match end_to_end(site, &binary, at_once(), |name| name.starts_with("smoke::"))? {
        Verdict::Passed(smoke) => tests += smoke,
        skipped @ (Verdict::Skipped(_) | Verdict::OutOfReach(_)) => return Ok(skipped),
    }
    Ok(Verdict::Passed(tests))
}

fn packages_of_a_release(site: &Site, _: Lengths) -> Result<Verdict> {
    match static_binary(site)? {
        Ok(_) => dist::step(site),
        Err(reason) => Ok(Verdict::Skipped(reason)),
    }
}

/// The binary accepts every file in `examples/`.
fn examples(site: &Site, tunnel: &Path) -> Result<Tally> {
    let mut files = files_with_extension(&site.root.join("examples"), "yaml")?;
    ensure!(!files.is_empty(), "examples/ holds no *.yaml");
    files.extend(
        ["node", "client"].map(|name| site.root.join(format!("examples/cluster/{name}.yaml"))),
    );
    // What the examples leave to whoever copies them lies beside the copies, made as they say.
    let copies = site.target.join("examples");
    if copies.exists() {
        fs::remove_dir_all(&copies)?;
    }
    fs::create_dir_all(&copies)?;
    let generate = || capture(Command::new(tunnel).args(["generate", "token"]));
    for name in ["token", "admin.token", "read.token"] {
        fs::write(copies.join(name), generate()?.1)?;
    }
    let token = fs::read_to_string(copies.join("token"))?;
    let certs = ["generate", "certs", "-s", "example.com", "--client", "home", "-o"];
    capture(Command::new(tunnel).args(certs).arg(&copies))?;
    // The certificates of a node, whose name is in the environment.
    let mut node = Command::new(tunnel);
    node.args(["generate", "certs", "-s", "example.com", "--node", "fra1", "-o"]);
    capture(node.arg(copies.join("certs")))?;
    // A program that an example names is looked for beside it.
    let hook = "acme/dns-hook.sh";
    fs::create_dir_all(copies.join("acme"))?;
    fs::copy(site.root.join("examples").join(hook), copies.join(hook))?;
    for file in &files {
        let copy = copies.join(file.file_name().context("an example without a name")?);
        fs::copy(file, &copy)?;
        let mut check = Command::new(tunnel);
        check.args(["check", "--config"]).arg(copy);
        check.env("TUNNEL_TOKEN", token.trim()).env("CREDENTIALS_DIRECTORY", &copies);
        check.envs([("NODE", "fra1"), ("ZONE", "fra"), ("ADDRESS", "10.0.0.1")]);
        check.env("TUNNEL_CLUSTER_SECRET", token.trim());
        for password in ["APP_PASSWORD", "ANN_PASSWORD"] {
            check.env(password, "a password of visitors");
        }
        run(&mut check)?;
    }
    Ok(Tally { passed: files.len() as u64, ignored: 0 })
}
