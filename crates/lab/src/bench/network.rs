//! The network of a run: a namespace with loopback only, where the run chooses TCP's congestion
//! control.
//!
//! A host that is set to BBR paces every socket, on loopback too, including iperf3's and nginx's.
//! `direct` and all systems then show the setting of that host, and ratios from different hosts are
//! not comparable.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Error, Result, ensure};
use rustix::net::sockopt;

use xtask::child::{capture, missing};

/// The first word of the second run of this program, inside the namespace.
pub(super) const INSIDE: &str = "inside";

/// Selects the host's own congestion control: no namespace is made.
pub(super) const HOST: &str = "host";

/// The default of the kernel and of nearly every distribution.
pub(super) const DEFAULT: &str = "cubic";

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The words before a command that start it inside the namespace.
fn words() -> Vec<&'static str> {
    let mut words = vec!["unshare", "--net"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    words
}

/// Checks that the kernel has this congestion control. A mistyped name must not cost an hour of
/// measuring with another algorithm.
pub(super) fn check(congestion: &str) -> Result<()> {
    let known = fs::read_to_string(AVAILABLE).with_context(|| format!("reading {AVAILABLE}"))?;
    ensure!(
        known.split_whitespace().any(|name| name == congestion),
        "this kernel has no congestion control {congestion}, only {}, or {HOST} for its own choice",
        known.trim()
    );
    Ok(())
}

/// Brings loopback up, and an address of this namespace by which direct paths of clients go: they
/// do not use loopback addresses. Selects the congestion control `$1` inside the namespace. Where
/// the kernel refuses to set the default of a namespace, because the algorithm is not allowed
/// there, the routes of loopback name the algorithm instead: a route's `congctl` wins over the
/// default.
const SCRIPT: &str = r#"
set -e
ip link set lo up
ip link add direct type veth peer name direct-far
ip address add 198.18.0.1/32 dev direct
ip link set direct up
ip link set direct-far up
if echo "$1" 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control; then exit 0; fi
local="dev lo table local proto kernel scope host"
ip route replace local 127.0.0.0/8 $local src 127.0.0.1 congctl "$1"
ip route replace local 127.0.0.1 $local src 127.0.0.1 congctl "$1"
ip -6 route replace local ::1 dev lo table local proto kernel metric 0 congctl "$1"
"#;

/// The command of [`SCRIPT`].
fn script(congestion: &str) -> [&str; 5] {
    ["sh", "-c", SCRIPT, "sh", congestion]
}

/// The reason why the namespace cannot be made on this machine.
pub(super) fn lacking(congestion: &str) -> Option<String> {
    if let Some(reason) = missing(&[("unshare", "util-linux"), ("ip", "iproute2")]) {
        return Some(reason);
    }
    let words = words();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(script(congestion));
    match capture(&mut command) {
        Ok((true, _)) => None,
        Ok((false, said)) => Some(said.trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Enters the namespace: this process becomes a second run of this program. Returns only on an
/// error.
pub(super) fn enter(args: impl Iterator<Item = OsString>) -> Error {
    let words = words();
    let mut command = Command::new(words[0]);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    command.args(&words[1..]).arg(program).args(["bench", INSIDE]).args(args);
    Error::new(command.exec()).context(format!("starting {command:?}"))
}

/// Limits the closed connections whose ports stay taken for a minute. There are 28,000 ports
/// towards one origin, and the next system needs the ports that the last system used.
const TIME_WAITS: (&str, &str) = ("/proc/sys/net/ipv4/tcp_max_tw_buckets", "2000");

/// Inside the namespace: brings loopback up and sets the congestion control of new sockets.
pub(super) fn configure(congestion: &str) -> Result<()> {
    let [shell, arguments @ ..] = script(congestion);
    let (good, said) = capture(Command::new(shell).args(arguments))?;
    ensure!(good, "the congestion control {congestion}: {}", said.trim());
    let (setting, value) = TIME_WAITS;
    fs::write(setting, value).with_context(|| format!("writing {value} to {setting}"))
}

/// The congestion control of a new connection over loopback: of its route, else the default.
pub(super) fn congestion() -> String {
    of_a_connection().unwrap_or_else(|_| "unknown".to_owned())
}

fn of_a_connection() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let connection = TcpStream::connect(listener.local_addr()?)?;
    Ok(sockopt::tcp_congestion(&connection)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_know_is_refused_with_a_reason() {
        let complaint = check("pigeon").unwrap_err().to_string();
        assert!(complaint.contains("no congestion control pigeon, only "), "{complaint}");
        check(&congestion()).unwrap();
        assert!(lacking("pigeon").is_some_and(|reason| !reason.is_empty()));
        assert!(!congestion().is_empty());
    }
}
