//! `netem run`: the caller's command at the left end of a path, servers at the right end.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::ends::{End, Ends};
use super::path::Path;
use super::report;
use super::wire::Wire;

/// The time limit for a command at the right end to listen. A command that never listens is no
/// error.
const LISTEN: Duration = Duration::from_secs(2);

/// The time limit for a command to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(1);

const ASK: Duration = Duration::from_millis(10);

/// Commands at both ends.
#[derive(Debug)]
pub(super) struct Shell {
    /// Lines for `sh` at the right end, started first.
    pub(super) right: Vec<String>,
    /// A program and its arguments at the left end. When it ends, everything ends.
    pub(super) command: Vec<String>,
}

/// Runs the commands and returns the exit code of the left command.
pub(super) fn run(path: &Path, shell: &Shell) -> Result<ExitCode> {
    let ends = Ends::new(path)?;
    eprintln!("netem: {}", path.describe());
    eprintln!("netem: {}", Ends::settings(path));
    let wire = Wire::start(&ends, path.weather(), path.mtu, path.seed)?;
    let mut servers = Vec::new();
    for line in &shell.right {
        let before = ends.right.listeners().len();
        let mut command = with_addresses(ends.right.command("sh"), &ends);
        // Each line gets a process group, so that a signal reaches all processes of its shell.
        let server = command.args(["-c", line]).stdin(Stdio::null()).process_group(0).spawn();
        let mut server = server.with_context(|| format!("starting {line}"))?;
        wait_listening(&ends.right, before, &mut server)?;
        servers.push(server);
    }
    let mut command = with_addresses(ends.left.command(&shell.command[0]), &ends);
    let status = command.args(&shell.command[1..]).status();
    let status = status.with_context(|| format!("starting {}", shell.command[0]))?;
    for server in &mut servers {
        end(server)?;
    }
    eprintln!("{}", report::of_wire(&wire.finish()?, ends.troubles()?.0));
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Sends SIGTERM first, so that the server can print its last output.
fn end(server: &mut Child) -> Result<()> {
    let start = Instant::now();
    let group = Pid::from_child(server);
    let ask = |signal| kill_process_group(group, signal);
    if server.try_wait()?.is_none() {
        ask(Signal::TERM)?;
    }
    while server.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            ask(Signal::KILL)?;
        }
        sleep(ASK);
    }
    Ok(())
}

fn with_addresses(mut command: Command, ends: &Ends) -> Command {
    command
        .env("NETEM_LEFT", ends.left.address.to_string())
        .env("NETEM_RIGHT", ends.right.address.to_string())
        .env("NETEM_AT_RIGHT", ends.right.starter());
    command
}

fn wait_listening(end: &End, before: usize, server: &mut Child) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < LISTEN
        && end.listeners().len() <= before
        && server.try_wait()?.is_none()
    {
        sleep(ASK);
    }
    Ok(())
}
