//! `lab`: all commands that measure a machine or put load on it. `cargo xtask COMMAND` builds and
//! starts `lab`, so that formatting and tests do not compile it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a console program")]

mod api;
mod bench;
mod chaos;
mod cluster_sim;
mod netem;
mod peers;
mod plot;
mod profile;
mod soak;
mod systems;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask bench [--rounds N] [--seconds S] [--only CASE,…] [--systems NAME,…] [--quick] [--check]
                  [--complete] [--congestion NAME]
  every case on every system that can be started here, side by side; 7 rounds of 3 s.
  Results are in target/bench/. --quick: one short round. --check: fails where a floor
  of benches/floors.toml is missed. --complete: fails where a figure is missing.
  --congestion: TCP's congestion control for all of them, set in a network namespace
  [cubic]; host: the setting of this system, no namespace.
  The static binary (./build-static.sh) is measured; a build for glibc takes part in bulk as
  glibc-tcp, glibc-tls, … TUNNEL_BINARY=FILE: measured instead of a new static binary.
  TUNNEL_FORMER=FILE: an older binary takes part as former-tcp, former-tls, former-ws,
  former-quic

cargo xtask chaos [--minutes N] [--seed S]   faults under real traffic; 2 minutes, any seed

cargo xtask cluster-sim [--clients N] [--nodes N] [--visitors N] [--seed S] [--check]
  a million clients on 100 nodes of one logical server, in virtual time, before a model of the
  engine; 1,000 visitors in a second, seed 1. Table, JSON and plots are in target/cluster-sim/.
  --check: fails where a bound is missed

cargo xtask soak [--minutes N] [--transport NAME]   churn, and whether memory, descriptors and tasks
  stay flat; 20 minutes, tls. Plots are in target/soak/

cargo xtask profile CASE [--system NAME] [--seconds S]
  where the daemons spend their time under that load: flame graph and table in target/profile/

cargo xtask peers [NAME…]     installs the systems that bench compares, into target/peers/ or
  $TUNNEL_PEERS

cargo xtask systems [NAME…]   starts each system that bench compares, and sends bytes through

cargo xtask api [--examples N] [--binary FILE] [--otlp-binary FILE]
  the admin API before schemathesis, metrics before promtool and as OTLP; 40 examples
  of each operation. The binaries are built when none are named
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let command = args.next();
    let wants_help = args.peek().is_some_and(|word| ["help", "--help", "-h"].contains(&&**word));
    if wants_help && command.as_deref() != Some("netem") {
        return help();
    }
    match command.as_deref() {
        Some("api") => api::main(args),
        Some("bench") => bench::main(args),
        Some("chaos") => chaos::main(args),
        Some("cluster-sim") => cluster_sim::main(args),
        Some("netem") => netem::main(args),
        Some("peers") => peers::main(args),
        Some("profile") => profile::main(args),
        Some("soak") => soak::main(args),
        Some("systems") => systems::main(args),
        _ => help(),
    }
}

fn help() -> ExitCode {
    println!("{HELP}\n{}", netem::HELP);
    ExitCode::SUCCESS
}
