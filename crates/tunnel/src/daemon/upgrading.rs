//! The upgrade of the running daemon: another process takes its place.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use logging::AUDIT;
use net::handover;
use ops::upgrade::{Upgrade, UpgradeOrder, Upgraded};
use ops::{Phase, SendFuture};
use tokio::time::Instant;

use super::running::{GONE_ON, RunningDaemon};
use crate::notify;
use crate::parent::Guardian;
use crate::supervise::is_supervised;
use crate::upgrade::{Left, Listed, Started};

/// Longest wait for the end of surplus former processes.
const SURPLUS: Duration = Duration::from_secs(5);

impl RunningDaemon {
    /// Continues in a new process. Runs to its end even if the caller has gone.
    async fn upgrade_now(&self, order: UpgradeOrder) -> anyhow::Result<Option<Upgraded>> {
        if order.only.as_ref().is_some_and(|only| !self.binary.is(only)) {
            return Ok(None);
        }
        // The lock excludes reloads, which would change the file that the new process reads.
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
        // systemd learns of the new main process. Any other parent would take the end of this
        // process for the end of the daemon.
        let guardian = if notify::has_manager() { None } else { Some(self.guardian()?) };
        let handover_state = self.role.handover_state(false).await;
        let formers = self.formers.get().map(|formers| formers.listed()).unwrap_or_default();
        let left = Left { handover_state, formers };
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
        let heirloom = if started.takes_heirlooms() { self.role.heirloom().await } else { None };
        let next = match started.serve(heirloom).await {
            Ok(next) => next,
            Err(why) => {
                notify::main_process(std::process::id());
                self.role.keep_heirloom().await;
                return Err(why);
            }
        };
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

    /// The largest number of former processes beside this process.
    pub(super) fn most_formers(&self) -> usize {
        // Besides them, the ports have room for this process and its successor.
        let room = net::udp::most_processes().saturating_sub(2);
        self.role.common().upgrade.most.min(room)
    }

    /// Ends the surplus former processes, which were asked to end at the upgrade that made them
    /// surplus: the next process needs their room.
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
}

impl Upgrade for RunningDaemon {
    fn upgrade(&self, order: UpgradeOrder) -> SendFuture<'_, anyhow::Result<Option<Upgraded>>> {
        Box::pin(self.upgrade_now(order))
    }
}
