//! The static build beside steps that wait more than they compute: a link over the whole program
//! keeps a core busy for minutes, and tests, a browser or a NAT leave that core idle.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use xtask::child::{capture, run};
use xtask::site::Site;

/// The build that runs, at most a single build in a run.
static BUILD: Mutex<Option<Build>> = Mutex::new(None);

/// Whether the static binary was built in this run. The sources do not change in a run.
static DONE: AtomicBool = AtomicBool::new(false);

/// A command whose output goes to a file. [`Drop`] ends the command with its descendants.
#[derive(Debug)]
struct Build {
    child: Child,
    log: PathBuf,
}

impl Build {
    fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        Ok(Self { child, log })
    }

    /// Waits for the end, and shows what the command printed.
    fn finish(mut self) -> Result<()> {
        let status = self.child.wait()?;
        print!("{}", String::from_utf8_lossy(&fs::read(&self.log)?));
        ensure!(status.success(), "the build beside other steps ended with {status}");
        Ok(())
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // The group of processes is that of this run, so that Ctrl-C ends the build as well.
        for process in descendants(self.child.id()) {
            let _ = capture(Command::new("kill").args(["-TERM", &process.to_string()]));
        }
        let _ = self.child.wait();
    }
}

/// A process and all that it has started.
fn descendants(process: u32) -> Vec<u32> {
    let file = PathBuf::from(format!("/proc/{process}/task/{process}/children"));
    let children = fs::read_to_string(file).unwrap_or_default();
    let below = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(process).chain(below.flat_map(descendants)).collect()
}

/// The program that builds the static binary.
const SCRIPT: &str = "./build-static.sh";

fn script(root: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19", SCRIPT]).current_dir(root);
    command
}

/// Starts the static build, unless a static build runs or has ended well.
pub(super) fn start(site: &Site) -> Result<()> {
    let mut build = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    if build.is_none() && !DONE.load(Ordering::Relaxed) {
        println!("the static build runs beside the next steps");
        *build = Some(Build::start(&mut script(&site.root), site.target.join("static.log"))?);
    }
    Ok(())
}

/// Waits for the static build and shows its output. Without a build that was started, builds now.
pub(super) fn finish(site: &Site) -> Result<()> {
    if DONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let build = BUILD.lock().unwrap_or_else(PoisonError::into_inner).take();
    match build {
        Some(build) => build.finish()?,
        None => run(Command::new(SCRIPT).current_dir(&site.root))?,
    }
    DONE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends a build that nobody waits for any more, after a failure.
pub(super) fn end() {
    drop(BUILD.lock().unwrap_or_else(PoisonError::into_inner).take());
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_build_that_fails_is_an_error_and_its_output_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let begin = |line| {
            Build::start(Command::new("sh").args(["-c", line]), log.clone()).unwrap().finish()
        };
        begin("echo built").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "built\n");
        let error = begin("echo no >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "no\n");
    }

    #[test]
    fn a_build_that_nobody_waits_for_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let build = Build::start(&mut command, log.clone()).unwrap();
        let start = Instant::now();
        let sleep = loop {
            let text = fs::read_to_string(&log).unwrap();
            if let Some(number) = text.strip_suffix('\n') {
                break number.to_owned();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the command did not start");
        };
        drop(build);
        // A process that has ended is gone, or waits for its new parent to ask for its status.
        let status = || fs::read_to_string(format!("/proc/{sleep}/status")).unwrap_or_default();
        while !status().is_empty() && !status().contains("(zombie)") {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", status());
        }
    }
}
