//! A server's configuration put in force again: clients and their rights, certificates, what new
//! links get.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use config::{Change, ServerConfig, Trust};
use ops::{Loaded, Reloaded, WrongConfig, shown};
use tls::Identity;

use super::hook::HookSettings;
use super::{Enrolled, Server};
use crate::{identity, memory};

/// Reads the configuration again; of the file as it is, or with this text.
type Load = Box<dyn Fn(Option<String>) -> Result<Loaded<ServerConfig>, WrongConfig> + Send + Sync>;

/// From where a server came, to be read again.
pub struct Source {
    /// Its file and flags.
    pub load: Load,
    /// The state directory: there is the certificate that the server made itself.
    pub state: PathBuf,
    /// The clients that have come in by a code.
    pub enrolled: Arc<dyn Enrolled>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Server {
    /// Reads the configuration again and applies it.
    pub(super) async fn reload_source(&self) -> anyhow::Result<Reloaded> {
        let source = self.source.as_ref().context("it was started without a configuration")?;
        // Nobody is enrolled between the reading and the applying.
        let _turn = self.registry.shared().enrolments.turn().await;
        let Loaded { config, warnings } = (source.load)(None)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.apply(config).await
    }

    /// Whether a start with this text of the file would be good.
    pub(super) fn try_source(&self, text: String) -> anyhow::Result<()> {
        let source = self.source.as_ref().context(shown::NONE)?;
        (source.load)(Some(text))?;
        Ok(())
    }

    /// Puts another configuration in force. After an error nothing has changed.
    async fn apply(&self, new: ServerConfig) -> anyhow::Result<Reloaded> {
        let running = self.config.load_full();
        let mut differs = running.differs(&new);
        // Of these the server keeps no copy, and they are compared one by one.
        differs.retain(|changed| changed.key != "clients");
        let new = new.reloaded(&running);
        // First what can fail.
        let renewed = self.renewal(&new)?;
        let asked = HookSettings::new(&new)?;
        let shared = self.registry.shared();
        // Before the clients: an answer of whoever was asked until now is not to count after that.
        let before = shared.hook.replace(asked);
        let changes = match shared.clients.replace(&new) {
            Ok(changes) => changes,
            Err(why) => {
                shared.hook.replace(before);
                return Err(why);
            }
        };
        renewed();
        if differs.iter().any(|changed| changed.change == Change::Reconnect) {
            *self.registry.shared().link.lock() = memory::link_config(&new.common);
        }
        self.config.store(Arc::new(without_clients(new)));
        self.registry.follow(&changes).await;
        Ok(Reloaded::new(changes.lines(), &differs))
    }

    /// Reads the certificates again that connections from now on are to see.
    pub(super) fn renew_certificates(&self) -> anyhow::Result<()> {
        let config = self.config.load();
        let asked = HookSettings::new(&config)?;
        self.renewal(&config)?();
        self.registry.shared().hook.replace(asked);
        Ok(())
    }

    fn renewal(&self, config: &ServerConfig) -> anyhow::Result<impl FnOnce() + use<>> {
        self.side.renew(config, self.identity(config)?.as_ref())
    }

    /// The certificate that it shows, read again.
    pub(super) fn identity(&self, config: &ServerConfig) -> anyhow::Result<Option<Identity>> {
        let source = self.source.as_ref().filter(|_| self.side.has_tls());
        source.map(|source| identity::identity(&config.tls, &source.state)).transpose()
    }

    /// What is read beside the configuration.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        let config = self.config.load();
        let tls = &config.tls;
        let asked = config.auth.as_ref().map(|auth| &auth.path);
        let asked_ca = asked.and_then(|path| match &path.trust {
            Trust::Ca(ca) => Some(ca),
            Trust::System | Trust::Pins(_) => None,
        });
        let pairs = tls.identity.iter().chain(asked.and_then(|path| path.identity.as_ref()));
        let pairs = pairs.flat_map(|pair| [&pair.cert, &pair.key]);
        pairs.chain(&tls.client_ca).chain(asked_ca).cloned().collect()
    }
}

/// Their tokens need not stay in memory.
pub(super) fn without_clients(config: ServerConfig) -> ServerConfig {
    ServerConfig { clients: Vec::new(), ..config }
}
