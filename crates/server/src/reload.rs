//! The reload of a server: clients and their rights, certificates, and the settings of new links.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use config::{Change, ServerConfig, Trust};
use ops::clients::{self, Applied};
use ops::{Foreseen, Loaded, Reloaded, shown};
use tls::Identity;

use super::Server;
use super::hook::HookSettings;
use super::shared::without_clients;
use families::identity;
use node::memory;

impl Server {
    /// Reads the configuration again and applies it.
    pub(super) async fn reload_source(&self) -> anyhow::Result<Reloaded> {
        let source = self.source.as_ref().context("it was started without a configuration")?;
        // Held so that no client is enrolled between the reading and the applying.
        let _turn = self.registry.shared().enrolments.turn().await;
        let Loaded { config, warnings } = (source.load)(None)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        Ok(Reloaded { warnings, ..self.apply(config).await? })
    }

    /// Checks whether a server could start with `text` as its configuration file.
    pub(super) fn try_source(&self, text: String) -> anyhow::Result<Foreseen> {
        let source = self.source.as_ref().context(shown::NONE)?;
        let Loaded { config, warnings } = (source.load)(Some(text))?;
        Ok((warnings, self.config.load().differs(&config)))
    }

    /// Applies the entry of the changed client in `text`, a configuration file. An error leaves
    /// everything unchanged.
    pub(super) async fn apply_client_of(
        &self,
        change: &clients::Change,
        text: String,
    ) -> anyhow::Result<Applied> {
        let source = self.source.as_ref().context(shown::NONE)?;
        let _turn = self.registry.shared().enrolments.turn().await;
        let Loaded { config, .. } = (source.load)(Some(text))?;
        let name = change.name();
        let grant = config.clients.iter().find(|client| client.name == name);
        let grant = grant.with_context(|| format!("client `{name}` is not in the file"))?;
        // A new `client_ca` takes effect at the next start.
        let certificates = self.config.load().tls.client_ca.is_some();
        self.registry.apply_client(change, grant, certificates).await
    }

    /// Applies a new configuration. An error leaves everything unchanged.
    async fn apply(&self, new: ServerConfig) -> anyhow::Result<Reloaded> {
        let running = self.config.load_full();
        let mut differs = running.differs(&new);
        // The server keeps no copy of the clients; they are compared one by one.
        differs.retain(|changed| changed.key != "clients");
        let new = new.reloaded(&running);
        // The steps that can fail come first.
        let renewed = self.renewal(&new)?;
        let redone = self.doors.renewal(&new, self.state.as_deref())?;
        let asked = HookSettings::new(&new)?;
        let shared = self.registry.shared();
        // The service is replaced before the clients, because answers of the old service must not
        // count after the clients have changed.
        let before = shared.hook.replace(asked);
        let changes = match shared.clients.replace(&new) {
            Ok(changes) => changes,
            Err(why) => {
                shared.hook.replace(before);
                return Err(why);
            }
        };
        renewed();
        redone();
        if differs.iter().any(|changed| changed.change == Change::Reconnect) {
            *self.registry.shared().link.lock() = memory::link_config(&new.common);
        }
        shared.hosts.remember_for(new.http.remember.duration());
        shared.admits_codes.store(super::admits_codes(&new), Ordering::Relaxed);
        shared.hosts.set_public(&new.public_url);
        self.config.store(Arc::new(without_clients(new)));
        self.registry.follow(&changes).await;
        if differs.iter().any(|changed| changed.key == "public_url") {
            self.registry.tell_addresses().await;
        }
        Ok(Reloaded::new(changes.lines(), &differs))
    }

    /// Reads the certificates again, for new connections.
    pub(super) fn renew_certificates(&self) -> anyhow::Result<()> {
        let config = self.config.load();
        let asked = HookSettings::new(&config)?;
        let redone = self.doors.renewal(&config, self.state.as_deref())?;
        self.renewal(&config)?();
        redone();
        self.registry.shared().hook.replace(asked);
        Ok(())
    }

    /// Reads the certificates for links to other nodes and for etcd again.
    pub(super) async fn renew_of_node(&self, config: &ServerConfig) -> anyhow::Result<()> {
        match (&self.parts, &config.cluster) {
            (Some(parts), Some(cluster)) => parts.renew(cluster).await,
            (None, _) | (_, None) => Ok(()),
        }
    }

    fn renewal(&self, config: &ServerConfig) -> anyhow::Result<impl FnOnce() + use<>> {
        self.side.renew(config, self.identity(config)?.as_ref())
    }

    /// Reads the server's certificate again; `None` without TLS.
    pub(super) fn identity(&self, config: &ServerConfig) -> anyhow::Result<Option<Identity>> {
        let source = self.source.as_ref().filter(|_| self.side.has_tls());
        source.map(|source| identity::identity(&config.tls, &source.state)).transpose()
    }

    /// The certificate and key files that are read in addition to the configuration.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        files_of(&self.config.load())
    }
}

/// The certificate and key files of a configuration.
fn files_of(config: &ServerConfig) -> Vec<PathBuf> {
    let tls = &config.tls;
    // All members of etcd have the same files.
    let member = config.cluster.as_ref().and_then(|cluster| cluster.directory.members.first());
    let asked = config.auth.as_ref().map(|auth| &auth.path).into_iter().chain(member);
    let asked_ca = asked.clone().filter_map(|path| match &path.trust {
        Trust::Ca(ca) => Some(ca),
        Trust::System | Trust::Pins(_) => None,
    });
    let pairs = tls.identity.iter().chain(asked.filter_map(|path| path.identity.as_ref()));
    let pairs = pairs.chain(&config.tls_routes.certificates);
    let node = config.cluster.as_ref().and_then(|cluster| cluster.peers.tls.as_ref());
    let pairs = pairs.chain(node.map(|tls| &tls.identity));
    let pairs = pairs.flat_map(|pair| [&pair.cert, &pair.key]);
    let node_ca = node.map(|tls| &tls.ca);
    pairs.chain(&tls.client_ca).chain(asked_ca).chain(node_ca).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::{ServerFlags, Sources, Text};

    use super::*;

    #[test]
    fn the_certificates_of_both_connections_of_a_node_are_watched() {
        let text = "listen: tcp://127.0.0.1:0\n\
            clients: [{ name: home, token: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ }]\n\
            cluster:\n  name: test\n  node: a\n  \
            peers: { listen: 'quic://127.0.0.1:7100', ca: /p/ca, cert: /p/cert, key: /p/key }\n  \
            directory: { etcd: ['https://127.0.0.1:2379', 'https://127.0.0.2:2379'], \
            tls: { ca: /e/ca, cert: /e/cert, key: /e/key } }\n";
        let text = Text { name: "server.yaml", text };
        let sources = Sources { env: &|_: &str| None, read: &|_: &Path| Err(String::new()) };
        let loaded = config::load_server(Some(text), &ServerFlags::default(), &sources).unwrap();
        let mut files = files_of(&loaded.config);
        files.sort();
        let wanted = ["/e/ca", "/e/cert", "/e/key", "/p/ca", "/p/cert", "/p/key"];
        assert_eq!(files, wanted.map(PathBuf::from));
    }
}
