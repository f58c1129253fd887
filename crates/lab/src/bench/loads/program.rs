//! A load program as a child: its lines while it runs, a deadline, and its end when the run is to
//! end.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench::stop;

/// Lines that may wait unread; then the program waits.
const UNHEARD: usize = 256;

/// Runs a command to its end and returns its standard output. A failure is an error with the
/// command's last error line.
pub(super) fn run(command: &mut Command, deadline: Duration) -> Result<String> {
    let mut said = String::new();
    run_lines(command, deadline, |line| {
        said.push_str(line);
        said.push('\n');
        Ok(())
    })?;
    Ok(said)
}

/// As [`run`], with a listener that gets each line as it is printed.
pub(super) fn run_lines(
    command: &mut Command,
    deadline: Duration,
    mut hear: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut child = Child::start(command)?;
    let lines = child.lines()?;
    let complaints = child.complaints()?;
    let start = Instant::now();
    loop {
        match lines.recv_timeout(stop::LOOK) {
            Ok(line) => hear(&line)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        child.check(start, deadline)?;
    }
    let status = loop {
        if let Some(status) = child.inner.try_wait()? {
            break status;
        }
        child.check(start, deadline)?;
        std::thread::sleep(stop::LOOK);
    };
    // Ctrl-C reaches the child as well; output after Ctrl-C is no measurement.
    stop::check()?;
    ensure!(status.success(), "{}: {}", child.name, last_words(status, complaints));
    Ok(())
}

fn last_words(status: ExitStatus, complaints: JoinHandle<String>) -> String {
    let said = complaints.join().unwrap_or_default();
    said.lines()
        .rfind(|line| !line.trim().is_empty())
        .map_or_else(|| status.to_string(), str::to_owned)
}

/// A child that is killed when dropped.
#[derive(Debug)]
struct Child {
    name: String,
    inner: std::process::Child,
}

impl Child {
    fn start(command: &mut Command) -> Result<Self> {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let inner = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name, inner })
    }

    fn check(&self, start: Instant, deadline: Duration) -> Result<()> {
        stop::check()?;
        if start.elapsed() > deadline {
            bail!("{} has not ended after {} s", self.name, deadline.as_secs());
        }
        Ok(())
    }

    fn lines(&mut self) -> Result<Receiver<String>> {
        let output = BufReader::new(self.inner.stdout.take().context("piped above")?);
        let (say, lines) = sync_channel(UNHEARD);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(lines)
    }

    /// Reads standard error in a thread, so that the program never waits for a reader.
    fn complaints(&mut self) -> Result<JoinHandle<String>> {
        let mut output = self.inner.stderr.take().context("piped above")?;
        Ok(std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // The output before a read error is still useful.
            let _ = output.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_any_size_is_read_and_a_failure_tells_its_last_complaint() {
        let said = run(&mut shell("yes | head -n 150000; echo no >&2"), LONG).unwrap();
        assert_eq!(said.len(), 300_000);
        let error = run(&mut shell("echo first >&2; echo last >&2; echo >&2; exit 3"), LONG);
        assert_eq!(error.unwrap_err().to_string(), "sh: last");
        let error = run(&mut shell("exit 3"), LONG).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_line_is_heard_while_the_program_runs() {
        let mut heard = Vec::new();
        let start = Instant::now();
        let error = run_lines(&mut shell("echo open; exec sleep 600"), LONG, |line| {
            heard.push(line.to_owned());
            bail!("enough")
        });
        assert_eq!(error.unwrap_err().to_string(), "enough");
        assert_eq!(heard, ["open"]);
        assert!(start.elapsed() < LONG, "whoever is not heard any more is ended");
    }

    #[test]
    fn what_does_not_end_is_killed() {
        let start = Instant::now();
        let error = run(&mut shell("exec sleep 600"), Duration::from_millis(50));
        assert!(error.unwrap_err().to_string().contains("has not ended"));
        assert!(start.elapsed() < LONG);
    }
}
