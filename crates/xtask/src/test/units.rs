//! The step `units`: systemd reads the files of `systemd/` and finds nothing to say.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::tools::files_with_extension;
use xtask::child::{Tally, capture};
use xtask::packages;
use xtask::site::Site;
use xtask::verdict::Verdict;

/// Settings of every unit that nothing else would miss. What the daemon reads in `/proc` is checked
/// by the walls.
const UNIT_LINES: &[&str] = &[
    "Environment=FDSTORE=512",
    "ExecReload=/bin/kill -HUP $MAINPID",
    "FileDescriptorStoreMax=512",
    "LimitCORE=0",
    "ProcSubset=pid",
    "Type=notify",
    "WatchdogSec=30",
];

/// The most that `systemd-analyze security` may say: tenths, of 100. Above 20 a unit has a right
/// that it does not need.
const EXPOSURE: u32 = 20;

pub(super) fn check(site: &Site) -> Result<Verdict> {
    if let Some(reason) = packages::lacking(&["systemd-analyze"]) {
        return Ok(Verdict::Skipped(reason));
    }
    let copies = site.target.join("units");
    if copies.exists() {
        fs::remove_dir_all(&copies)?;
    }
    fs::create_dir_all(&copies)?;
    let files = files_with_extension(&site.root.join("systemd"), "service")?;
    ensure!(!files.is_empty(), "systemd/ holds no unit");
    for file in &files {
        unit(file, &copies)?;
    }
    let sockets = files_with_extension(&site.root.join("systemd"), "socket")?;
    ensure!(!sockets.is_empty(), "systemd/ holds no socket unit");
    for file in &sockets {
        // It names its service, whose copy lies beside it.
        let copy = copies.join(file.file_name().context("a file has a name")?);
        fs::copy(file, &copy)?;
        verify(file, &copy)?;
        println!("{}: nothing to say", file.display());
    }
    let files_of_the_system = of_the_system(&site.root, &copies.join("root"))?;
    sysctl(&site.root)?;
    let passed = (files.len() + sockets.len()) as u64 + files_of_the_system + 1;
    Ok(Verdict::Passed(Tally { passed, ignored: 0 }))
}

/// Checks a copy whose program exists: systemd wants to see the file, and nothing is to be
/// installed for a check.
fn unit(file: &Path, copies: &Path) -> Result<()> {
    let name = file.file_name().context("a file has a name")?;
    let unit = fs::read_to_string(file)?;
    ensure!(unit.contains("=/usr/bin/tunnel "), "{}: no ExecStart", file.display());
    for wanted in UNIT_LINES {
        ensure!(unit.lines().any(|line| line == *wanted), "{}: no {wanted}", file.display());
    }
    let copy = copies.join(name);
    fs::write(&copy, unit.replace("=/usr/bin/tunnel ", "=/bin/true "))?;
    verify(file, &copy)?;
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager"]);
    let (good, said) = capture(security.arg(format!("--threshold={EXPOSURE}")).arg(&copy))?;
    let level = said.lines().rev().find(|line| line.contains("exposure level")).unwrap_or_default();
    ensure!(good, "{}: more than {EXPOSURE} tenths: {level}", file.display());
    println!("{}: nothing to say; {}", file.display(), level.trim());
    Ok(())
}

fn verify(file: &Path, copy: &Path) -> Result<()> {
    let mut verify = Command::new("systemd-analyze");
    let (good, said) = capture(verify.args(["verify", "--man=no"]).arg(copy))?;
    if !good || !said.trim().is_empty() {
        bail!("{}: {}", file.display(), said.trim());
    }
    Ok(())
}

/// Groups and folders, as an installation makes them, below a root directory. Returns their number.
fn of_the_system(sources: &Path, root: &Path) -> Result<u64> {
    let uses = [
        ("sysusers.conf", "usr/lib/sysusers.d", "systemd-sysusers", None),
        ("tmpfiles.conf", "usr/lib/tmpfiles.d", "systemd-tmpfiles", Some("--create")),
    ];
    fs::create_dir_all(root.join("etc"))?;
    for (file, folder, program, argument) in uses {
        let folder = root.join(folder);
        fs::create_dir_all(&folder)?;
        fs::copy(sources.join("systemd").join(file), folder.join("tunnel.conf"))?;
        let mut command = Command::new(program);
        command.arg(format!("--root={}", root.display())).args(argument).arg("tunnel.conf");
        let (good, said) = capture(&mut command)?;
        ensure!(good, "{program}: {}", said.trim());
    }
    let groups = fs::read_to_string(root.join("etc/group"))?;
    let group: u32 = groups
        .lines()
        .find_map(|line| line.strip_prefix("tunnel:x:")?.trim_end_matches(':').parse().ok())
        .with_context(|| format!("no group: {groups}"))?;
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    ensure!(!users.contains("tunnel"), "a user has nothing to do: {users}");
    let folders = [("etc/tunnel", 0o755, 0), ("etc/tunnel/keys", 0o2750, group)];
    for (folder, mode, gid) in folders {
        let about = fs::metadata(root.join(folder))?;
        // Without root both belong to whoever runs the check.
        let owner = (about.uid(), about.gid());
        ensure!(!packages::is_root()? || owner == (0, gid), "{folder} belongs to {owner:?}");
        ensure!(about.mode() & 0o7777 == mode, "{folder}: mode {:04o}", about.mode() & 0o7777);
    }
    Ok(uses.len() as u64)
}

/// The limits are those that the daemon asks for and that its hint names.
fn sysctl(sources: &Path) -> Result<()> {
    let limits = fs::read_to_string(sources.join("systemd/sysctl.conf"))?;
    let set: Vec<_> = limits
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let manual = fs::read_to_string(sources.join("crates/tunnel/docs/transports.md"))?;
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        let value = set.iter().find_map(|(key, value)| (*key == name).then_some(*value));
        let value = value.with_context(|| format!("sysctl.conf does not set {name}"))?;
        // A unit test of `net` compares the hint with what is asked for.
        ensure!(
            manual.contains(&format!("{name}={value}")),
            "{name}: the manual has another value"
        );
    }
    ensure!(set.len() == 2, "sysctl.conf sets more than the buffers of UDP: {set:?}");
    Ok(())
}
