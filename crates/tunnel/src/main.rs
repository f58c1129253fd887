//! `tunnel`: reads the command line, runs the command, says how it went.
//!
//! `commands` leads from the arguments to one of: `daemon` (the frame around a running `server` or
//! `client`), `demo`, `instances` (talking to a running one), or a few lines of output.

mod cli;
mod commands;
mod config_file;
mod cores;
mod daemon;
mod demo;
mod enroll;
mod examine;
mod first_start;
mod generate;
mod input;
mod instances;
mod load;
mod material;
mod measure;
mod notify;
mod runtime;
mod signals;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use ops::WrongConfig;

use crate::cli::Cli;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The configuration is wrong; clap's own code for wrong usage. A restart will not help.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    match commands::run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.is::<WrongConfig>() => {
            ops::term::err(logging::trouble(&e.to_string()));
            ExitCode::from(WRONG)
        }
        Err(e) => {
            ops::term::err(logging::trouble(&format!("tunnel: {e:#}")));
            ExitCode::FAILURE
        }
    }
}
