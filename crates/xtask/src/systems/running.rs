//! Daemons that carry visitors, alive until dropped.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use testkit::stage::Daemon;

/// How many last lines of a log an error shows.
const LAST_LINES: usize = 8;

/// A started system.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where visitors of an origin connect.
    addresses: Vec<(&'static str, SocketAddr)>,
    pids: Vec<u32>,
    daemons: Daemons,
}

impl Running {
    pub(super) fn new(addresses: Vec<(&'static str, SocketAddr)>, daemons: Daemons) -> Self {
        let pids = daemons.0.iter().map(Daemon::id).collect();
        Self { addresses, pids, daemons }
    }

    /// Where visitors of this origin connect.
    ///
    /// # Panics
    /// When it is none of those that the system was started with.
    pub(crate) fn address(&self, origin: &str) -> SocketAddr {
        let found = self.addresses.iter().find(|(name, _)| *name == origin);
        found.unwrap_or_else(|| panic!("no origin was called {origin}")).1
    }

    /// All daemons, those of the visitors' side first. None for `direct`.
    pub(crate) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// No daemon has ended by itself.
    ///
    /// # Errors
    /// Which one has, and the last lines of the logs.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.daemons.check().with_context(|| self.daemons.last_words())
    }
}

/// In the order of their start. Each is killed by its number when dropped.
#[derive(Debug, Default)]
pub(super) struct Daemons(Vec<Daemon>);

impl Daemons {
    /// Starts one in `dir`; its log is `NAME.log`.
    pub(super) fn spawn(&mut self, name: &str, dir: &Path, command: &mut Command) -> Result<()> {
        let daemon = Daemon::try_start(name, dir, command.current_dir(dir));
        self.0.push(daemon.with_context(|| format!("starting {command:?}"))?);
        Ok(())
    }

    /// None has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.0.iter_mut().find_map(|d| (!d.is_running()).then_some(d.name())) {
            Some(name) => bail!("{name} has ended by itself"),
            None => Ok(()),
        }
    }

    /// The last lines of every log.
    pub(super) fn last_words(&self) -> String {
        let mut text = String::new();
        for daemon in &self.0 {
            let log = daemon.log();
            let lines: Vec<_> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                // Writing into a string cannot fail.
                let _ = writeln!(text, "  {}: {line}", daemon.name());
            }
        }
        if text.is_empty() { "the logs are empty".to_owned() } else { format!("the logs:\n{text}") }
    }
}
