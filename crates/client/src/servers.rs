//! The change of the servers of a client at a reload: new links where the settings of links have
//! changed, servers that are added, and servers that are removed.
//!
//! Changed paths are tried before anything changes. An added server through which a changed path
//! leads is connected before the trial, and gets the services when the reload has succeeded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{bail, ensure};
use config::{Change, Changed, ClientConfig, ServerPaths, Service};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::links::{Links, Plan};
use super::shared::ClientShared;
use super::uplink::Uplink;
use super::{Client, detour, keeping, register};
use node::memory;
use node::session::Handle;
use peer::material;

/// Gives up new links on drop, unless they are in use. The drop also covers a reload that was
/// cancelled.
struct Untried(Option<Arc<Links>>);

impl Untried {
    fn succeeded(mut self) {
        self.0 = None;
    }

    /// Gives up the links, whose live links may have streams: these links end with their last
    /// stream.
    async fn abandon(mut self, handles: &[Handle]) {
        let Some(links) = self.0.take() else { return };
        if links.session.live() > 0 { links.retire(handles).await } else { links.give_up() }
    }
}

impl Drop for Untried {
    fn drop(&mut self) {
        if let Some(links) = &self.0 {
            links.give_up();
        }
    }
}

/// Servers that are connected before the changed paths through them are tried. On drop their links
/// end, unless the servers are in use.
struct Ahead {
    shared: Arc<ClientShared>,
    all: Vec<Arc<Uplink>>,
}

impl Ahead {
    fn has(&self, uplink: &Uplink) -> bool {
        self.all.iter().any(|one| one.id == uplink.id)
    }

    /// The servers are in the list of servers now.
    fn succeeded(mut self) {
        self.all.clear();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.uplinks.set_ahead(Vec::new());
        self.all.iter().for_each(|uplink| uplink.links().give_up());
    }
}

/// The longest wait for a link to a server that was added, before a removed server is left.
const ADDED: Duration = Duration::from_secs(10);

/// The longest wait for the answer of a server that is removed to the withdrawal of the services.
const WITHDRAWN: Duration = Duration::from_secs(2);

/// The interval of a look at servers whose answer is awaited.
const STEP: Duration = Duration::from_millis(20);

/// The distance between the registrations at a server that a reload removes and at the same server
/// under another name. The removed uplink registers nothing once more.
const ROOM: u64 = 1 << 10;

/// The servers of a new configuration. New links are given up on drop, unless they are in use.
pub(super) struct NewServers {
    /// The uplinks in the order of the configuration.
    all: Vec<Arc<Uplink>>,
    /// The new links of uplinks whose settings have changed, by the id of the uplink.
    replaced: HashMap<u64, (Arc<Links>, Untried)>,
    added: Vec<Arc<Uplink>>,
    /// Those of the added servers that have links already.
    ahead: Ahead,
    removed: Vec<Arc<Uplink>>,
}

impl Client {
    /// The uplinks at which a service is to be published.
    pub(super) fn servers_of(&self, service: &Service) -> Vec<Arc<Uplink>> {
        let all = self.shared.uplinks.all();
        let own = |uplink: &&Arc<Uplink>| uplink.is_in_charge() && uplink.has(service);
        all.iter().filter(own).cloned().collect()
    }

    /// Makes the links of the configuration `new` that differ from those of `running`. An error
    /// leaves everything unchanged. If a server has links now, one of its new links must become
    /// live first. Links that only wait for a carrier count as well, because they may resume and
    /// have streams.
    pub(super) async fn other_servers(
        &self,
        running: &ClientConfig,
        new: &ClientConfig,
        differs: &[Changed],
    ) -> anyhow::Result<NewServers> {
        let before = self.shared.uplinks.all();
        let of_links = |changed: &&Changed| changed.change == Change::Reconnect;
        let reconnects = differs.iter().filter(of_links).any(|changed| changed.key != "servers");
        let (mut all, mut added, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        let generation = before.iter().map(|uplink| uplink.generation()).max().unwrap_or_default();
        for server in &new.servers {
            if let Some(uplink) = before.iter().find(|uplink| uplink.is_of(server)) {
                let is_same = running.servers.iter().any(|other| other == server);
                if reconnects || !is_same {
                    changed.push((server, Arc::clone(uplink)));
                }
                all.push(Arc::clone(uplink));
                continue;
            }
            let links = Links::of(self.plan(new, server)?, self.workers.handles().len());
            // The number is above those of the former sets of this process at the same server.
            let events = &self.shared.events;
            let uplink = Uplink::new(server, &links, events, generation + ROOM);
            uplink.begin_charge(!new.policy.is_single());
            uplink.note_services(new);
            added.push(Arc::clone(&uplink));
            all.push(uplink);
        }
        let ahead = self.connect_ahead(&added, changed.iter().map(|(server, _)| *server)).await?;
        let mut replaced = HashMap::new();
        for (server, uplink) in changed {
            replaced.insert(uplink.id, self.other_links(new, server, &uplink).await?);
        }
        if let Err(why) = self.try_links(&replaced).await {
            for (_, untried) in replaced.into_values() {
                untried.abandon(self.workers.handles()).await;
            }
            return Err(why);
        }
        let is_gone = |uplink: &&Arc<Uplink>| all.iter().all(|other| other.id != uplink.id);
        let removed = before.iter().filter(is_gone).cloned().collect();
        Ok(NewServers { all, replaced, added, ahead, removed })
    }

    /// Connects the added servers through which paths of `changed` lead, and waits for the outcome.
    /// A server that is away keeps paths of other servers from nothing, because a server may have
    /// another path.
    async fn connect_ahead(
        &self,
        added: &[Arc<Uplink>],
        changed: impl Iterator<Item = &ServerPaths>,
    ) -> anyhow::Result<Ahead> {
        let paths = changed.flat_map(|server| &server.paths);
        let ways: Vec<_> = paths.filter_map(|path| path.via.as_deref()).collect();
        let is_way = |uplink: &&Arc<Uplink>| ways.contains(&uplink.label().as_str());
        let all: Vec<_> = added.iter().filter(is_way).cloned().collect();
        let ahead = Ahead { shared: Arc::clone(&self.shared), all: all.clone() };
        self.shared.uplinks.set_ahead(all);
        for uplink in &ahead.all {
            // The services follow when the reload has succeeded.
            uplink.begin_charge(false);
            let links = uplink.links();
            links.on_trial();
            let wanted = (uplink, uplink.wanted_links());
            keeping::start(&links, self.workers.handles(), &self.shared, wanted).await?;
        }
        for uplink in &ahead.all {
            let links = uplink.links();
            if let Err(why) = links.come_alive().await {
                let server = uplink.label();
                tracing::warn!(
                    server = &**server,
                    "cannot connect to the added server {server}: {why}"
                );
            }
            links.end_trial();
        }
        Ok(ahead)
    }

    /// Waits until the new links of each server are live. Of several servers a server that is away
    /// keeps the others from nothing: its links are tried again and again.
    async fn try_links(
        &self,
        replaced: &HashMap<u64, (Arc<Links>, Untried)>,
    ) -> anyhow::Result<()> {
        for (links, _) in replaced.values().filter(|(links, _)| links.are_on_trial()) {
            if let Err(why) = links.come_alive().await {
                bail!("there is no connection with what has changed: {why}");
            }
        }
        // This code and the drain each set their own value first and then check the other's value.
        ensure!(!self.shared.leaving.load(Ordering::SeqCst), "it is stopping");
        Ok(())
    }

    /// Uses the servers of a new configuration, which is in force. Streams over the links of a
    /// server that was removed continue until they end.
    pub(super) async fn use_servers(&self, new: NewServers) {
        let (shared, handles) = (&self.shared, self.workers.handles());
        let NewServers { all, replaced, added, ahead, removed } = new;
        let is_changed = !replaced.is_empty() || !removed.is_empty();
        let config = shared.config.load_full();
        for uplink in &all {
            if let Some(server) = config.servers.iter().find(|server| uplink.is_of(server)) {
                uplink.follow(server);
            }
        }
        for (id, (links, untried)) in replaced {
            let Some(uplink) = all.iter().find(|uplink| uplink.id == id) else { continue };
            untried.succeeded();
            uplink.replace(links, handles, &shared.leaving).await;
            // The server may have taken over since the links were begun.
            self.keep_links(uplink).await;
        }
        removed.iter().for_each(|uplink| uplink.remove());
        // The order, or the policy, may have changed.
        shared.uplinks.set(all.clone());
        for uplink in &added {
            if ahead.has(uplink) && !config.policy.is_single() {
                uplink.begin_charge(true);
                register::anew(handles, shared, uplink).await;
            }
            self.keep_links(uplink).await;
        }
        ahead.succeeded();
        if shared.leaving.load(Ordering::SeqCst) {
            // A drain that has read the former list knows nothing of the added servers.
            added.iter().for_each(|uplink| uplink.leave());
        }
        if is_changed {
            self.renew_detours().await;
        }
        if removed.is_empty() {
            return;
        }
        // A removed server serves until the others have its services.
        let _ = timeout(ADDED, have_services(&all, &added)).await;
        for uplink in &removed {
            let server = uplink.session().name.clone();
            // A node has one registration of this process. Where links of the configured server
            // have come to the home that goes, the services stay.
            if !shared.homes.is_reached(&uplink.label()) {
                uplink.set_charge(false);
                uplink.published.forget_others(&[], &server);
                let generation = register::anew(handles, shared, uplink).await;
                if uplink.session().live() > 0 {
                    let _ = timeout(WITHDRAWN, uplink.published.answered(generation)).await;
                }
            }
            tracing::info!(server, "server {server} is removed; its streams continue");
            uplink.retire(handles).await;
            uplink.links().give_up_waiting();
        }
    }

    /// Begins to bring the links that lead through former links to another path.
    async fn renew_detours(&self) {
        let (handles, shared) = (Arc::clone(self.workers.handles()), Arc::clone(&self.shared));
        let renew = move |_: &_| drop(spawn_local(detour::renew(handles, shared)));
        if let Err(error) = self.workers.handles()[0].run(renew).await {
            tracing::debug!(%error, "the process is stopping");
        }
    }

    /// Makes the links that an uplink is to have and does not have yet.
    async fn keep_links(&self, uplink: &Arc<Uplink>) {
        let (links, wanted) = (uplink.links(), uplink.wanted_links());
        let handles = self.workers.handles();
        if let Err(error) = keeping::start(&links, handles, &self.shared, (uplink, wanted)).await {
            tracing::debug!(%error, "the process is stopping");
        }
    }

    /// Makes new links, which read their certificates again. The new certificates of visits are
    /// used for their new links, and visits whose certificate is no longer valid end.
    pub(super) async fn renew_certificates(&self) -> anyhow::Result<()> {
        let shared = &self.shared;
        let config = shared.config.load_full();
        let read = Arc::clone(&config);
        let materials = tokio::task::spawn_blocking(move || material::read(&read)).await??;
        shared.materials.replace(materials);
        shared.host.review(&shared.home(), self.workers.handles()).await;
        let all = shared.uplinks.all();
        let mut failed = None;
        for server in &config.servers {
            let Some(uplink) = all.iter().find(|uplink| uplink.is_of(server)) else { continue };
            // A server that is away does not keep the other servers from their new links.
            let (links, untried) = self.other_links(&config, server, uplink).await?;
            let outcome = if links.are_on_trial() { links.come_alive().await } else { Ok(()) };
            match outcome {
                Ok(()) if !shared.leaving.load(Ordering::SeqCst) => {
                    untried.succeeded();
                    uplink.replace(links, self.workers.handles(), &shared.leaving).await;
                    self.keep_links(uplink).await;
                }
                Ok(()) => untried.abandon(self.workers.handles()).await,
                Err(why) => {
                    untried.abandon(self.workers.handles()).await;
                    failed = Some(anyhow::anyhow!(
                        "there is no connection with what has changed: {why}"
                    ));
                }
            }
        }
        self.renew_detours().await;
        shared.forwards.lead(&shared.uplinks).await;
        failed.map_or(Ok(()), Err)
    }

    fn plan(&self, config: &ClientConfig, server: &ServerPaths) -> anyhow::Result<Plan> {
        let link = memory::link_config(&config.common);
        Plan::new(config, server, link, self.workers.handles().len())
    }

    /// Begins to make links to a server with this configuration. The links are on trial if the
    /// server has links now, which may resume and have streams. Of several servers, only a server
    /// with a live link is tried.
    async fn other_links(
        &self,
        config: &ClientConfig,
        server: &ServerPaths,
        uplink: &Arc<Uplink>,
    ) -> anyhow::Result<(Arc<Links>, Untried)> {
        let handles = self.workers.handles();
        let links = Links::of(self.plan(config, server)?, handles.len());
        let untried = Untried(Some(Arc::clone(&links)));
        let session = uplink.session();
        let is_alone = config.servers.len() == 1;
        if if is_alone { session.has_links() } else { session.live() > 0 } {
            links.on_trial();
        }
        keeping::start(&links, handles, &self.shared, (uplink, uplink.wanted_links())).await?;
        Ok((links, untried))
    }
}

/// Waits until the servers that were added, or else one of all, have answered a registration of the
/// services.
async fn have_services(all: &[Arc<Uplink>], added: &[Arc<Uplink>]) {
    while !do_serve(all, added) {
        sleep(STEP).await;
    }
}

fn do_serve(all: &[Arc<Uplink>], added: &[Arc<Uplink>]) -> bool {
    let serves = |uplink: &Arc<Uplink>| {
        uplink.session().live() > 0 && uplink.published.has_answered(uplink.generation())
    };
    let charged: Vec<_> = added.iter().filter(|uplink| uplink.is_in_charge()).collect();
    if charged.is_empty() {
        return all.iter().any(|uplink| uplink.is_in_charge() && serves(uplink));
    }
    charged.into_iter().all(serves)
}
