//! perf(1) as a child that records until it is told to end.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use xtask::child::find;

/// Samples per second and thread. The number is not round, so that samples do not align with
/// timers.
const FREQUENCY: &str = "997";

/// The time until perf has attached to all threads.
const ATTACHES: Duration = Duration::from_millis(500);

/// A running recording. It is killed when dropped.
#[derive(Debug)]
pub(super) struct Recording {
    child: Child,
    /// perf records while its `cat` runs, and `cat` ends when this input is closed.
    input: Option<ChildStdin>,
}

/// The reason why this machine allows no profile, if there is one.
pub(super) fn lacking() -> Option<String> {
    find("perf").is_none().then(|| "perf is not installed (Debian: linux-perf)".to_owned())
}

impl Recording {
    /// Records the processes `pids` into `file`.
    pub(super) fn start(pids: &[u32], file: &Path) -> Result<Self> {
        let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
        let mut command = Command::new("perf");
        // Frame pointers: the binary is built with them, and other methods copy the stack. The C
        // library has none, so its `send` and `recv` appear at the bottom, without their callers.
        command.args(["record", "--quiet", "--freq", FREQUENCY, "--call-graph", "fp"]);
        command.arg("--output").arg(file).args(["--pid", &pids.join(","), "--", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting perf")?;
        let input = child.stdin.take();
        std::thread::sleep(ATTACHES);
        let mut recording = Self { child, input };
        if recording.child.try_wait()?.is_some() {
            bail!("{}", recording.complaint());
        }
        Ok(recording)
    }

    /// Ends the recording.
    pub(super) fn finish(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "{}", self.complaint());
        Ok(())
    }

    /// perf's error output.
    fn complaint(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut output) = self.child.stderr.take() {
            // The output before a read error is still useful.
            let _ = std::io::Read::read_to_string(&mut output, &mut said);
        }
        let allowed = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        let allowed = allowed.unwrap_or_default();
        format!(
            "perf does not record here (kernel.perf_event_paranoid is {}; it wants root, or 1 and \
             less): {}",
            allowed.trim(),
            said.trim()
        )
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // perf may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The recording as text.
pub(super) fn script(file: &Path) -> Result<String> {
    let mut command = Command::new("perf");
    // Without inlined functions: perf looks them up one at a time, which takes minutes.
    command.args(["script", "--no-inline", "--fields", "pid,ip,sym,dso", "--input"]).arg(file);
    let output = command.stdin(Stdio::null()).output().context("starting perf script")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "perf script: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
