//! The clients of a running server: their entries in the configuration file, and their codes.

use anyhow::Context;
use ops::clients::{self, Applied, Change, Details, Held, HoldOrder, Origin};
use ops::enrol::{Opened, Order};
use ops::{Clients, Enrolment, Entries, Phase, SendFuture, WrongConfig};

use super::running::RunningDaemon;
use super::settings::undo;

impl RunningDaemon {
    /// The entries of a server's clients. An error means that the role is a different one.
    fn entries(&self) -> anyhow::Result<&dyn Entries> {
        self.role.entries().context("it has no clients")
    }

    fn enrolment_of_role(&self) -> anyhow::Result<&dyn Enrolment> {
        self.role.enrolment().context("it makes no codes")
    }

    async fn change_client_now(&self, change: Change) -> anyhow::Result<Applied> {
        // The lock excludes reloads and other changes of the file.
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
    /// The configuration file that contains the client of this name; `None` if the client was
    /// enrolled by a code, or is unknown.
    async fn file_of(&self, name: &str) -> anyhow::Result<Option<String>> {
        let known = self.entries()?.one(name.to_owned()).await;
        let is_of_file = known.is_some_and(|known| known.client.from == Origin::File);
        let file = self.file.as_ref().map(|file| file.name());
        Ok(is_of_file.then(|| file.unwrap_or_else(|| "the server's command line".to_owned())))
    }
}

/// The steps by which the user removes a client from the configuration file.
fn removal_by_hand(name: &str, file: &str) -> WrongConfig {
    WrongConfig(vec![
        format!("client `{name}` is in {file}, and no command removes it there. By hand:"),
        format!("  1. delete the entry `name: {name}` below `clients` in {file}"),
        format!("  2. tunnel reload --config {file} (its connections end)"),
        format!("To disconnect it until it logs in again: tunnel clients kick {name}"),
    ])
}

/// The steps by which the user gives a client of the configuration file a new token.
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
            // The lock excludes reloads, which may remove the client.
            let _turn = self.turn.lock().await;
            anyhow::ensure!(self.life.phase() == Phase::Running, "it is stopping");
            self.entries()?.hold(order).await
        })
    }
}
