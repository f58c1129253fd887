//! `tunnel share` in the running client: a command shares a target as a service.

use std::path::Path;

use anyhow::{Context, ensure};
use config::{ClientConfig, Kept, Public, Service, Target};
use logging::AUDIT;
use ops::share::{ShareOrder, Shared, Sharing, Visits};
use ops::{Phase, SendFuture, Sharer, WrongConfig};

use super::running::RunningDaemon;
use super::shares::added;
use crate::input::with_sources;
use crate::own;

/// The service of an order.
fn service_of(order: ShareOrder, config: &ClientConfig) -> Result<Service, WrongConfig> {
    let ShareOrder { publish, options, only, no_requests } = order;
    let (publish, options) = ([publish], options.config());
    let load = |sources: &config::Sources<'_>| {
        let prefix = config.id_prefix.as_deref();
        config::load_asked((&publish, &options), &[], prefix, sources)
    };
    let lists = with_sources(Path::new(""), load)?.config;
    let mut services = lists.services.into_iter();
    let (Some(mut service), None) = (services.next(), services.next()) else {
        return Err(WrongConfig::one("one target is shared at a time".to_owned()));
    };
    if matches!(service.target, Target::Files(_)) {
        service.files.list = only.is_none();
        service.files.only = only;
    }
    service.requests = !no_requests && service.public.iter().any(Public::is_http);
    Ok(service.of_the_moment())
}

impl RunningDaemon {
    async fn share_now(
        &self,
        order: ShareOrder,
        visits: Visits,
    ) -> anyhow::Result<(Shared, Sharing)> {
        // The lock excludes reloads and other changes.
        let _turn = self.turn.lock().await;
        ensure!(self.life.phase() == Phase::Running, "it is stopping");
        let lists = self.role.lists_in_force().context("it has no services and forwards")?;
        // A command that has just exited may have shared under the same name.
        self.withdraw_ended().await;
        let config = lists.config();
        let service = service_of(order, &config)?;
        own::refuse(std::iter::once(&service), &config.common)?;
        let mut after = ClientConfig::clone(&config);
        after.keep(&added(vec![service.clone()])).map_err(|bad| WrongConfig::one(bad.line()))?;
        // A temporary share must not displace a service of the file.
        let name = &service.name;
        ensure!(
            after.shadows().len() == config.shadows().len()
                && config.services.iter().all(|known| known.name != *name),
            "{name} or its address belongs to another service of this client"
        );
        if let Some(lost) = self.shares.displaced(&config, &after) {
            // No other kind of address with the same text is tried.
            return Err(WrongConfig::one(format!(
                "another command shares at {lost} (hint: end it first, or share at another word by \
                 --at)"
            ))
            .into());
        }
        let name = name.clone();
        // Withdraws the service also if this future is dropped.
        let sharing = self.shares.begin(service.clone())?;
        lists.observe(&name, visits);
        let mut reloaded = lists.apply(added(vec![service])).await?;
        let published = reloaded.published.iter().find(|published| published.name == name);
        let Some(published) = published else {
            let why = reloaded.failed.drain(..).chain(reloaded.applied.drain(..));
            anyhow::bail!("{}", why.collect::<Vec<_>>().join("; "));
        };
        let addresses = published.addresses.clone();
        // The expiry of the share may be the next one.
        self.lists_changed.notify_one();
        tracing::info!(
            target: AUDIT, service = name, "{name} is shared at {}", addresses.join(", ")
        );
        Ok((Shared { name, addresses }, sharing))
    }

    /// Withdraws the services whose commands have exited.
    pub(super) async fn end_shares(&self) {
        // The lock excludes reloads and other changes.
        let _turn = self.turn.lock().await;
        self.withdraw_ended().await;
    }

    /// As [`Self::end_shares`], for a caller that holds the lock.
    pub(super) async fn withdraw_ended(&self) {
        let without = self.shares.take_over();
        let Some(lists) = self.role.lists_in_force().filter(|_| !without.is_empty()) else {
            return;
        };
        let names = without.join(", ");
        match lists.apply(Kept { without, ..Kept::default() }).await {
            Ok(_) => tracing::info!(target: AUDIT, "{names}: shared no more"),
            Err(why) => {
                tracing::error!(
                    "{names}: its command has gone, and it cannot be withdrawn: {why:#}"
                );
            }
        }
    }

    /// Completes when the command of a shared target has exited.
    pub(super) async fn share_ended(&self) {
        self.shares.ended().await;
    }
}

impl Sharer for RunningDaemon {
    fn share(
        &self,
        order: ShareOrder,
        visits: Visits,
    ) -> SendFuture<'_, anyhow::Result<(Shared, Sharing)>> {
        Box::pin(self.share_now(order, visits))
    }
}
