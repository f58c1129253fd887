//! `netem run`: a command of the caller's at the left end of a path, servers at the right one.

use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::ends::{End, Ends};
use super::path::Path;
use super::report;
use super::wire::Wire;

/// How long a command at the right may take until it listens. One that never does is no error.
const LISTEN: Duration = Duration::from_secs(2);

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
        let server = command.args(["-c", line]).stdin(Stdio::null()).spawn();
        let mut server = server.with_context(|| format!("starting {line}"))?;
        wait_listening(&ends.right, before, &mut server)?;
        servers.push(server);
    }
    let mut command = with_addresses(ends.left.command(&shell.command[0]), &ends);
    let status = command.args(&shell.command[1..]).status();
    let status = status.with_context(|| format!("starting {}", shell.command[0]))?;
    for server in &mut servers {
        // One that has ended already is fine.
        drop(server.kill());
        server.wait()?;
    }
    eprintln!("{}", report::of_wire(&wire.finish()?, ends.troubles()?.0));
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
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
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
