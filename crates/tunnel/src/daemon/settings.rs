//! The configuration file of the running daemon: reload, change, look ahead, undo.

use anyhow::Context;
use config::LogFormat;
use config::secrets::Secrets;
use logging::AUDIT;
use net::handover;
use ops::revision::{Checked, Finding, NewConfig, Stale};
use ops::shown::{self, Shown};
use ops::{Phase, Reloaded, SendFuture, Settings, WrongConfig};

use super::running::{GONE_ON, LastChange, RunningDaemon};
use crate::config_file::{ConfigFile, conceal, concealed, secrets_around, tag_of};
use crate::{activation, notify};

/// The text of the configuration file around a change that may fail.
#[derive(Default)]
struct Texts {
    before: String,
    after: String,
}

/// The secrets around a change, which are searched on a thread that may block.
async fn around(before: &str, after: &str, change: &NewConfig) -> anyhow::Result<Secrets> {
    let (before, after, change) = (before.to_owned(), after.to_owned(), change.clone());
    let search = move || secrets_around(&before, &after, &change);
    Ok(tokio::task::spawn_blocking(search).await?)
}

impl RunningDaemon {
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
        // A stop may have begun during the reload; then systemd must not be notified either.
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
            // It waits for the disk.
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

    async fn foresee_now(&self, change: NewConfig) -> anyhow::Result<Checked> {
        let file = self.file.clone().context(shown::NONE)?;
        let before = file.read()?;
        let mut checked = Checked { etag: tag_of(&before), ..Checked::default() };
        let name = file.name();
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

    /// Changes the file and applies it. `texts` receives the previous text of the file and the
    /// intended text.
    async fn amended(
        &self,
        change: NewConfig,
        tag: Option<String>,
        texts: &mut Texts,
    ) -> anyhow::Result<Reloaded> {
        // The lock excludes other changes and reloads until the end of the change.
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
