//! Test cases side by side, a process for each: the time of every case is known, a case that hangs
//! is ended, and no case inherits what another left in its process or in the folders where a daemon
//! keeps its files by default.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use xtask::child::{Tally, capture};

use super::timings;

/// The longest that a case may run. The slowest case of the short suite takes a tenth of it.
const DEADLINE: Duration = Duration::from_secs(600);

/// The ports that the cases share out: below the range that the kernel gives to outgoing
/// connections.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 20_000;

/// Where a daemon of root keeps its files by default. Each case has empty folders there.
const OF_ROOT: [&str; 3] = ["/etc/tunnel", "/run/tunnel", "/var/lib/tunnel"];

/// The variables that lead to files of the user who runs the tests.
const OF_USER: [&str; 8] = [
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "STATE_DIRECTORY",
    "RUNTIME_DIRECTORY",
    "CONFIGURATION_DIRECTORY",
];

/// A test program and what its cases need.
#[derive(Debug)]
pub(super) struct Cases<'a> {
    pub(super) program: &'a Path,
    /// Where cargo would run the program.
    pub(super) folder: &'a Path,
    /// Variables of the environment, for all cases.
    pub(super) environment: &'a [(&'a str, &'a Path)],
    /// Variables with another value for the cases whose name the rule accepts.
    pub(super) exceptions: &'a [Exception<'a>],
    /// Where the times of the last run are kept.
    pub(super) times: PathBuf,
    /// A folder for the homes of the cases.
    pub(super) homes: PathBuf,
    /// Cases at a time.
    pub(super) at_once: u16,
}

/// A variable that has another value for some cases.
#[derive(Debug)]
pub(super) struct Exception<'a> {
    /// Whether the case of this name is among them.
    pub(super) applies: fn(&str) -> bool,
    pub(super) variable: &'a str,
    pub(super) value: &'a Path,
}

#[derive(Debug)]
struct Outcome {
    name: String,
    took: Duration,
    good: bool,
    text: String,
}

impl Cases<'_> {
    /// Runs every case whose name `wanted` accepts. All run, whatever becomes of one.
    pub(super) fn run(&self, wanted: impl Fn(&str) -> bool) -> Result<Tally> {
        let mut times = timings::read(&self.times);
        let mut names: Vec<_> = self.names()?.into_iter().filter(|name| wanted(name)).collect();
        ensure!(!names.is_empty(), "no test case was selected");
        // The slow cases first, so that none of them runs alone at the end. A new case may be slow.
        names.sort_by_key(|name| std::cmp::Reverse(times.get(name).copied().unwrap_or(u64::MAX)));
        let outcomes = self.run_all(&names);
        for outcome in &outcomes {
            times.insert(outcome.name.clone(), outcome.took.as_millis() as u64);
        }
        timings::keep(&self.times, &times);
        conclude(outcomes)
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut list = self.command(Command::new(self.program));
        let (good, text) = capture(list.args(["--list", "--format", "terse"]))?;
        ensure!(good, "{}: {text}", self.program.display());
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn command(&self, mut command: Command) -> Command {
        command.current_dir(self.folder).env("CARGO_MANIFEST_DIR", self.folder);
        command.envs(self.environment.iter().copied()).stdin(Stdio::null());
        command
    }

    fn run_all(&self, names: &[String]) -> Vec<Outcome> {
        let slots = self.at_once.clamp(1, PORTS / 256);
        let mounts = has_mounts();
        let queue = Mutex::new(names.iter());
        let ended = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for slot in 0..slots {
                let (queue, ended) = (&queue, &ended);
                scope.spawn(move || {
                    while let Some(name) = queue.lock().ok().and_then(|mut queue| queue.next()) {
                        let outcome = self.run_one(name, slot, slots, mounts);
                        let word = if outcome.good { "ok    " } else { "FAILED" };
                        println!("{word} {:7.2} s  {name}", outcome.took.as_secs_f64());
                        if !outcome.good {
                            println!("{}", outcome.text.trim());
                        }
                        timings::note(&outcome.name, outcome.took);
                        let Ok(mut ended) = ended.lock() else { return };
                        ended.push(outcome);
                    }
                });
            }
        });
        ended.into_inner().unwrap_or_default()
    }

    fn run_one(&self, name: &str, slot: u16, slots: u16, mounts: bool) -> Outcome {
        let start = Instant::now();
        // Two cases at a time take no port from each other.
        let share = PORTS / slots;
        let ports = format!("{}+{share}", FIRST_PORT + slot * share);
        let run = || {
            let home = self.homes.join(slot.to_string());
            if home.exists() {
                fs::remove_dir_all(&home)?;
            }
            fs::create_dir_all(&home)?;
            let inner = if mounts { apart(self.program) } else { Command::new(self.program) };
            let mut command = self.command(inner);
            command.args(["--exact", name, "--test-threads", "1"]).env("TUNNEL_TEST_PORTS", ports);
            command.env("HOME", &home);
            for exception in self.exceptions.iter().filter(|e| (e.applies)(name)) {
                command.env(exception.variable, exception.value);
            }
            for variable in OF_USER {
                command.env_remove(variable);
            }
            within(&mut command, DEADLINE)
        };
        let (good, text) = run().unwrap_or_else(|error| (false, format!("{error:#}")));
        Outcome { name: name.to_owned(), took: start.elapsed(), good, text }
    }
}

/// Whether this user may mount folders in a namespace. Root may; another user has a daemon's files
/// below `HOME`.
fn has_mounts() -> bool {
    let mut trial = Command::new("unshare");
    trial.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    matches!(capture(&mut trial), Ok((true, _)))
}

/// The program in a namespace where the folders of a daemon of root are empty.
fn apart(program: &Path) -> Command {
    let mut script = String::from("set -e; ");
    for folder in OF_ROOT {
        script.push_str(&format!(
            "mkdir -p -m 755 {folder}; mount -t tmpfs -o mode=755 tmpfs {folder}; "
        ));
    }
    script.push_str("exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(program);
    command
}

/// The counts of a run, or the error that names the cases that failed.
fn conclude(outcomes: Vec<Outcome>) -> Result<Tally> {
    let failed: Vec<_> = outcomes.iter().filter(|o| !o.good).map(|o| o.name.as_str()).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(outcomes.iter().map(|outcome| Tally::of_text(&outcome.text)).sum())
}

/// Runs a command to its end and returns both outputs. At the deadline the command and its
/// children are killed.
fn within(command: &mut Command, deadline: Duration) -> Result<(bool, String)> {
    let mut child = command
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let outputs = [
        child.stdout.take().map(|mut pipe| thread::spawn(move || read_all(&mut pipe))),
        child.stderr.take().map(|mut pipe| thread::spawn(move || read_all(&mut pipe))),
    ];
    let good = ends_well(&mut child, deadline)?;
    let mut text = String::new();
    for output in outputs.into_iter().flatten() {
        text.push_str(&output.join().unwrap_or_default());
    }
    if good.is_none() {
        text.push_str(&format!("\nended after {} s without a result", deadline.as_secs()));
    }
    Ok((good == Some(true), text))
}

fn read_all(pipe: &mut impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    // What was read until an error is what there is to show.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `None`: the deadline passed, and the process group of the child was killed.
fn ends_well(child: &mut Child, deadline: Duration) -> Result<Option<bool>> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > deadline {
            // The child still runs, so the number is still its own.
            let script = format!("kill -KILL -{}", child.id());
            let (killed, said) = capture(Command::new("sh").args(["-c", &script]))?;
            ensure!(killed, "{script}: {}", said.trim());
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that answers like one of libtest: it lists two cases, and its file says how each
    /// ends.
    fn sample(good: &str, other: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in\n*--list*) echo 'a::good: test'; echo 'b::other: test';;\n\
             *a::good*) {good};;\n*) {other};;\nesac\n"
        );
        fs::write(&program, text).unwrap();
        capture(Command::new("chmod").arg("+x").arg(&program)).unwrap();
        (folder, program)
    }

    fn run(program: &Path, folder: &Path, prefix: &str) -> Result<Tally> {
        let (times, homes) = (folder.join("times.json"), folder.join("homes"));
        let exception = |variable, value| Exception {
            applies: |name| name.starts_with("b::"),
            variable,
            value: Path::new(value),
        };
        let cases = Cases {
            program,
            folder,
            environment: &[("BINARY", Path::new("/first"))],
            exceptions: &[exception("BINARY", "/second")],
            times,
            homes,
            at_once: 2,
        };
        cases.run(|name| name.starts_with(prefix))
    }

    const OK: &str = "echo \"ports $TUNNEL_TEST_PORTS\"; \
                      echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";

    #[test]
    fn every_case_runs_and_failures_are_named() {
        let (folder, program) = sample(OK, "exit 1");
        let error = run(&program, folder.path(), "").unwrap_err().to_string();
        assert_eq!(error, "failed: b::other");
        let tally = run(&program, folder.path(), "a::").unwrap();
        assert_eq!(tally, Tally { passed: 1, ignored: 0 });
        assert!(run(&program, folder.path(), "c::").is_err(), "nothing was selected");
        let times = timings::read(&folder.path().join("times.json"));
        assert!(times.contains_key("a::good") && times.contains_key("b::other"));
    }

    #[test]
    fn a_case_with_an_exception_gets_the_other_value() {
        let with = |value: &str| format!("[ \"$BINARY\" = {value} ] || exit 1; {OK}");
        let (folder, program) = sample(&with("/first"), &with("/second"));
        assert_eq!(run(&program, folder.path(), "").unwrap().passed, 2);
    }

    #[test]
    fn no_case_finds_a_file_of_another_case_or_of_this_machine() {
        let look = "for d in \"$HOME\" /etc/tunnel /run/tunnel /var/lib/tunnel; do \
                    [ -d $d ] || continue; [ -z \"$(ls -A $d)\" ] || exit 1; touch $d/left; done; \
                    [ -z \"$XDG_STATE_HOME\" ] && echo 'test result: ok. 1 passed; 0 failed'";
        // A user who is not root writes to no folder of root.
        if !has_mounts() {
            return;
        }
        let (folder, program) = sample(look, look);
        for _ in 0..2 {
            let tally = run(&program, folder.path(), "").unwrap();
            assert_eq!(tally.passed, 2);
        }
    }

    #[test]
    fn a_case_that_hangs_is_ended_with_its_children() {
        let start = Instant::now();
        let (good, text) =
            within(Command::new("sh").args(["-c", "sleep 600 & wait"]), Duration::from_millis(300))
                .unwrap();
        assert!(!good && text.contains("without a result"), "{text}");
        // The child of the shell holds the pipe open until its own end.
        assert!(start.elapsed() < Duration::from_secs(300), "the child of the shell still ran");
    }
}
