//! Child programs of a step. Their output streams through; standard input is closed, so that no
//! program can wait for input. Counts of passed tests are summed from the output.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::iter::Sum;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// How the reason of an ignored test begins that the long step `timed` runs.
const TIMED: &str = "... ignored, measures time: the long step `timed`";

/// The counts of test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    /// The tests that no step runs: a test that measures time belongs to the long step `timed`.
    pub ignored: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.ignored += other.ignored;
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut total, one| {
            total += one;
            total
        })
    }
}

impl Tally {
    /// The counts of the output of test programs. Each program ends with the line `test result: ok.
    /// 3 passed; 0 failed; 1 ignored; …`. The tests of the step `timed` are among the ignored tests
    /// there, and their own lines take them off.
    pub fn of_text(text: &str) -> Self {
        let timed = text.lines().filter(|line| is_timed(line)).count() as u64;
        let Self { passed, ignored } = text.lines().map(of_result).sum();
        Self { passed, ignored: ignored.saturating_sub(timed) }
    }
}

fn is_timed(line: &str) -> bool {
    line.starts_with("test ") && line.contains(TIMED)
}

/// The counts of the last line of a test program.
fn of_result(line: &str) -> Tally {
    let Some(counts) = line.strip_prefix("test result: ") else { return Tally::default() };
    let count = |word: &str| {
        counts
            .split([';', '.'])
            .filter_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
            .next()
            .unwrap_or(0)
    };
    Tally { passed: count("passed"), ignored: count("ignored") }
}

/// The command `cargo` with these arguments, in the top level of the checkout.
pub fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(args);
    command
}

/// Runs a command to its end; a status other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let line = announce(command);
    let status =
        command.stdin(Stdio::null()).status().with_context(|| format!("starting {line}"))?;
    ensure!(status.success(), "{line} ended with {status}");
    Ok(())
}

/// Like [`run`], and sums the counts of the test programs.
pub fn run_tests(command: &mut Command) -> Result<Tally> {
    let line = announce(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {line}"))?;
    let output = BufReader::new(child.stdout.take().context("piped above")?);
    let tally = pass_on(output, std::io::stdout().lock())?;
    let status = child.wait()?;
    ensure!(status.success(), "{line} ended with {status}");
    Ok(tally)
}

/// Copies line by line and sums the counts.
fn pass_on(mut from: impl BufRead, mut to: impl Write) -> Result<Tally> {
    let (mut tally, mut timed, mut line) = (Tally::default(), 0, Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        tally += of_result(&text);
        timed += u64::from(is_timed(&text));
        line.clear();
    }
    tally.ignored = tally.ignored.saturating_sub(timed);
    Ok(tally)
}

/// A program's output on both channels, and whether the program succeeded.
pub fn capture(command: &mut Command) -> Result<(bool, String)> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

/// The path of a program: in `PATH`, or in the folders of daemons, which are not in every user's
/// `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir: PathBuf| dir.join(program))
        .find(|file| file.is_file())
}

/// The missing programs, by name and Debian package.
pub fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| find(program).is_none())?;
    Some(format!("{program} is missing (Debian: {package})"))
}

/// Prints the command as a user would type it, and returns it for errors.
pub fn announce(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    let line = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    println!("$ {line}");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_summaries_are_added_up_and_nothing_else() {
        let line = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; \
                    finished in 0.51s\n";
        assert_eq!(Tally::of_text(line), Tally { passed: 12, ignored: 3 });
        assert_eq!(Tally::of_text("12 passed; nothing of cargo's"), Tally::default());
        let (text, mut copy) = (line.repeat(2) + "cut", Vec::new());
        let tally = pass_on(text.as_bytes(), &mut copy).unwrap();
        assert_eq!(tally, Tally { passed: 24, ignored: 6 });
        assert_eq!(copy, text.as_bytes(), "everything passes through");
    }

    #[test]
    fn a_test_of_the_long_step_timed_is_not_ignored() {
        let text = "test quick ... ignored, measures time: the long step `timed`\n\
                    test slow ... ignored, nobody runs it\n\
                    test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n";
        let tally = pass_on(text.as_bytes(), std::io::sink()).unwrap();
        assert_eq!(tally, Tally { passed: 1, ignored: 1 });
        assert_eq!(Tally::of_text(text), tally);
    }

    #[test]
    fn a_failing_program_is_an_error_with_its_status() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
