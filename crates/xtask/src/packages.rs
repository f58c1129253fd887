//! Software that the steps need and cargo does not provide: one list, with a reason for each entry.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::child::{capture, cargo, find, run};
use crate::site::Site;
use crate::verdict::Verdict;

/// One program, its Debian package, and the reason for it.
#[derive(Debug)]
struct Need {
    program: &'static str,
    package: &'static str,
    why: &'static str,
}

const fn need(program: &'static str, package: &'static str, why: &'static str) -> Need {
    Need { program, package, why }
}

const NEEDS: &[Need] = &[
    need("cc", "gcc", "builds the C part of aws-lc, links test programs"),
    need("musl-gcc", "musl-tools", "builds the C part of the static binary"),
    need("file", "file", "proves that the static binary is static-pie"),
    need("nginx", "nginx-light", "end-to-end: an origin nobody here wrote, 18,000 idle visitors"),
    need(
        "haproxy",
        "haproxy",
        "unit tests: a second opinion on where responses end; cluster-faults: an entrance",
    ),
    need("node", "nodejs", "unit tests: a second opinion on where responses end"),
    need("npm", "npm", "the web console: packages of its tests"),
    need("go", "golang-go", "unit tests: a second opinion on where responses end; peers of tests"),
    need("wrk", "wrk", "end-to-end: HTTP load"),
    need("h2load", "nghttp2-client", "end-to-end and bench: many streams of HTTP/2"),
    need("iperf3", "iperf3", "end-to-end: bulk both ways, through a service and a forward"),
    need("dig", "bind9-dnsutils", "end-to-end: a resolver asks through a UDP service"),
    need("dnsmasq", "dnsmasq-base", "end-to-end: a DNS server behind a UDP service"),
    need("curl", "curl", "end-to-end: chunked bodies, keep-alive"),
    need("wget", "wget", "end-to-end: a program that takes its proxy from the environment"),
    need("sshd", "openssh-server", "end-to-end: a server-first protocol"),
    need("ssh", "openssh-client", "end-to-end: interactive stream, carrier of rsync"),
    need("rsync", "rsync", "end-to-end: 200 MB both ways at once, hashes compared"),
    need("apache2", "apache2-bin", "end-to-end: its example in front of the server"),
    need("caddy", "caddy", "end-to-end: its example in front of the server"),
    need("tinyproxy", "tinyproxy-bin", "end-to-end: a proxy of HTTP in front of the client"),
    need("microsocks", "microsocks", "end-to-end: a proxy of SOCKS 5 in front of the client"),
    need(
        "chromium-headless-shell",
        "chromium-headless-shell",
        "end-to-end: a browser loads a page with a WebSocket by name; webrtc-interop",
    ),
    need("faketime", "faketime", "end-to-end: the daemons' wall clocks jump"),
    need("openssl", "openssl", "end-to-end: a second opinion on generated certificates"),
    need("etcd", "etcd-server", "unit tests: the engine of a cluster; etcd: three of them"),
    need("etcdctl", "etcd-client", "cluster-faults: an older copy of etcd is restored"),
    need("pebble", "pebble", "ACME: an authority that issues certificates by name"),
    need("unshare", "util-linux", "chaos: names that change, in a mount namespace"),
    need("ip", "iproute2", "direct paths: network namespaces"),
    need("nft", "nftables", "direct paths: the NAT of the kernel"),
    need("miniupnpd", "miniupnpd-nftables", "direct paths: a router that opens ports"),
    need("sysctl", "procps", "direct paths: routers in network namespaces"),
    need(
        "python3",
        "python3-venv",
        "the admin API: schemathesis and the collector of OTLP are programs of Python; the peer of \
         the interoperability tests, too; the static binary: zig comes from PyPI",
    ),
    need("systemd-analyze", "systemd", "checks the units; end-to-end: what `install` wrote"),
    need("dpkg-deb", "dpkg", "packages of a release"),
    need("busybox", "busybox-static", "packages of a release: a shell in the root of their test"),
    need("zsh", "zsh", "end-to-end: it completes names"),
    need("fish", "fish", "end-to-end: it completes names"),
    need("groff", "groff-base", "unit tests: a second opinion on the manual pages"),
    need("systemd-socket-activate", "systemd", "end-to-end: it starts a daemon with sockets"),
    need("systemd-nspawn", "systemd-container", "end-to-end, long: a systemd that boots"),
    need("tshark", "tshark", "end-to-end: the dissector of Wireshark reads what was recorded"),
    need("systemd-cat", "systemd", "end-to-end: the log in the journal of a real journald"),
];

/// Installs the missing programs if run as root on Debian; otherwise prints the command to run.
pub fn install(site: &Site) -> Result<Verdict> {
    add_rust_components(site)?;
    let missing = missing();
    if missing.is_empty() {
        return Ok(Verdict::PASSED);
    }
    for need in &missing {
        println!("missing: {} ({}): {}", need.program, need.package, need.why);
    }
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    let hindered = add(&packages)?;
    Ok(hindered.map_or_else(|| Verdict::PASSED, Verdict::Skipped))
}

/// Installs packages of Debian if run as root on Debian. `Some`: the reason why it cannot, and what
/// to do instead.
pub fn add(packages: &[&str]) -> Result<Option<String>> {
    if find("apt-get").is_none() {
        let packages = packages.join(" ");
        return Ok(Some(format!(
            "no apt-get here; install the counterparts of these Debian packages: {packages}"
        )));
    }
    if !is_root()? {
        let packages = packages.join(" ");
        return Ok(Some(format!(
            "run: sudo apt-get install --yes --no-install-recommends {packages}"
        )));
    }
    run(Command::new("apt-get").args(["update", "--quiet=2"]))?;
    let _policy = Policy::without_services(Path::new(POLICY))?;
    run(Command::new("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "--yes", "--quiet=2", "--no-install-recommends"])
        .args(packages))?;
    Ok(None)
}

/// The program that scripts of Debian's packages ask before they start a service (Debian,
/// `policy-rc.d` of `invoke-rc.d`).
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The answer 101 forbids to start a service.
const NO_SERVICE: &str =
    "#!/bin/sh\n# Made by `cargo xtask` while it installs packages. It may be removed.\nexit 101\n";

/// While it lives, no package starts a service: tests start what they need, and a service would
/// hold its port, as etcd-server does.
#[derive(Debug)]
struct Policy<'a> {
    /// The file to remove. `None`: the machine has a policy of its own.
    made: Option<&'a Path>,
}

impl<'a> Policy<'a> {
    fn without_services(path: &'a Path) -> Result<Self> {
        // A file of a run that was killed counts as made now.
        match fs::read_to_string(path) {
            Ok(text) if text != NO_SERVICE => return Ok(Self { made: None }),
            Ok(_) => {}
            Err(_) => {
                fs::write(path, NO_SERVICE)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
            }
        }
        Ok(Self { made: Some(path) })
    }
}

impl Drop for Policy<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.made {
            // What is left is removed after the next installation.
            drop(fs::remove_file(path));
        }
    }
}

/// The reason why a step cannot run, if one of these programs is missing.
pub fn lacking(programs: &[&str]) -> Option<String> {
    let packages = packages_of(programs);
    (!packages.is_empty()).then(|| format!("not installed: {}", packages.join(" ")))
}

/// Installs those of these programs that are missing. `Some`: the reason why that cannot be.
pub fn provide(programs: &[&str]) -> Result<Option<String>> {
    let packages = packages_of(programs);
    if packages.is_empty() { Ok(None) } else { add(&packages) }
}

/// The packages of those of these programs that are missing.
fn packages_of(programs: &[&str]) -> Vec<&'static str> {
    let wanted = missing().into_iter().filter(|need| programs.contains(&need.program));
    wanted.map(|need| need.package).collect()
}

/// Adds rustfmt and clippy. A minimal tool chain lacks them, although their programs exist as
/// rustup's proxies.
fn add_rust_components(site: &Site) -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let (there, _) = capture(&mut cargo(&site.root, &[subcommand, "--version"]))?;
        if !there && find("rustup").is_some() {
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    // Without rustup the steps that need the target say so.
    provide_target(BARE_TARGET).map(drop)
}

/// A target without sockets, threads and clock: what builds for it uses none. The page for browsers
/// is built for it.
pub const BARE_TARGET: &str = "wasm32-unknown-unknown";

/// Adds a target to the toolchain if it lacks the target. `Some`: the reason why it still does.
pub fn provide_target(triple: &str) -> Result<Option<String>> {
    let (_, sysroot) = capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    if Path::new(sysroot.trim()).join("lib/rustlib").join(triple).is_dir() {
        return Ok(None);
    }
    if find("rustup").is_none() {
        return Ok(Some(format!("target {triple} is missing, and rustup")));
    }
    run(Command::new("rustup").args(["target", "add", triple]))?;
    Ok(None)
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| find(need.program).is_none()).collect()
}

/// Whether this process may do everything.
pub fn is_root() -> Result<bool> {
    Ok(capture(Command::new("id").arg("-u"))?.1.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_service_starts_during_an_installation_and_the_policy_of_the_machine_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy-rc.d");
        for _ in 0..2 {
            let policy = Policy::without_services(&path).unwrap();
            let status = Command::new("sh").arg(&path).arg("etcd").arg("start").status().unwrap();
            assert_eq!(status.code(), Some(101));
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755);
            drop(policy);
            assert!(!path.exists());
        }
        // What a run that was killed has left.
        fs::write(&path, NO_SERVICE).unwrap();
        drop(Policy::without_services(&path).unwrap());
        assert!(!path.exists());
        fs::write(&path, "of the machine").unwrap();
        drop(Policy::without_services(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "of the machine");
    }
}
