//! A client's configuration put in force again: services, forwards, and new links where these were
//! made of something that has changed.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use config::{Change, ClientConfig, Trust};

use super::links::{Links, Plan};
use super::{Client, register};
use crate::load::{Loaded, WrongConfig};
use crate::memory;
use crate::reload::Reloaded;

/// Reads the configuration again, from where it came.
pub(crate) type Source = Box<dyn Fn() -> Result<Loaded<ClientConfig>, WrongConfig> + Send + Sync>;

impl Client {
    /// Reads the configuration again and applies it.
    pub(super) async fn reload_source(&self) -> anyhow::Result<Reloaded> {
        let source = self.source.as_ref().context("it was started without a configuration")?;
        let Loaded { config, warnings } = tokio::task::block_in_place(source)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.apply(config).await
    }

    /// Puts another configuration in force. After an error nothing has changed.
    async fn apply(&self, new: ClientConfig) -> anyhow::Result<Reloaded> {
        let (shared, handles) = (&self.shared, self.workers.handles());
        let running = shared.config.load_full();
        let differs = running.differs(&new);
        let new = new.reloaded(&running);
        // First what can fail: addresses, then the links.
        let session = Arc::clone(&shared.links.load().session);
        let forwards = shared.forwards.bind(&new.forwards, self.count, &session).await?;
        let links = if differs.iter().any(|changed| changed.change == Change::Reconnect) {
            Some(self.other_links(&new).await?)
        } else {
            None
        };
        shared.config.store(Arc::new(new));
        if let Some(links) = links {
            self.replace_links(links).await;
        }
        let session = Arc::clone(&shared.links.load().session);
        shared.forwards.follow(forwards, handles, &session).await?;
        if differs.iter().any(|changed| changed.key == "services") {
            shared.published.forget_others(&shared.config.load().services);
            register::anew(handles, shared).await;
        }
        Ok(Reloaded::new(Vec::new(), &differs))
    }

    /// Makes links anew, so that they read their certificates again.
    pub(super) async fn renew_certificates(&self) -> anyhow::Result<()> {
        let links = self.other_links(&self.shared.config.load_full()).await?;
        self.replace_links(links).await;
        let session = Arc::clone(&self.shared.links.load().session);
        self.shared.forwards.lead_to(&session).await;
        Ok(())
    }

    /// Links of this configuration, live unless those that there are do not live, either.
    async fn other_links(&self, config: &ClientConfig) -> anyhow::Result<Arc<Links>> {
        let (handles, link) = (self.workers.handles(), memory::link_config(&config.common));
        let plan = tokio::task::block_in_place(|| Plan::new(config, link, handles.len()))?;
        let links = Links::of(&plan, handles.len());
        if self.shared.links.load().session.live() == 0 {
            links.start(handles, &self.shared, plan).await?;
            return Ok(links);
        }
        links.on_trial();
        links.start(handles, &self.shared, plan).await?;
        if let Err(why) = links.come_alive().await {
            links.give_up();
            bail!("there is no connection with what has changed: {why}");
        }
        Ok(links)
    }

    async fn replace_links(&self, links: Arc<Links>) {
        let before = self.shared.links.swap(links);
        before.retire(self.workers.handles()).await;
    }

    /// What is read beside the configuration.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in &self.shared.config.load().servers {
            if let Trust::Ca(ca) = &path.trust {
                files.push(ca.clone());
            }
            files.extend(path.identity.iter().flat_map(|pair| [&pair.cert, &pair.key]).cloned());
        }
        files
    }
}
