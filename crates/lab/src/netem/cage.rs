//! The environment of a run: new process, network and mount namespaces, made by `unshare` around a
//! second run of this program.
//!
//! Nothing has to be cleaned up, however this process ends. When it ends, by itself, by Ctrl-C or
//! killed, the kernel kills `unshare`. `unshare` kills the first process of the namespaces. With
//! that process, the kernel ends all others and drops the namespaces, which have no name.
//!
//! Programs of util-linux are used instead of system calls. A process that changes its own
//! namespaces has to be single-threaded and careful, and the words `nsenter …` before a command
//! work with everything that starts commands.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use xtask::child::{capture, missing};

/// The interval at which the end of the run is checked.
const ASK: Duration = Duration::from_millis(20);

/// The words before a command that start it inside.
fn words() -> Vec<&'static str> {
    let mut words = vec!["setpriv", "--pdeathsig", "KILL", "unshare"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    words.extend(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    words
}

fn inside(program: &Path) -> Command {
    let words = words();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(program);
    command
}

/// The reason why the namespaces cannot be made on this machine.
pub(super) fn lacking() -> Result<Option<String>> {
    let programs = [
        ("setpriv", "util-linux"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("ip", "iproute2"),
        ("iperf3", "iperf3"),
    ];
    if let Some(reason) = missing(&programs) {
        return Ok(Some(reason));
    }
    let (good, said) = capture(&mut inside(Path::new("true")))?;
    let reason = said.trim();
    Ok((!good).then(|| format!("this user gets no namespaces here: {reason}")))
}

/// Runs a program inside, with this process's standard streams, and returns its exit code. After
/// `limit`, it returns an error, and everything inside is gone.
pub(super) fn run(program: &Path, args: &[OsString], limit: Duration) -> Result<ExitCode> {
    let mut command = inside(program);
    command.args(args).stdin(Stdio::inherit());
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(1)));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            ensure!(false, "ended after {} s, the limit", limit.as_secs());
        }
        sleep(ASK);
    }
}
