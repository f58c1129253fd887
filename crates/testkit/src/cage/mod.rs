//! Network namespaces with NATs of the kernel, in a cage: a second run of the test program with its
//! own namespaces. However a run ends, the kernel ends everything inside the cage.
//!
//! ```text
//!  test ── setpriv, unshare ──> cage: the internet is a bridge, with the addresses of the server
//!     cage ── ip netns exec ──> programs on the hosts, each behind its NATs
//! ```
//!
//! Needs root, `ip`, `nft`, `tc` for uplinks with a rate, and `miniupnpd` for routers that open
//! ports.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod lan;
mod networks;
mod uplinks;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use lan::Lan;
pub use networks::{Network, SERVER_V4, SERVER_V6, internet, network, opened, outer_v4, rules};
pub use uplinks::{Fault, Router, far_v4, ip, routed_uplinks, uplinks};

/// The name of the test that a run in a cage executes.
const PART: &str = "part";

/// Tells the second run of a test that it is in a cage.
const INSIDE: &str = "TUNNEL_TEST_CAGE";

/// Runs the test `part` of this program in a cage, with `variable` set to `name`. Returns the line
/// that it printed as `outcome …`, and everything that it printed.
///
/// # Panics
/// The run has no outcome.
#[must_use]
pub fn caged(variable: &str, name: &str) -> (String, String) {
    run_part(PART, variable, name)
}

/// Runs the test whose body is a call of this function in a cage: `story` runs there, with the
/// cage as its machine. `story` must be a closure in the function of the test, whose name is made
/// from that of the closure. A panic of `story` is a panic of the test. Without root the test says
/// that it shows nothing, and fails in the continuous integration.
///
/// # Panics
/// `story` panics, or does not run.
#[expect(clippy::print_stdout, reason = "figures are for people")]
pub fn in_cage<F: FnOnce()>(story: F) {
    if std::env::var_os(INSIDE).is_some() {
        networks::machine();
        story();
        // The harness may have begun a line.
        println!("\noutcome held");
        return;
    }
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        assert!(std::env::var_os("CI").is_none(), "namespaces need root");
        println!("not shown here: namespaces need root");
        return;
    }
    let closure = std::any::type_name::<F>();
    let (_, test) = closure.split_once("::").unwrap();
    let test = test.strip_suffix("::{{closure}}").unwrap();
    let (_, log) = run_part(test, INSIDE, "1");
    println!("{log}");
}

/// Runs the test `part` in a cage.
fn run_part(part: &str, variable: &str, name: &str) -> (String, String) {
    let exe = std::env::current_exe().unwrap();
    let mut caged = Command::new("setpriv");
    caged.args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork"]);
    caged.args(["--kill-child", "--mount-proc", "--propagation", "private"]).arg(exe);
    caged.args([part, "--exact", "--nocapture"]).env(variable, name);
    let output = caged.stdin(Stdio::null()).output().expect("setpriv and unshare of util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = text.lines().find_map(|line| line.strip_prefix("outcome ")).map(str::to_owned);
    let log = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (outcome.unwrap_or_else(|| panic!("{name}: no outcome\n{log}")), log)
}

/// The command that runs a program on a host.
#[must_use]
pub fn on(host: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]);
    command
}

/// Runs `act` on a host, in a separate thread: a socket that is made there stays there.
///
/// # Panics
/// There is no such host, or `act` panics.
pub fn within<T: Send>(host: &str, act: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(format!("/run/netns/{host}")).unwrap();
    let enter = || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(enter).join().unwrap())
}
