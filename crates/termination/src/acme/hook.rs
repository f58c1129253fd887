//! The program that writes and removes records of dns-01. The manual describes the convention of a
//! call in `certificates.md`.
//!
//! One order is in progress at a time, so at most one program runs. It is the leader of a process
//! group of its own, which ends with it.

use std::env;
use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::plain;
use crate::settings::Dns;

/// The search path that the program gets.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment variables that the program inherits. All others are withheld: they may be
/// secrets to which the configuration refers.
const KEPT: [&str; 3] = ["HOME", "TZ", "CREDENTIALS_DIRECTORY"];

/// The largest size of the program's messages that is read, in bytes, and the largest number of
/// their lines in the log.
const SAID_MAX: u64 = 16 << 10;
const LINES_MAX: usize = 20;

/// How long the messages of an ended program are awaited: a child process may keep its standard
/// error open.
const DRAIN: Duration = Duration::from_secs(1);

/// A record of dns-01 (RFC 8555 section 8.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The published name, which may be a wildcard.
    pub(super) host: String,
    /// The name of the record, without a trailing dot.
    pub(super) name: String,
    /// The text of the record.
    pub(super) value: String,
}

impl Record {
    pub(super) fn new(host: &str, value: String) -> Self {
        let base = host.strip_prefix("*.").unwrap_or(host);
        Self { host: host.to_owned(), name: format!("_acme-challenge.{base}"), value }
    }
}

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Present,
    Cleanup,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Present => "present",
            Self::Cleanup => "cleanup",
        })
    }
}

/// Calls the program. Its standard error is written to the log.
///
/// # Errors
/// The program cannot be started, takes too long, or ends with a nonzero exit code. The text has no
/// control characters.
pub(super) async fn call(dns: &Dns, action: Action, record: &Record) -> Result<(), String> {
    let program = plain(&dns.program.display().to_string());
    let mut child = command(dns, action, record)
        .spawn()
        .map_err(|error| format!("the program {program} does not start: {error}"))?;
    let group = Group(child.id());
    let said = child.stderr.take();
    let Ok((ended, said)) = timeout(dns.timeout, ended(&mut child, said)).await else {
        drop(group);
        let seconds = dns.timeout.as_secs();
        return Err(format!("the program {program} {action} took longer than {seconds} s"));
    };
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for line in lines.iter().take(LINES_MAX) {
        tracing::info!(host = record.host, "{program} {action}: {}", plain(line));
    }
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let last = lines.last().map_or_else(String::new, |line| format!(": {}", plain(line)));
            Err(format!("the program {program} {action} ended with {status}{last}"))
        }
        Err(error) => Err(format!("the program {program} cannot be awaited: {error}")),
    }
}

/// The exit of the program, and its messages.
async fn ended(
    child: &mut Child,
    said: Option<impl AsyncRead + Unpin>,
) -> (std::io::Result<ExitStatus>, String) {
    let mut text = Vec::new();
    let status = {
        let mut read = Box::pin(async {
            let Some(said) = said else { return };
            // The rest is read as well, so that the program does not block.
            let mut said = said.take(SAID_MAX);
            let _ = said.read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut said.into_inner(), &mut tokio::io::sink()).await;
        });
        tokio::select! {
            status = child.wait() => {
                let _ = timeout(DRAIN, read).await;
                status
            }
            () = &mut read => child.wait().await,
        }
    };
    (status, String::from_utf8_lossy(&text).into_owned())
}

fn command(dns: &Dns, action: Action, record: &Record) -> Command {
    let mut command = Command::new(&dns.program);
    let kept = KEPT.iter().filter_map(|name| Some((name, env::var_os(name)?)));
    command
        .arg(action.to_string())
        .arg(format!("{}.", record.name))
        .arg(&record.value)
        .env_clear()
        .envs(kept)
        .env("PATH", PATH)
        .env("TUNNEL_ACTION", action.to_string())
        .env("TUNNEL_HOST", &record.host)
        .env("TUNNEL_RECORD", format!("{}.", record.name))
        .env("TUNNEL_VALUE", &record.value)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// Kills the process group of a program that does not end, or whose result is no longer awaited.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let pid = self.0.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            // There is no such group when the program and its children have ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use rustix::process::{Pid, test_kill_process};

    use super::*;
    use crate::settings::Wait;

    fn dns(folder: &tempfile::TempDir, script: &str, seconds: u64) -> Dns {
        let program = folder.path().join("hook");
        testkit::stage::write_program(&program, &format!("#!/bin/sh\n{script}\n"));
        let wait = Wait::Fixed(Duration::ZERO);
        Dns { program, timeout: Duration::from_secs(seconds), wait, resolvers: Vec::new() }
    }

    fn record() -> Record {
        Record::new("*.home.example.com", "digest".to_owned())
    }

    #[tokio::test]
    async fn the_program_gets_the_record_and_a_clean_environment() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let script = format!("{{ echo \"$@\"; pwd; env | sort; }} > {}", out.display());
        call(&dns(&folder, &script, 20), Action::Present, &record()).await.unwrap();
        let text = fs::read_to_string(&out).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("present _acme-challenge.home.example.com. digest"));
        assert_eq!(lines.next(), Some("/"));
        let names: Vec<_> = lines.filter_map(|line| Some(line.split_once('=')?.0)).collect();
        let ours = ["TUNNEL_ACTION", "TUNNEL_HOST", "TUNNEL_RECORD", "TUNNEL_VALUE", "PATH"];
        // A shell sets some by itself.
        let known = |name: &&str| {
            ours.contains(name)
                || KEPT.contains(name)
                || ["PWD", "OLDPWD", "SHLVL", "_"].contains(name)
        };
        assert!(names.iter().all(known), "{text}");
        assert!(text.contains("TUNNEL_HOST=*.home.example.com\n"), "{text}");
    }

    #[tokio::test]
    async fn a_failed_program_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo first >&2; printf 'zone \\033[2J locked\\n' >&2; exit 3";
        let why = call(&dns(&folder, script, 20), Action::Cleanup, &record()).await.unwrap_err();
        assert!(
            why.ends_with(r"hook cleanup ended with exit status: 3: zone \u{1b}[2J locked"),
            "{why}"
        );
        let absent = Dns { program: PathBuf::from("/nowhere/hook"), ..dns(&folder, "", 20) };
        let why = call(&absent, Action::Present, &record()).await.unwrap_err();
        assert!(why.starts_with("the program /nowhere/hook does not start: No such file"), "{why}");
        // Much output neither blocks the program nor fills memory.
        let much = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789 >&2; \
                    i=$((i+1)); done";
        call(&dns(&folder, much, 20), Action::Present, &record()).await.unwrap();
    }

    /// Whether a process runs. A zombie is dead: the first process of a container may await nobody.
    fn runs(pid: Pid) -> bool {
        let stat = std::path::Path::new("/proc").join(pid.to_string()).join("stat");
        let state = fs::read_to_string(stat).unwrap_or_default();
        let is_zombie = state.rsplit(") ").next().is_some_and(|state| state.starts_with('Z'));
        test_kill_process(pid).is_ok() && !is_zombie
    }

    #[tokio::test]
    async fn a_program_that_nobody_awaits_any_more_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", at.display());
        let pause = Duration::from_millis(5);
        let started = async {
            loop {
                let text = fs::read_to_string(&at).unwrap_or_default();
                // A line is complete with its end.
                if let Some(pid) = text.strip_suffix('\n') {
                    break Pid::from_raw(pid.parse().unwrap()).unwrap();
                }
                tokio::time::sleep(pause).await;
            }
        };
        let (dns, record) = (dns(&folder, &script, 60), record());
        let child = tokio::select! {
            ended = call(&dns, Action::Present, &record) => panic!("{ended:?}"),
            child = started => child,
        };
        let gone = async {
            while runs(child) {
                tokio::time::sleep(pause).await;
            }
        };
        timeout(Duration::from_secs(60), gone).await.expect("the child has gone on");
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_told_with_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let dns = dns(&folder, "sleep 600", 1);
        let why = call(&dns, Action::Present, &record()).await.unwrap_err();
        assert!(why.ends_with("hook present took longer than 1 s"), "{why}");
    }

    #[tokio::test]
    async fn a_process_that_stays_behind_delays_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let began = std::time::Instant::now();
        call(&dns(&folder, "sleep 600 & exit 0", 60), Action::Present, &record()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
