//! `netem run`: a command of the caller's at the left end of a path, servers at the right one.

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

/// How long a command at the right may take until it listens. One that never does is no error.
const LISTEN: Duration = Duration::from_secs(2);

/// How long one may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(1);

const ASK: Duration = Duration::from_millis(10);

/// Commands at both ends.
#[derive(Debug)]
pub(super) struct Shell {
    /// Lines for `sh`, started first.
    pub(super) right: Vec<String>,
    /// A program and its arguments. When it ends, everything does.
    pub(super) command: Vec<String>,
}

/// Returns the exit code of the left command.
pub(super) fn run(path: &Path, shell: &Shell) -> Result<ExitCode> {
    let ends = Ends::new(path)?;
    eprintln!("netem: {}", path.describe());
    eprintln!("netem: {}", Ends::settings(path));
    let wire = Wire::start(&ends, path.weather(), path.mtu, path.seed)?;
    let mut servers = Vec::new();
    for line in &shell.right {
        let before = ends.right.listeners().len();
        let mut command = with_addresses(ends.right.command("sh"), &ends);
        // A group of its own, so that a signal reaches what the shell started.
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

/// SIGTERM first: it may have something to say.
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
