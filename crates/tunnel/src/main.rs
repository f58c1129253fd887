//! `tunnel`: reads the command line, runs the command, says how it went.

#![allow(dead_code, reason = "server.rs and client.rs are to use what waits here")]

mod cli;
mod control;
mod daemon;
mod demo;
mod descriptors;
mod first_start;
mod generate;
mod instances;
mod life;
mod logging;
mod notify;
mod repeat;
mod signals;
mod state;
mod status;
mod term;
mod workers;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Generate};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Generate(Generate::Token { no_newline: true }) => {
            generate::token().map(term::out_bare)
        }
        Command::Generate(Generate::Token { no_newline: false }) => {
            generate::token().map(term::out)
        }
        Command::Status { which, json } => instances::status(&which, json),
        Command::Stop { which } => instances::stop(&which),
        _ => Ok(()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            term::err(format_args!("tunnel: {e:#}"));
            ExitCode::FAILURE
        }
    }
}
