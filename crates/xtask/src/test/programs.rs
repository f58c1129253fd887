//! Test programs side by side: cargo builds all of them, but runs one after the other, and many
//! wait for timers more than they work.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use xtask::child::{Tally, announce, cargo, run_tests};

use super::timings;

/// One that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Package and target, as a person looks for it.
    pub(super) name: String,
    pub(super) executable: PathBuf,
    /// Where cargo would run it.
    pub(super) folder: PathBuf,
}

/// Builds what `cargo test` with these arguments would run.
pub(super) fn build(root: &Path, args: &[&str]) -> Result<Vec<Program>> {
    let args = [&["test", "--no-run", "--message-format", "json-render-diagnostics"], args];
    let mut command = cargo(root, &args.concat());
    let line = announce(&command);
    let built = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        bail!("{line} ended with {}", built.status);
    }
    let mut programs = Vec::new();
    for line in built.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        programs.extend(program(line)?);
    }
    // The same order every time.
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// What one message of cargo says; most are of libraries.
fn program(message: &[u8]) -> Result<Option<Program>> {
    let message: Value = serde_json::from_slice(message).context("a message of cargo")?;
    let Some(executable) = message["executable"].as_str() else { return Ok(None) };
    // A program that tests start is built beside them.
    if message["profile"]["test"] != true {
        return Ok(None);
    }
    let manifest = message["manifest_path"].as_str().context("no manifest_path")?;
    let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
    let package = folder.file_name().context("a package without a name")?.to_string_lossy();
    let target = message["target"]["name"].as_str().context("no target.name")?;
    Ok(Some(Program {
        name: format!("{package}/{target}"),
        executable: executable.into(),
        folder: folder.to_owned(),
    }))
}

/// A test program, and the variables of its environment.
pub(super) type Run<'a> = (&'a Program, &'a [(&'a str, &'a str)]);

/// Runs the programs, `at_once` at a time. The output of a program is shown when it has ended; all
/// run, whatever becomes of one. `times` is the file with the milliseconds of the last run: the
/// slow programs start first, so that none of them runs alone at the end.
pub(super) fn run(runs: &[Run<'_>], at_once: usize, times: &Path) -> Result<Tally> {
    let mut known = timings::read(times);
    let mut runs = runs.to_vec();
    // A new program may be slow.
    let last = |name| known.get(name).copied().unwrap_or(u64::MAX);
    runs.sort_by_key(|(program, _)| std::cmp::Reverse(last(&program.name)));
    let queue = Mutex::new(runs.iter());
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    let ended = Mutex::new((&mut tally, &mut failed, &mut known));
    thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some((program, variables)) =
                    queue.lock().ok().and_then(|mut queue| queue.next())
                {
                    let start = Instant::now();
                    let (good, text) = program.run(variables);
                    let took = start.elapsed();
                    timings::note(&program.name, took);
                    let Ok(mut ended) = ended.lock() else { return };
                    let seconds = took.as_secs_f64();
                    println!("\n     Running {} ({seconds:.1} s)\n{}", program.name, text.trim());
                    *ended.0 += Tally::of_text(&text);
                    ended.2.insert(program.name.clone(), took.as_millis() as u64);
                    if !good {
                        ended.1.push(program.name.as_str());
                    }
                }
            });
        }
    });
    timings::keep(times, &known);
    if failed.is_empty() { Ok(tally) } else { bail!("failed: {}", failed.join(", ")) }
}

/// The test program of this name.
pub(super) fn named<'a>(built: &'a [Program], name: &str) -> Result<&'a Program> {
    built.iter().find(|p| p.name == name).with_context(|| format!("there is no program {name}"))
}

/// The cores of this machine.
pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(2, NonZeroUsize::get)
}

/// Test programs at a time: many wait for timers more than they work.
pub(super) fn at_once() -> usize {
    cores() + cores().div_ceil(2)
}

/// Runs test programs that find other implementations by variables of the environment.
pub(super) fn against(built: &[Program], names: &[&str], peers: &[(&str, &Path)]) -> Result<Tally> {
    let mut sum = Tally::default();
    for name in names {
        let program = named(built, name)?;
        let mut tests = Command::new(&program.executable);
        tests.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        let tests = run_tests(tests.envs(peers.iter().copied()))?;
        ensure!(tests.passed > 0, "no test of {name} against another implementation");
        sum += tests;
    }
    Ok(sum)
}

impl Program {
    fn run(&self, variables: &[(&str, &str)]) -> (bool, String) {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.envs(variables.iter().copied());
        match command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let [said, also] =
                    [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
                (output.status.success(), format!("{also}{said}"))
            }
            Err(error) => (false, format!("{}: {error}", self.executable.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_cargos_messages_the_test_programs_are_taken() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/relay/Cargo.toml",
                "target":{{"name":"pump"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let of = |message: String| program(message.as_bytes()).unwrap();
        let pump = Program {
            name: "relay/pump".into(),
            executable: "/t/pump-1".into(),
            folder: "/a/relay".into(),
        };
        assert_eq!(of(message(true, "\"/t/pump-1\"")), Some(pump));
        assert_eq!(of(message(false, "\"/t/pump\"")), None, "not a test");
        assert_eq!(of(message(true, "null")), None, "a library");
        assert_eq!(of(r#"{"reason":"build-finished","success":true}"#.into()), None);
        program(b"error: no").unwrap_err();
    }

    #[test]
    fn all_run_and_those_that_failed_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let executable = folder.path().join(name);
            std::fs::write(&executable, format!("#!/bin/sh\n{text}\n")).unwrap();
            run_ok("chmod", &["+x"], &executable);
            Program { name: name.into(), executable, folder: folder.path().into() }
        };
        let good = || script("good", "pwd; echo 'test result: ok. 2 passed; 0 failed; 1 ignored'");
        let (first, bad) = (good(), script("bad", "exit 1"));
        let times = folder.path().join("times.json");
        let run_all = |programs: &[&Program]| {
            let runs: Vec<Run<'_>> = programs.iter().map(|program| (*program, &[][..])).collect();
            run(&runs, 2, &times)
        };
        assert_eq!(run_all(&[&first, &bad, &first]).unwrap_err().to_string(), "failed: bad");
        let tally = run_all(&[&first, &first, &first]).unwrap();
        assert_eq!(tally, Tally { passed: 6, ignored: 3 });
        let missing =
            Program { name: "gone".into(), executable: "/no/such".into(), folder: "/".into() };
        assert_eq!(run_all(&[&missing]).unwrap_err().to_string(), "failed: gone");
    }

    #[test]
    fn the_program_that_was_slow_in_the_last_run_starts_first_with_its_variables() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let script = |name: &str| {
            let executable = folder.path().join(name);
            let text = format!("#!/bin/sh\necho {name}$PAGES >>{}\n", list.display());
            std::fs::write(&executable, text).unwrap();
            run_ok("chmod", &["+x"], &executable);
            Program { name: name.into(), executable, folder: folder.path().into() }
        };
        let (quick, slow) = (script("quick"), script("slow"));
        let times = folder.path().join("times.json");
        std::fs::write(&times, r#"{"quick": 10, "slow": 60000}"#).unwrap();
        let runs: [Run<'_>; 2] = [(&quick, &[]), (&slow, &[("PAGES", "=always")])];
        run(&runs, 1, &times).unwrap();
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "slow=always\nquick\n");
        assert!(timings::read(&times)["slow"] < 60_000, "the times are of the last run");
    }

    fn run_ok(program: &str, args: &[&str], file: &Path) {
        assert!(Command::new(program).args(args).arg(file).status().unwrap().success());
    }
}
