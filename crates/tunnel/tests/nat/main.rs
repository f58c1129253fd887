//! The binary behind NATs of the kernel: server, publisher and visitor are daemons in network
//! namespaces of their own. Which pairs of networks get a direct path, that the others stay relayed
//! and say why, and that streams go on while paths come and go; and the marks of packets (`dscp`).
//! `cargo xtask test nat` runs it as root; the cases of the module `long` are those of
//! `cargo xtask test nat-long`.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "the lines are what a run in a cage tells, and people")]

mod dscp;
mod load;
mod pairs;
mod stage;
mod stories;

use testkit::cage::caged;

/// Names the case to the run in the cage.
const CASE: &str = "NAT_DAEMONS_CASE";

/// Runs a case in a cage of its own. Returns its outcome.
fn in_a_cage(name: &str) -> (String, String) {
    let (outcome, log) = caged(CASE, name);
    println!("{name}: {outcome}");
    (outcome, log)
}

/// What a run in a cage does. Outside it has nothing to do: each other test runs it in a cage.
#[test]
fn part() {
    if let Ok(name) = std::env::var(CASE) {
        let outcome = stories::run(&name).unwrap_or_else(|| pairs::run(&name));
        println!("outcome {outcome}");
    }
}
