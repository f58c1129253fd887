//! The services of `tunnel share`, which live as long as the command that asked for them. They are
//! in no file. A reload and a change by another command do not affect them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use config::{ClientConfig, Kept, Lists, Service};
use ops::WrongConfig;
use ops::share::Sharing;
use tokio::sync::Notify;

/// The most shared targets at a time; each has a connection of the control socket, which takes 16.
const SHARES: usize = 8;

/// The targets that commands currently share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Mutex<Vec<Share>>,
    begun: AtomicU64,
    /// Signals that a command has exited.
    ended: Notify,
}

#[derive(Debug)]
struct Share {
    /// A later share may have the name of this one.
    number: u64,
    service: Service,
    /// The command has exited, or the share has expired.
    is_over: bool,
}

impl Shares {
    fn all(&self) -> MutexGuard<'_, Vec<Share>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the shared services to a loaded configuration.
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

    /// Ends the expired share of this name. Returns whether such a share existed. Its command may
    /// be stopped, and may not report anything.
    pub(super) fn expire(&self, name: &str) -> bool {
        let is_there = self.has(name);
        if is_there {
            self.end(|share| share.service.name == name);
        }
        is_there
    }

    /// The first active share that would lose its name or address by a change. A share ends only
    /// with its command: otherwise visitors who know a password would reach the service of another
    /// command.
    pub(super) fn displaced(&self, config: &ClientConfig, after: &ClientConfig) -> Option<String> {
        let have = |config: &ClientConfig, service: &Service| {
            config.services.iter().any(|known| known.name == service.name && known == service)
        };
        let lost = |service: &&Service| self.has(&service.name) && !have(after, service);
        let lost = config.services.iter().find(lost)?;
        Some(format!("{} ({})", lost.places(), lost.name))
    }

    /// Completes when the command of a shared target has exited.
    pub(super) async fn ended(&self) {
        self.0.ended.notified().await;
    }

    /// Removes the services whose commands have exited, and returns their names.
    pub(super) fn take_over(&self) -> Vec<String> {
        let over = self.all().extract_if(.., |share| share.is_over).collect::<Vec<_>>();
        over.into_iter().map(|share| share.service.name).collect()
    }
}

/// The change that adds these services, as a change by a command.
pub(super) fn added(services: Vec<Service>) -> Kept {
    Kept { lists: Lists { services, ..Lists::default() }, ..Kept::default() }
}
