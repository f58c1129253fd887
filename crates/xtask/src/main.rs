//! `cargo xtask …`: what the project automates, in Rust instead of a pile of scripts, so that it
//! runs the same on every machine. `.ci/run` calls it and does nothing else.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a console program")]

mod api;
mod bench;
mod chaos;
mod child;
mod netem;
mod options;
mod packages;
mod peers;
mod plot;
mod profile;
mod python;
mod site;
mod soak;
mod systems;
mod test;
mod walls;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [--fast] [STEP…]   everything that has to hold before a merge

  --fast    without the steps that build or need the release binary
  STEP      only these steps, in their order
  CI=true   with the steps that load the machine for minutes; what is skipped is a failure

cargo xtask chaos [--minutes N] [--seed S]   faults under real traffic; 2 minutes, any seed

cargo xtask soak [--minutes N] [--transport NAME]   churn, and whether memory, descriptors and tasks
                                 stay flat; 20 minutes, tls. Plots are in target/soak/

cargo xtask bench [--rounds N] [--seconds S] [--only CASE,…] [--systems NAME,…] [--quick] [--check]
                  [--congestion NAME]
  every case on every system that can be started here, side by side; 7 rounds of 3 s.
  Results are in target/bench/. --quick: one short round. --check: fails where a floor
  of benches/floors.toml is missed. --congestion: TCP's congestion control for all of
  them, set in a network namespace [cubic]; host: what this system has, no namespace

cargo xtask profile CASE [--system NAME] [--seconds S]
  where the daemons spend their time under that load: flame graph and table in target/profile/

cargo xtask peers [NAME…]     installs what bench compares with, into target/peers/ or $TUNNEL_PEERS

cargo xtask systems [NAME…]   starts each system that bench compares, and sends bytes through
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("test") => test::main(args),
        Some("bench") => bench::main(args),
        Some("chaos") => chaos::main(args),
        Some("profile") => profile::main(args),
        Some("soak") => soak::main(args),
        Some("peers") => peers::main(args),
        Some("systems") => systems::main(args),
        Some("netem") => netem::main(args),
        None | Some("help" | "--help" | "-h") => {
            println!("{HELP}\n{}\nSteps:\n{}", netem::HELP, test::describe_steps());
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("xtask: no such command: {other}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
