//! `tunnel share` in the running client: services that live as long as the command that asked for
//! them. They are in no file. A reload and a change by another command leave them as they are.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use config::{ClientConfig, Kept, Lists, Public, Service, Target};
use logging::AUDIT;
use ops::share::{ShareOrder, Shared, Sharing, Visits};
use ops::{Phase, SendFuture, Sharer, WrongConfig};
use tokio::sync::Notify;

use super::running::RunningDaemon;
use crate::input::with_sources;
use crate::own;

/// The most shared targets at a time; each has a connection of the control socket, which takes 16.
const SHARES: usize = 8;

/// The targets that commands share now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Mutex<Vec<Share>>,
    begun: AtomicU64,
    /// A command has gone.
    ended: Notify,
}

#[derive(Debug)]
struct Share {
    /// A later share may have the name of this one.
    number: u64,
    service: Service,
    /// The command has gone, or the time of the share is over.
    is_over: bool,
}

impl Shares {
    fn all(&self) -> MutexGuard<'_, Vec<Share>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the shared services to a configuration that was read.
    pub(crate) fn join(&self, config: &mut ClientConfig) -> Result<(), WrongConfig> {
        let services: Vec<_> = self.all().iter().map(|share| share.service.clone()).collect();
        if services.is_empty() {
            return Ok(());
        }
        config.keep(&added(services)).map_err(|bad| WrongConfig::one(bad.line()))
    }

    /// Whether a command shares the service of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all().iter().any(|share| share.service.name == name)
    }

    fn begin(&self, service: Service) -> anyhow::Result<Sharing> {
        let mut all = self.all();
        let name = service.name.clone();
        ensure!(all.len() < SHARES, "{SHARES} targets are shared already, which is the most");
        ensure!(
            all.iter().all(|share| share.service.name != name),
            "{name} is shared already by another command"
        );
        let number = self.0.begun.fetch_add(1, Ordering::Relaxed);
        all.push(Share { number, service, is_over: false });
        let shares = self.clone();
        Ok(Sharing::new(move || shares.end(|share| share.number == number)))
    }

    fn end(&self, is_it: impl Fn(&Share) -> bool) {
        for share in self.all().iter_mut().filter(|share| is_it(share)) {
            share.is_over = true;
        }
        self.0.ended.notify_one();
    }

    /// Ends the share of this name, whose time is over. Returns whether there is one. Its command
    /// may be stopped, and tell nothing.
    pub(super) fn expire(&self, name: &str) -> bool {
        let is_there = self.has(name);
        if is_there {
            self.end(|share| share.service.name == name);
        }
        is_there
    }

    /// The first share that is in force and would lose its name or address by a change. A share
    /// goes with its command alone: visitors who know a password would reach what another command
    /// opens.
    pub(super) fn displaced(&self, config: &ClientConfig, after: &ClientConfig) -> Option<String> {
        let have = |config: &ClientConfig, service: &Service| {
            config.services.iter().any(|known| known.name == service.name && known == service)
        };
        let lost = |service: &&Service| self.has(&service.name) && !have(after, service);
        let lost = config.services.iter().find(lost)?;
        Some(format!("{} ({})", lost.places(), lost.name))
    }

    /// Takes the services out whose commands have gone, and returns their names.
    fn take_over(&self) -> Vec<String> {
        let over = self.all().extract_if(.., |share| share.is_over).collect::<Vec<_>>();
        over.into_iter().map(|share| share.service.name).collect()
    }
}

/// The change that adds these services, as a change by a command.
fn added(services: Vec<Service>) -> Kept {
    Kept { lists: Lists { services, ..Lists::default() }, ..Kept::default() }
}

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
        // The lock keeps out reloads and other changes.
        let _turn = self.turn.lock().await;
        ensure!(self.life.phase() == Phase::Running, "it is stopping");
        let lists = self.role.lists_in_force().context("it has no services and forwards")?;
        // A command that has just gone may have shared at the same name.
        self.withdraw_ended().await;
        let config = lists.config();
        let service = service_of(order, &config)?;
        own::refuse(std::iter::once(&service), &config.common)?;
        let mut after = ClientConfig::clone(&config);
        after.keep(&added(vec![service.clone()])).map_err(|bad| WrongConfig::one(bad.line()))?;
        // A target that is shared for an hour must not displace a service of the file.
        let name = &service.name;
        ensure!(
            after.shadows().len() == config.shadows().len()
                && config.services.iter().all(|known| known.name != *name),
            "{name} or its address belongs to another service of this client"
        );
        if let Some(lost) = self.shares.displaced(&config, &after) {
            // No other kind of address of the same word is tried.
            return Err(WrongConfig::one(format!(
                "another command shares at {lost} (hint: end it first, or share at another word by \
                 --at)"
            ))
            .into());
        }
        let name = name.clone();
        // Withdraws the service if this future is dropped, too.
        let sharing = self.shares.begin(service.clone())?;
        lists.observe(&name, visits);
        let mut reloaded = lists.apply(added(vec![service])).await?;
        let published = reloaded.published.iter().find(|published| published.name == name);
        let Some(published) = published else {
            let why = reloaded.failed.drain(..).chain(reloaded.applied.drain(..));
            anyhow::bail!("{}", why.collect::<Vec<_>>().join("; "));
        };
        let addresses = published.addresses.clone();
        // The time of the share may be the next that is over.
        self.lists_changed.notify_one();
        tracing::info!(
            target: AUDIT, service = name, "{name} is shared at {}", addresses.join(", ")
        );
        Ok((Shared { name, addresses }, sharing))
    }

    /// Withdraws the services whose commands have gone.
    pub(super) async fn end_shares(&self) {
        // The lock keeps out reloads and other changes.
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

    /// Ready when the command of a shared target has gone.
    pub(super) async fn share_ended(&self) {
        self.shares.0.ended.notified().await;
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
