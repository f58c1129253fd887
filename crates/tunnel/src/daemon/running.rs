//! The running daemon as the control socket, the admin API and signals see it: it answers requests
//! and carries out commands.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use admin::ConsoleAccess;
use anyhow::Context;
use config::LogFormat;
use config::secrets::Secrets;
use logging::AUDIT;
use net::handover;
use ops::clients::{self, Applied, Change, Details, Held, HoldOrder, Origin};
use ops::enrol::{Opened, Order};
use ops::events::Events;
use ops::lists::ListChange;
use ops::log::Lines;
use ops::measure::{Meter, SpeedTest};
use ops::nat::NatProbe;
use ops::revision::{Checked, Finding, NewConfig, Stale};
use ops::shown::{self, Shown};
use ops::status::{DaemonState, Status};
use ops::tested::Tester;
use ops::upgrade::{Upgrade, UpgradeOrder, Upgraded};
use ops::{
    Clients, Connector, Console, ConsoleLink, Daemon, Enrolment, Entries, Glance, Life, Lists, Log,
    Phase, Reloaded, Requests, Seen, SendFuture, Serving, Settings, Sharer, Traffic, Visitors,
    WrongConfig,
};
use tokio::sync::SetOnce;
use tokio::time::Instant;

use super::shares::Shares;
use crate::activation;
use crate::config_file::{ConfigFile, conceal, concealed, secrets_around, tag_of};
use crate::console::NO_API;
use crate::input::secrets_of;
use crate::notify;
use crate::parent::Guardian;
use crate::supervise::is_supervised;
use crate::upgrade::{Binary, Formers, Left, Listed, Next, Started};

/// Longest wait for the end of former processes that are too many.
const SURPLUS: Duration = Duration::from_secs(5);

/// The error of a process whose place the next process has taken.
const GONE_ON: &str = "it goes on in a new process; ask again";

/// The text of the configuration file around a change.
#[derive(Clone)]
struct LastChange {
    before: String,
    after: String,
}

/// The text of the configuration file around a change that may fail.
#[derive(Default)]
struct Texts {
    before: String,
    after: String,
}

/// The secrets around a change, which are looked for on a thread that may block.
async fn around(before: &str, after: &str, change: &NewConfig) -> anyhow::Result<Secrets> {
    let (before, after, change) = (before.to_owned(), after.to_owned(), change.clone());
    let search = move || secrets_around(&before, &after, &change);
    Ok(tokio::task::spawn_blocking(search).await?)
}

/// A role, with the state that only the frame has.
pub(super) struct RunningDaemon {
    pub(super) role: Arc<dyn Serving>,
    pub(super) life: Life,
    pub(super) file: Option<ConfigFile>,
    /// Permits one reload at a time, and counts the successful reloads.
    pub(super) turn: tokio::sync::Mutex<u64>,
    /// The warnings about the configuration in force. A reload tells the others.
    warnings: Mutex<Vec<String>>,
    /// Services have changed, perhaps the time at which one ends.
    pub(super) lists_changed: tokio::sync::Notify,
    /// Visitors have changed, perhaps the time at which a code ends.
    pub(super) visitors_changed: tokio::sync::Notify,
    /// The targets that commands share now.
    pub(super) shares: Shares,
    /// The file from which this process was started.
    binary: Binary,
    /// The next process, once it serves.
    pub(super) next: SetOnce<Arc<Next>>,
    /// This process as the parent of the next one.
    pub(super) guardian: OnceLock<Guardian>,
    /// The processes whose place this one has taken.
    pub(super) formers: OnceLock<Arc<Formers>>,
    /// The end of the drain, as soon as it has begun.
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

    /// Notes warnings that a person has been told.
    pub(super) fn know_warnings(&self, warnings: impl Iterator<Item = String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    /// Leaves in a report the warnings that there were not before the reload.
    fn keep_new_warnings(&self, reloaded: &mut Reloaded) {
        let mut known = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, reloaded.warnings.clone());
        // A line of the report is not repeated, such as an entry that has the place of another.
        let is_told = |warning: &String| {
            before.contains(warning)
                || reloaded.applied.iter().any(|line| warning.starts_with(line.as_str()))
        };
        reloaded.warnings.retain(|warning| !is_told(warning));
    }

    /// Notes the time at which the remaining streams are reset.
    pub(super) fn drains_until(&self, end: Instant) {
        // A drain begins once.
        let _ = self.drain_end.set(end);
    }

    fn reload_error(&self) -> MutexGuard<'_, Option<String>> {
        self.reload_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error about the file without the secrets of the file. Each reader of the status sees the
    /// error of a reload.
    pub(super) fn without_secrets(&self, why: anyhow::Error) -> anyhow::Error {
        let text = self.file.as_ref().and_then(|file| file.read().ok());
        match text {
            Some(text) => concealed(why, &secrets_of(&text)),
            None => why,
        }
    }

    /// Reloads. The caller holds the lock whose content is `turn`.
    pub(super) async fn reload_now(&self, turn: &mut u64) -> anyhow::Result<Reloaded> {
        // systemd already knows that the daemon stops, and must not be told that it is ready again.
        anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
        anyhow::ensure!(!handover::is_handed_over(), GONE_ON);
        notify::reloading();
        let mut outcome = self.role.reload().await.map_err(|why| self.without_secrets(why));
        if let Ok(reloaded) = &mut outcome {
            self.keep_new_warnings(reloaded);
        }
        // A stop may have begun during the reload; then systemd must not be told either.
        if self.life.phase() == Phase::Running {
            notify::ready(&self.role.summary());
            activation::retire();
            activation::store();
        }
        // Each problem of a file is one line.
        let why = outcome.as_ref().err().map(|why| format!("{why:#}").replace('\n', "; "));
        self.lists_changed.notify_one();
        if let Ok(reloaded) = &outcome {
            *turn += 1;
            let common = self.role.common();
            logging::follow(common.log_level.name());
            let json = common.log_format == LogFormat::Json;
            if let Err(why) = logging::follow_access(&common.log_access, json) {
                tracing::error!("the access log stays as it was: {why:#}");
            }
            // It waits for a disk.
            let requests = common.log_requests.clone();
            let follow = move || logging::requests::follow(requests.as_ref());
            if let Err(why) =
                tokio::task::spawn_blocking(follow).await.unwrap_or_else(|why| Err(why.into()))
            {
                tracing::error!("the log of requests stays as it was: {why:#}");
            }
            if reloaded.failed.is_empty() {
                tracing::info!(target: AUDIT, "reloaded: {reloaded}");
            } else {
                tracing::error!(target: AUDIT, "reloaded: {reloaded}");
            }
        } else if let Some(why) = &why {
            tracing::error!(target: AUDIT, "not reloaded, nothing has changed: {why}");
        }
        *self.reload_error() = why;
        outcome
    }

    /// Goes on in a new process. Runs to its end even if nobody waits for it.
    async fn upgrade_now(&self, order: UpgradeOrder) -> anyhow::Result<Option<Upgraded>> {
        if order.only.as_ref().is_some_and(|only| !self.binary.is(only)) {
            return Ok(None);
        }
        // The lock keeps out reloads, which would change what the new process reads.
        let _turn = self.turn.lock().await;
        anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
        anyhow::ensure!(!handover::is_handed_over(), GONE_ON);
        anyhow::ensure!(
            !is_supervised(),
            "not upgraded, and the daemon goes on as before: `tunnel run` has started it, and starts \
             it again in the new program by `tunnel restart`"
        );
        let binary = order.binary.as_deref().map_or_else(|| self.binary.path(), Ok)?;
        let limit = Duration::from_millis(order.timeout_millis);
        tracing::info!("starting {} to take the place of this process", binary.display());
        self.end_surplus_formers().await;
        // systemd learns of the new main process. Any other parent would take the end of this process
        // for the end of the daemon.
        let guardian = if notify::has_manager() { None } else { Some(self.guardian()?) };
        let heirloom = self.role.bequeath(false).await;
        let formers = self.formers.get().map(|formers| formers.listed()).unwrap_or_default();
        let left = Left { heirloom, formers };
        let started = Started::start(binary, left, (limit, guardian)).await;
        let started = started.inspect_err(|why| {
            tracing::error!(target: AUDIT, "not upgraded, and nothing has changed: {why:#}");
        });
        let started = started.context("not upgraded, and the daemon goes on as before")?;
        anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
        let streams = match self.role.traffic() {
            Some(traffic) => traffic.streams(None, 0).await.total,
            None => 0,
        };
        let upgraded = Upgraded {
            pid: started.pid,
            version: started.version.clone(),
            former_pid: std::process::id(),
            former_version: env!("CARGO_PKG_VERSION").to_owned(),
            streams,
            parent: guardian.is_some(),
        };
        notify::main_process(started.pid);
        let next = started.serve().await.inspect_err(|_| {
            notify::main_process(std::process::id());
        })?;
        tracing::info!(
            target: AUDIT, pid = upgraded.pid,
            "upgraded: process {} of version {} serves", upgraded.pid, upgraded.version
        );
        if let Some(guardian) = guardian {
            guardian.follows(upgraded.pid);
        }
        if let Some(formers) = self.formers.get() {
            formers.gone_on().await;
        }
        // The lock above permits one upgrade, and this process has only one.
        let _ = self.next.set(Arc::new(next));
        Ok(Some(upgraded))
    }

    /// This process as the parent of the next one.
    fn guardian(&self) -> anyhow::Result<&Guardian> {
        if self.guardian.get().is_none() {
            let guardian = Guardian::new().context(
                "not upgraded, and the daemon goes on as before: this process has to stay as the \
                 parent of the new one",
            )?;
            // The lock of the caller permits one upgrade.
            let _ = self.guardian.set(guardian);
        }
        self.guardian.get().context("the parent of the new process")
    }

    /// How many former processes may live beside this one.
    pub(super) fn most_formers(&self) -> usize {
        // Beside them the ports have room for this process and the one that takes its place.
        let room = net::udp::most_processes().saturating_sub(2);
        self.role.common().upgrade.most.min(room)
    }

    /// Ends the former processes beyond the bound, which were asked to end before, at the upgrade that
    /// made them too many: the next process needs their room.
    async fn end_surplus_formers(&self) {
        let Some(formers) = self.formers.get() else { return };
        let most = self.most_formers();
        for Listed { process, .. } in formers.listed().into_iter().skip(most).rev() {
            tracing::warn!(
                target: AUDIT, pid = process.pid, streams = process.streams,
                "the former process {} ends now: upgrade.former_max is {most}, and there is another \
                 upgrade (it waited for {})", process.pid, process.waits_for
            );
            formers.end(process.pid, true).await;
        }
        let until = Instant::now() + SURPLUS;
        while formers.listed().len() > most && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn foresee_now(&self, change: NewConfig) -> anyhow::Result<Checked> {
        let file = self.file.clone().context(shown::NONE)?;
        let before = file.read()?;
        let mut checked = Checked { etag: tag_of(&before), ..Checked::default() };
        let name = file.shown_name();
        let findings = |why: anyhow::Error| -> anyhow::Result<Vec<Finding>> {
            let WrongConfig(lines) = why.downcast()?;
            Ok(lines.iter().map(|line| Finding::read(&name, line)).collect())
        };
        let (editor, text, asked) = (file, before.clone(), change.clone());
        let foresee = move || editor.foreseen(&text, &asked);
        let foreseen = match tokio::task::spawn_blocking(foresee).await? {
            Ok(foreseen) => foreseen,
            Err(why) => {
                let secrets = around(&before, "", &change).await?;
                checked.problems = findings(concealed(why, &secrets))?;
                return Ok(checked);
            }
        };
        let secrets = around(&before, &foreseen.text, &change).await?;
        let mut restart = Vec::new();
        match self.role.check(foreseen.text) {
            Ok((warnings, changes)) => {
                (checked.ok, checked.warnings) = (true, warnings);
                conceal(&mut checked.warnings, &secrets);
                let waits = changes.iter().filter(|one| one.change == config::Change::Restart);
                restart = waits.map(|one| one.key.to_owned()).collect();
            }
            Err(why) => checked.problems = findings(concealed(why, &secrets))?,
        }
        let (diff, mut live) = (foreseen.diff, foreseen.changed);
        let waits =
            |key: &String| restart.iter().any(|own| own.split('.').next() == Some(key.as_str()));
        live.retain(|key| !waits(key));
        (checked.diff, checked.live, checked.restart) = (diff, live, restart);
        Ok(checked)
    }

    async fn undo_now(&self) -> anyhow::Result<Reloaded> {
        let mut turn = self.turn.lock().await;
        let file = self.file.clone().context(shown::NONE)?;
        let last = self.last_change().clone();
        let LastChange { before, after } = last.context("there is no change to undo")?;
        self.role.check(before.clone()).map_err(|why| self.without_secrets(why))?;
        file.replace(&after, &before)?;
        let former_error = self.reload_error().clone();
        match self.reload_now(&mut turn).await {
            Ok(reloaded) => {
                *self.last_change() = None;
                tracing::info!(target: AUDIT, "the last change of the configuration was undone");
                Ok(reloaded)
            }
            Err(why) => {
                let (why, is_undone) = undo(&file, &before, &after, why);
                if is_undone {
                    *self.reload_error() = former_error;
                }
                Err(why)
            }
        }
    }

    fn last_change(&self) -> MutexGuard<'_, Option<LastChange>> {
        self.last_change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn amend_now(&self, change: NewConfig, tag: Option<String>) -> anyhow::Result<Reloaded> {
        let mut texts = Texts::default();
        let outcome = self.amended(change.clone(), tag, &mut texts).await;
        // The answer repeats no secret of the file.
        let secrets = around(&texts.before, &texts.after, &change).await?;
        let mut reloaded = outcome.map_err(|why| concealed(why, &secrets))?;
        for lines in [&mut reloaded.warnings, &mut reloaded.failed] {
            conceal(lines, &secrets);
        }
        Ok(reloaded)
    }

    /// Changes the file and applies it. `texts` gets the text that the file has had and the text that it
    /// was to have.
    async fn amended(
        &self,
        change: NewConfig,
        tag: Option<String>,
        texts: &mut Texts,
    ) -> anyhow::Result<Reloaded> {
        // The lock keeps out other changes and reloads between reading the file and the end.
        let mut turn = self.turn.lock().await;
        let file = self.file.clone().context(shown::NONE)?;
        file.writable()?;
        let asked: Vec<_> = match &change {
            NewConfig::Patch(operations) => operations.iter().map(ToString::to_string).collect(),
            NewConfig::Text(_) => vec!["a new text".to_owned()],
        };
        let (before, editor) = (file.read()?, file.clone());
        texts.before.clone_from(&before);
        if tag.is_some_and(|tag| tag != tag_of(&before)) {
            return Err(Stale.into());
        }
        let text = before.clone();
        // Editing a large file takes long, so it runs on a blocking thread.
        let edit = move || editor.changed(&text, &change);
        let after = tokio::task::spawn_blocking(edit).await??;
        texts.after.clone_from(&after);
        self.role.check(after.clone())?;
        let is_other = after != before;
        if is_other {
            file.replace(&before, &after)?;
        }
        let former_error = self.reload_error().clone();
        let outcome = self.reload_now(&mut turn).await;
        match outcome {
            Ok(reloaded) => {
                if is_other {
                    tracing::info!(
                        target: AUDIT,
                        "the configuration was changed: {}", asked.join(", ")
                    );
                    *self.last_change() = Some(LastChange { before, after });
                }
                Ok(reloaded)
            }
            Err(why) if is_other => {
                let (why, is_undone) = undo(&file, &after, &before, why);
                if is_undone {
                    *self.reload_error() = former_error;
                }
                Err(why)
            }
            Err(why) => Err(why),
        }
    }

    /// The entries of a server's clients. An error means that the role is another one.
    fn entries(&self) -> anyhow::Result<&dyn Entries> {
        self.role.entries().context("it has no clients")
    }

    fn enrolment_of_role(&self) -> anyhow::Result<&dyn Enrolment> {
        self.role.enrolment().context("it makes no codes")
    }

    async fn change_client_now(&self, change: Change) -> anyhow::Result<Applied> {
        // The lock keeps out reloads and other changes of the file.
        let _turn = self.turn.lock().await;
        anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
        match self.entries()?.change_enrolled(change.clone()).await? {
            Some(applied) => Ok(applied),
            None => self.change_client_in_file(change).await,
        }
    }

    /// Changes a client of the configuration file. Nothing else of the file is applied.
    async fn change_client_in_file(&self, change: Change) -> anyhow::Result<Applied> {
        let name = change.name().to_owned();
        if !self.entries()?.knows(&name) {
            return Err(WrongConfig::one(format!(
                "no client `{name}` is in the server's configuration or has come in by a code"
            ))
            .into());
        }
        let file = self.file.clone().ok_or_else(|| {
            WrongConfig::one(match &change {
                Change::Allow(_) | Change::Deny(_) => format!(
                    "client `{name}` has the rights of the server's command line (hint: start the \
                     server with --allow-tcp, --allow-udp and --allow-forward)"
                ),
                Change::Limit(_) => format!(
                    "client `{name}` comes from the server's command line, which has no limits \
                     (hint: start the server with --config)"
                ),
            })
        })?;
        let (before, editor) = (file.read()?, file.clone());
        let text = before.clone();
        let asked = change.clone();
        let edit = move || editor.change(&text, &asked);
        let after = tokio::task::spawn_blocking(edit).await??;
        self.role.check(after.clone()).map_err(|why| self.without_secrets(why))?;
        let is_other = after != before;
        if is_other {
            file.replace(&before, &after)?;
        }
        match self.entries()?.apply(change, after.clone()).await {
            Err(why) if is_other => Err(undo(&file, &after, &before, why).0),
            outcome => outcome,
        }
    }
}

/// Undoes a change of the file that could not be applied, because the file must agree with the
/// configuration in force. Returns the error, and whether the file is as it was.
pub(super) fn undo(
    file: &ConfigFile,
    after: &str,
    before: &str,
    why: anyhow::Error,
) -> (anyhow::Error, bool) {
    match file.replace(after, before) {
        Ok(()) => (why.context("it cannot be put in force, and the file is as it was"), true),
        Err(worse) => {
            let text =
                format!("it cannot be put in force, and the file has it all the same ({worse:#})");
            (why.context(text), false)
        }
    }
}

impl RunningDaemon {
    /// Adds what the role does not know.
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
    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        self.role.alive(limit)
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

    fn glance<'a>(&'a self, seen: &'a mut Seen) -> SendFuture<'a, Glance> {
        Box::pin(async {
            let mut glance = self.role.glance(seen).await;
            self.complete(&mut glance.status);
            glance
        })
    }

    fn events(&self) -> Option<&Events> {
        self.role.events()
    }

    fn traffic(&self) -> Option<&dyn Traffic> {
        self.role.traffic()
    }

    fn meter(&self) -> Option<&dyn Meter> {
        self.role.meter()
    }

    fn speed_test(&self) -> Option<&dyn SpeedTest> {
        self.role.speed_test()
    }

    fn nat_probe(&self) -> Option<&dyn NatProbe> {
        self.role.nat_probe()
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

    fn requests(&self) -> Option<&dyn Requests> {
        self.role.requests()
    }

    fn visitors(&self) -> Option<&dyn Visitors> {
        self.role.inviter().map(|_| self as &dyn Visitors)
    }

    fn upgrade(&self) -> Option<&dyn Upgrade> {
        Some(self)
    }

    fn connector(&self) -> Option<&dyn Connector> {
        self.role.connector()
    }

    fn tester(&self) -> Option<&dyn Tester> {
        self.role.tester()
    }
}

impl Upgrade for RunningDaemon {
    fn upgrade(&self, order: UpgradeOrder) -> SendFuture<'_, anyhow::Result<Option<Upgraded>>> {
        Box::pin(self.upgrade_now(order))
    }
}

impl Settings for RunningDaemon {
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async {
            let mut turn = self.turn.lock().await;
            self.reload_now(&mut turn).await
        })
    }

    fn configuration(&self) -> anyhow::Result<Shown> {
        let file = self.file.as_ref().context(shown::NONE)?;
        let shown = file.show()?;
        let is_last = |last: &LastChange| tag_of(&last.after) == shown.etag;
        let undo = shown.writable && self.last_change().as_ref().is_some_and(is_last);
        Ok(Shown { undo, ..shown })
    }

    fn foresee(&self, change: NewConfig) -> SendFuture<'_, anyhow::Result<Checked>> {
        Box::pin(self.foresee_now(change))
    }

    fn amend(
        &self,
        change: NewConfig,
        tag: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.amend_now(change, tag))
    }

    fn undo(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.undo_now())
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

impl Enrolment for RunningDaemon {
    fn enroll(&self, order: Order) -> SendFuture<'_, anyhow::Result<Opened>> {
        Box::pin(async {
            // A code ends with the process.
            anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
            if order.renew
                && let Some(file) = self.file_of(&order.name).await?
            {
                return Err(renewal_by_hand(&order.name, &file).into());
            }
            self.enrolment_of_role()?.enroll(order).await
        })
    }

    fn revoke(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async {
            if let Some(file) = self.file_of(&name).await? {
                return Err(removal_by_hand(&name, &file).into());
            }
            self.enrolment_of_role()?.revoke(name).await
        })
    }
}

impl RunningDaemon {
    /// The configuration file that has the client of this name; `None` if it came in by a code, or
    /// is unknown.
    async fn file_of(&self, name: &str) -> anyhow::Result<Option<String>> {
        let known = self.entries()?.one(name.to_owned()).await;
        let is_of_file = known.is_some_and(|known| known.client.from == Origin::File);
        let file = self.file.as_ref().map(|file| file.0.display().to_string());
        Ok(is_of_file.then(|| file.unwrap_or_else(|| "the server's command line".to_owned())))
    }
}

/// The steps by which a person removes a client of the configuration file.
fn removal_by_hand(name: &str, file: &str) -> WrongConfig {
    WrongConfig(vec![
        format!("client `{name}` is in {file}, and no command removes it there. By hand:"),
        format!("  1. delete the entry `name: {name}` below `clients` in {file}"),
        format!("  2. tunnel reload --config {file} (its connections end)"),
        format!("To disconnect it until it logs in again: tunnel clients kick {name}"),
    ])
}

/// The steps by which a person gives a client of the configuration file another token.
fn renewal_by_hand(name: &str, file: &str) -> WrongConfig {
    WrongConfig(vec![
        format!("client `{name}` is in {file} with its token, which no code renews. By hand:"),
        format!("  1. (umask 077; tunnel generate token > {name}.token.new)"),
        format!(
            "  2. its entry in {file} gets both tokens, `token_file: [OLD, {name}.token.new]` or \
             `token: [OLD, NEW]`; then: tunnel reload --config {file}"
        ),
        "  3. the client's file gets the new token; then, there: tunnel reload".to_owned(),
        format!(
            "  4. its entry in {file} loses the old token; then: tunnel reload --config {file}"
        ),
    ])
}

impl Clients for RunningDaemon {
    fn all(&self) -> SendFuture<'_, anyhow::Result<clients::Clients>> {
        Box::pin(async { Ok(self.entries()?.all()) })
    }

    fn one(&self, name: String) -> SendFuture<'_, anyhow::Result<Option<Details>>> {
        Box::pin(async { Ok(self.entries()?.one(name).await) })
    }

    fn change(&self, change: Change) -> SendFuture<'_, anyhow::Result<Applied>> {
        Box::pin(self.change_client_now(change))
    }

    fn kick(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async { Ok(self.entries()?.kick(name).await) })
    }

    fn hold(&self, order: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>> {
        Box::pin(async {
            // The lock keeps out reloads, which may remove the client.
            let _turn = self.turn.lock().await;
            anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
            self.entries()?.hold(order).await
        })
    }
}

impl Lists for RunningDaemon {
    fn change(&self, change: ListChange) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.change_lists_now(change))
    }
}
