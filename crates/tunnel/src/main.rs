//! `tunnel`: reads the command line, runs the command, and reports errors.
//!
//! The command line, and commands without a daemon:
//!
//! | module | content |
//! |---|---|
//! | `cli`, `commands` | the command line; each command from its arguments to its end |
//! | `complete` | names that a shell completes |
//! | `check` | `tunnel check` |
//! | `generate`, `quoted` | `tunnel generate`: certificates, tokens, files; texts as YAML |
//! | `importing` | `tunnel import` |
//! | `install` | `tunnel install` and `tunnel uninstall` |
//! | `demo` | `tunnel demo` |
//!
//! Configuration:
//!
//! | module | content |
//! |---|---|
//! | `load` | a checked configuration from files and flags |
//! | `input`, `found` | a configuration file, and that of the working directory |
//! | `material`, `examine` | tokens, certificates and keys that a configuration names |
//! | `own`, `networks` | targets that would lead to the daemon itself, or nowhere |
//! | `config_file` | the file as the admin API shows and changes it |
//! | `kept_lists`, `kept_file` | services of commands, kept over a restart; a file of the state |
//! | `service_options` | the options of services on the command line |
//! | `first_start`, `set_up` | a start without a file: a token and instructions; the set-up page |
//! | `enroll` | `tunnel enroll`: a new client by a code, and the renewal of its token |
//!
//! A running daemon:
//!
//! | module | content |
//! |---|---|
//! | `daemon` | the frame around a role: signals, control socket, systemd, drain, end |
//! | `supervise` | `tunnel run`: a daemon for each file of a folder |
//! | `parent`, `upgrade` | the process that stays, and the change to another process |
//! | `activation`, `inherit` | sockets of systemd and of other programs that start the daemon |
//! | `notify`, `signals`, `runtime` | systemd, signals, the runtime of the process |
//! | `alone`, `cores` | one process per client and server; no core files |
//! | `watch` | changes of certificates and of the configuration |
//!
//! Commands to a running daemon:
//!
//! | module | content |
//! |---|---|
//! | `instances`, `whereabouts` | the search for the daemon, and the commands to it |
//! | `clients`, `published`, `share` | its clients; its services and forwards; `tunnel share` |
//! | `connect`, `visits` | `tunnel connect` and `tunnel visit` |
//! | `console`, `requests` | the web console, and the requests of visitors |
//! | `cluster` | `tunnel where` and `tunnel cluster` |
//! | `measure`, `nat`, `moving` | the output of `ping` and `speedtest`, of `nat`, and of `move` |
//! | `targets` | the commands about the targets of services, such as `test`, from flags to output |

mod activation;
mod alone;
mod check;
mod cli;
mod clients;
mod cluster;
mod commands;
mod complete;
mod config_file;
mod connect;
mod console;
mod cores;
mod daemon;
mod demo;
#[cfg(test)]
mod documents;
mod enroll;
mod examine;
mod first_start;
mod found;
mod generate;
mod importing;
mod inherit;
mod input;
mod install;
mod instances;
mod kept_file;
mod kept_lists;
mod load;
mod material;
mod measure;
mod moving;
mod nat;
mod networks;
mod notify;
mod own;
mod parent;
mod published;
mod quoted;
mod requests;
mod runtime;
mod service_options;
mod set_up;
mod share;
mod signals;
mod supervise;
mod targets;
mod upgrade;
mod visits;
mod watch;
mod whereabouts;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use clap_complete::CompleteEnv;
use ops::WrongConfig;
use ops::term::Unwritten;

use crate::cli::Cli;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for a wrong configuration. It is clap's code for wrong usage, and means that a
/// restart does not help.
const WRONG: u8 = 2;

/// The exit code of an import whose source has lines that nothing does here.
const UNMAPPED: u8 = 3;

fn main() -> ExitCode {
    // Ends the process if a shell asks for completions.
    CompleteEnv::with_factory(Cli::command).var(generate::COMPLETE).complete();
    let cli = Cli::try_parse().unwrap_or_else(|wrong| explain(&wrong));
    let outcome = match parent::instead_of(&cli.command) {
        Ok(Some(code)) => return code,
        Ok(None) => commands::run(&cli.command),
        Err(why) => Err(why),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.downcast_ref().is_some_and(Unwritten::is_closed_pipe) => ExitCode::SUCCESS,
        Err(e) if e.is::<importing::Unmapped>() => ExitCode::from(UNMAPPED),
        Err(e) if e.is::<WrongConfig>() => {
            upgrade::tell_failure(&e.to_string());
            ops::term::err(logging::trouble(&e.to_string()));
            ExitCode::from(WRONG)
        }
        Err(e) => {
            upgrade::tell_failure(&format!("{e:#}"));
            ops::term::err(logging::trouble(&format!("tunnel: {e:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Ends with the help, or with the explanation of a wrong command line. clap breaks the lines of
/// the help alone, and so a longer line of an explanation is broken here, without its colours.
fn explain(wrong: &clap::Error) -> ! {
    let text = wrong.render().to_string();
    if wrong.use_stderr() && ops::term::is_wide(&text) {
        ops::term::err(text.trim_end());
        std::process::exit(wrong.exit_code());
    }
    match wrong.print().map_err(Unwritten::from) {
        Err(unwritten) if !wrong.use_stderr() && !unwritten.is_closed_pipe() => {
            ops::term::err(format_args!("tunnel: {unwritten}"));
            std::process::exit(1)
        }
        _ => std::process::exit(wrong.exit_code()),
    }
}
