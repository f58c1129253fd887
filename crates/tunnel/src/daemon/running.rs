//! The running daemon as the control socket, the admin API and signals see it: it answers queries
//! and runs commands.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use admin::ConsoleAccess;
use anyhow::Context;
use ops::log::Lines;
use ops::status::{DaemonState, Status};
use ops::upgrade::Upgrade;
use ops::{
    Clients, Console, ConsoleLink, Cursor, Daemon, Enrolment, Life, Lists, Log, Phase, Reloaded,
    Role, SendFuture, Serving, Settings, Sharer, StatusDelta, Visitors,
};
use tokio::sync::SetOnce;
use tokio::time::Instant;

use super::shares::Shares;
use crate::config_file::{ConfigFile, concealed};
use crate::console::NO_API;
use crate::input::secrets_of;
use crate::parent::Guardian;
use crate::upgrade::{Binary, Formers, Next};

/// The error of a process that the next process has replaced.
pub(super) const GONE_ON: &str = "it goes on in a new process; ask again";

/// The text of the configuration file around a change.
#[derive(Clone)]
pub(super) struct LastChange {
    pub(super) before: String,
    pub(super) after: String,
}

/// A role, with the state that only the frame has.
pub(super) struct RunningDaemon {
    pub(super) role: Arc<dyn Serving>,
    pub(super) life: Life,
    pub(super) file: Option<ConfigFile>,
    /// Permits one reload at a time, and counts the successful reloads.
    pub(super) turn: tokio::sync::Mutex<u64>,
    /// The warnings about the configuration in force. A reload logs only new ones.
    warnings: Mutex<Vec<String>>,
    /// Signals that services have changed, possibly the expiry of one.
    pub(super) lists_changed: tokio::sync::Notify,
    /// Signals that visitors have changed, possibly the expiry of a code.
    pub(super) visitors_changed: tokio::sync::Notify,
    /// The targets that commands currently share.
    pub(super) shares: Shares,
    /// The file from which this process was started.
    pub(super) binary: Binary,
    /// The next process, after it serves.
    pub(super) next: SetOnce<Arc<Next>>,
    /// This process as the parent of the next one.
    pub(super) guardian: OnceLock<Guardian>,
    /// The processes that this process has replaced.
    pub(super) formers: OnceLock<Arc<Formers>>,
    /// The deadline of the drain, after it has begun.
    drain_end: OnceLock<Instant>,
    /// The error of the last reload, if it failed.
    reload_error: Mutex<Option<String>>,
    /// The last change of the configuration file by a request.
    last_change: Mutex<Option<LastChange>>,
    /// Access to the console, where there is an admin API.
    pub(super) console: OnceLock<ConsoleAccess>,
}

impl RunningDaemon {
    pub(super) fn new(
        role: Arc<dyn Serving>,
        life: Life,
        file: Option<ConfigFile>,
        warnings: Vec<String>,
        (binary, shares): (Binary, Shares),
    ) -> Self {
        let (turn, lists_changed, visitors_changed) = Default::default();
        let (next, drain_end, reload_error, console) = Default::default();
        let (guardian, formers) = Default::default();
        let last_change = Mutex::default();
        let warnings = Mutex::new(warnings);
        Self {
            role,
            life,
            file,
            turn,
            warnings,
            lists_changed,
            visitors_changed,
            shares,
            binary,
            next,
            guardian,
            formers,
            drain_end,
            reload_error,
            last_change,
            console,
        }
    }

    /// Records warnings that the user has been shown.
    pub(super) fn know_warnings(&self, warnings: impl Iterator<Item = String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    /// Keeps only the warnings of a report that did not exist before the reload.
    pub(super) fn keep_new_warnings(&self, reloaded: &mut Reloaded) {
        let mut known = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, reloaded.warnings.clone());
        // A line of the report is not repeated, such as a shadowed entry.
        let is_reported = |warning: &String| {
            before.contains(warning)
                || reloaded.applied.iter().any(|line| warning.starts_with(line.as_str()))
        };
        reloaded.warnings.retain(|warning| !is_reported(warning));
    }

    /// Records the time at which the remaining streams are reset.
    pub(super) fn drains_until(&self, end: Instant) {
        // A drain begins once.
        let _ = self.drain_end.set(end);
    }

    pub(super) fn reload_error(&self) -> MutexGuard<'_, Option<String>> {
        self.reload_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error about the file, without the secrets of the file. Each reader of the status sees the
    /// error of a reload.
    pub(super) fn without_secrets(&self, why: anyhow::Error) -> anyhow::Error {
        let text = self.file.as_ref().and_then(|file| file.read().ok());
        match text {
            Some(text) => concealed(why, &secrets_of(&text)),
            None => why,
        }
    }

    pub(super) fn last_change(&self) -> MutexGuard<'_, Option<LastChange>> {
        self.last_change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningDaemon {
    /// Adds the data that the role does not know.
    fn complete(&self, status: &mut Status) {
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.pid = std::process::id();
        status.log_lines_left_out = logging::left_out();
        status.request_log_lines_lost = logging::requests::lost();
        status.reload_error = self.reload_error().clone();
        status.former = self.formers.get().map(|formers| formers.list()).unwrap_or_default();
        if self.life.phase() != Phase::Running {
            status.state = DaemonState::Draining.into();
            let left = |end: &Instant| end.duration_since(Instant::now()).as_secs();
            status.drain_seconds = self.drain_end.get().map(left);
        }
    }
}

impl Daemon for RunningDaemon {
    fn role(&self) -> Role {
        self.role.role()
    }

    fn inner(&self) -> Option<&dyn Daemon> {
        Some(self.role.as_ref())
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let mut status = self.role.status().await;
            self.complete(&mut status);
            status
        })
    }

    fn brief(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let mut status = self.role.brief().await;
            self.complete(&mut status);
            status
        })
    }

    fn delta<'a>(&'a self, cursor: &'a mut Cursor) -> SendFuture<'a, StatusDelta> {
        Box::pin(async {
            let mut delta = self.role.delta(cursor).await;
            self.complete(&mut delta.status);
            delta
        })
    }

    fn settings(&self) -> Option<&dyn Settings> {
        Some(self)
    }

    fn console(&self) -> Option<&dyn Console> {
        Some(self)
    }

    fn log(&self) -> Option<&dyn Log> {
        Some(self)
    }

    fn enrolment(&self) -> Option<&dyn Enrolment> {
        self.role.enrolment().map(|_| self as &dyn Enrolment)
    }

    fn clients(&self) -> Option<&dyn Clients> {
        self.role.entries().map(|_| self as &dyn Clients)
    }

    fn lists(&self) -> Option<&dyn Lists> {
        self.role.lists_in_force().map(|_| self as &dyn Lists)
    }

    fn sharer(&self) -> Option<&dyn Sharer> {
        self.role.lists_in_force().map(|_| self as &dyn Sharer)
    }

    fn visitors(&self) -> Option<&dyn Visitors> {
        self.role.inviter().map(|_| self as &dyn Visitors)
    }

    fn upgrade(&self) -> Option<&dyn Upgrade> {
        Some(self)
    }
}

impl Console for RunningDaemon {
    fn link(&self) -> anyhow::Result<ConsoleLink> {
        self.console.get().context(NO_API)?.link()
    }
}

impl Log for RunningDaemon {
    fn filter(&self) -> String {
        logging::current().unwrap_or_else(|| "nothing".to_owned())
    }

    fn change(&self, filter: &str) -> Result<(), String> {
        logging::levels(filter)?;
        logging::change(filter);
        Ok(())
    }

    fn lines(&self, after: u64, limit: usize) -> Lines {
        logging::recent(after, limit)
    }
}
