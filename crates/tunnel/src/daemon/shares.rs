//! The services of `tunnel share`, which live as long as the command that asked for them. They are
//! in no file. A reload and a change by another command leave them as they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use config::{ClientConfig, Kept, Lists, Service};
use ops::WrongConfig;
use ops::share::Sharing;
use tokio::sync::Notify;

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

    pub(super) fn begin(&self, service: Service) -> anyhow::Result<Sharing> {
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

    /// Ready when the command of a shared target has gone.
    pub(super) async fn ended(&self) {
        self.0.ended.notified().await;
    }

    /// Takes the services out whose commands have gone, and returns their names.
    pub(super) fn take_over(&self) -> Vec<String> {
        let over = self.all().extract_if(.., |share| share.is_over).collect::<Vec<_>>();
        over.into_iter().map(|share| share.service.name).collect()
    }
}

/// The change that adds these services, as a change by a command.
pub(super) fn added(services: Vec<Service>) -> Kept {
    Kept { lists: Lists { services, ..Lists::default() }, ..Kept::default() }
}
