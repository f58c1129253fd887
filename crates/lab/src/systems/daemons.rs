//! The daemons of a system, in the order of their start.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Error, Result, bail};
use testkit::stage::Daemon;

/// The number of last lines of a log in an error.
const LAST_LINES: usize = 8;

/// Daemons in the order of their start. Each is killed by its process id when dropped.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    all: Vec<Daemon>,
    /// Daemons without a part in the load.
    aside: Vec<Daemon>,
}

impl Daemons {
    /// The process ids of the daemons that have a part in the load.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.all.iter().map(Daemon::id).collect()
    }

    /// Starts a daemon in `dir`; its log is `NAME.log`.
    pub(super) fn spawn(&mut self, name: &str, dir: &Path, command: &mut Command) -> Result<()> {
        self.all.push(started(name, dir, command)?);
        Ok(())
    }

    /// As [`Self::spawn`], for a daemon whose processor time and memory are not measured.
    pub(super) fn spawn_aside(
        &mut self,
        name: &str,
        dir: &Path,
        command: &mut Command,
    ) -> Result<()> {
        self.aside.push(started(name, dir, command)?);
        Ok(())
    }

    /// Checks that no daemon has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        let mut all = self.aside.iter_mut().chain(&mut self.all);
        match all.find_map(|d| (!d.is_running()).then_some(d.name())) {
            Some(name) => bail!("{name} has ended by itself"),
            None => Ok(()),
        }
    }

    /// Adds the last lines of every log to the error.
    pub(super) fn with_logs(&self, error: Error) -> Error {
        let mut text = format!("{error:#}");
        for daemon in self.aside.iter().chain(&self.all) {
            let log = daemon.log();
            let lines: Vec<_> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                // Writing into a string cannot fail.
                let _ = write!(text, "\n  {}: {line}", daemon.name());
            }
        }
        Error::msg(text)
    }
}

fn started(name: &str, dir: &Path, command: &mut Command) -> Result<Daemon> {
    let daemon = Daemon::try_start(name, dir, command.current_dir(dir));
    daemon.with_context(|| format!("starting {command:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_ends_is_named_and_its_last_lines_are_shown() {
        let dir = std::env::temp_dir().join(format!("daemons-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut daemons = Daemons::default();
        daemons.spawn("idle", &dir, Command::new("sleep").arg("60")).unwrap();
        daemons.check().unwrap();
        let mut short = Command::new("sh");
        daemons.spawn("short", &dir, short.args(["-c", "seq 1 20"])).unwrap();
        let error = testkit::stage::wait("its end", testkit::stage::SOON, || daemons.check().err());
        let text = daemons.with_logs(error).to_string();
        assert!(text.starts_with("short has ended by itself\n  short: 13\n"), "{text}");
        assert!(text.ends_with("\n  short: 20"), "{text}");
        assert!(daemons.spawn("none", &dir, &mut Command::new("/no/such/program")).is_err());
        drop(daemons);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
