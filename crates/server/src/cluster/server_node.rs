//! The node of this server: its start, its events and its end.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use cluster::heirloom::Heirloom;
use cluster::names::{self, ClientName, Instance, NodeEpoch, NodeId};
use cluster::node::{GATHER, Located, NodeEvent, NodeSettings, OpenVerdict, PeerOpen, Subject};
use cluster::record::{Described, PeerAddress, VERSIONS};
use cluster_node::{Cluster, Engine, PeerMail, ServerEvent, ServerEvents, join_after};
use doors::certificates::secret_of;
use net::handover;
use node::session::Handle;
use ops::status;
use proto::greeting::Name;
use termination::CommonSecret;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::certificates::ClusterStore;
use super::engine::MemberWays;
use super::left::LeftBehind;
use super::shared::{SharedDirectory, resource};
use super::table::{ClaimNews, HeldClaim, LostClaim};
use super::{engine, offer};
use crate::about::Marks;
use crate::directory::{self, Generation};
use crate::presence::Presence;
use crate::registry::Registry;

/// The most answers of look-ups that the node keeps: 25 MB with records of 250 bytes.
const CACHE: usize = 100_000;

/// The time in which a process learns that it has to yield: a node asks for that with its renewal,
/// every 3 s.
const YIELDS: Duration = Duration::from_secs(4);

/// The time until the lease that a former process has left is renewed, before visitors are accepted
/// nevertheless. It takes one round trip to the engine.
const RENEWED: Duration = Duration::from_millis(250);

/// The time until a node has joined, or knows why it cannot, before its start goes on nevertheless.
/// It takes three round trips to the engine.
const JOINED: Duration = Duration::from_secs(1);

/// The least time between two messages to the same clients about the nodes.
const OFFERS: Duration = Duration::from_secs(1);

/// The most nodes that a status lists.
const SHOWN: usize = 200;

/// The node of a server that belongs to a cluster.
#[derive(Debug)]
pub(crate) struct ServerNode {
    name: String,
    id: NodeId,
    /// The number of this process.
    process: u64,
    cluster: Cluster,
    presence: Arc<Presence>,
    directory: Arc<SharedDirectory>,
    seen: Mutex<SeenCluster>,
    left: LeftBehind,
    /// The next process goes on with the epoch of the node.
    is_handed_over: AtomicBool,
    /// The secret of the cluster.
    secret: Option<CommonSecret>,
    /// The marks of the secrets in the record of the node.
    secret_marks: Vec<u64>,
    /// Why the node cannot join, by the versions of another node.
    refusal: watch::Sender<Option<String>>,
}

/// What the status says of the cluster, beside what the node shows.
#[derive(Debug, Default)]
struct SeenCluster {
    /// Since when each node is known, in its epoch.
    nodes: BTreeMap<NodeId, (NodeEpoch, Instant)>,
    /// The last report of the node, and when it came.
    report: Option<(String, Instant)>,
}

/// A node that does not run yet.
pub(crate) struct NewNode {
    pub(crate) node: Arc<ServerNode>,
    task: Pin<Box<dyn Future<Output = ()> + Send>>,
    events: ServerEvents,
    /// Whether clients go to emptier nodes.
    pub(crate) rebalances: bool,
    /// The ways to etcd; `None`: the node has another engine.
    pub(crate) members: Option<MemberWays>,
}

/// The name of a node by its configuration.
///
/// # Errors
/// The host's name is no name of a node.
pub(crate) fn node_id(config: &config::Cluster) -> anyhow::Result<NodeId> {
    let node = match &config.node {
        Some(node) => node.clone(),
        None => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            ensure!(
                Name::new(&host).is_ok(),
                "the host's name `{host}` is no name of a node (hint: give the node a name by \
                 `cluster: {{ node: NAME }}`)"
            );
            host
        }
    };
    NodeId::new(&node).context("cluster.node")
}

/// The settings of a node by its configuration. Other nodes reach it at the addresses `peers`.
fn settings(config: &config::Cluster, peers: Vec<PeerAddress>) -> anyhow::Result<NodeSettings> {
    let record = Described {
        process: u64::from_be_bytes(link::random()),
        versions: VERSIONS,
        peers,
        clients: config.clients.iter().map(ToString::to_string).collect(),
        zone: config.zone.clone().unwrap_or_default(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        draining: false,
        links: 0,
        secrets: secret_marks(
            &config.name,
            config.secrets.iter().map(|token| token.secret.reveal()),
        ),
    };
    Ok(NodeSettings {
        cluster: config.name.clone(),
        node: node_id(config)?,
        record,
        cache: CACHE,
        seed: u64::from_be_bytes(link::random()),
        gather: GATHER,
    })
}

/// Marks of the secrets, the first one first. They are in etcd, and tell nodes with the same secret
/// from others.
pub(super) fn secret_marks<'a>(
    cluster: &str,
    secrets: impl IntoIterator<Item = &'a str>,
) -> Vec<u64> {
    let mark = |secret| CommonSecret::new([secret])?.mark("marks of secrets", cluster.as_bytes());
    secrets.into_iter().filter_map(mark).collect()
}

impl ServerNode {
    /// The node of a server with this configuration, over etcd. Other nodes reach it at the
    /// addresses `peers`, `mail` carries messages to them, and `state` is the state directory.
    ///
    /// # Errors
    /// A certificate cannot be read, or the host's name is no name of a node.
    pub(crate) fn of_config(
        config: &config::Cluster,
        workers: &Arc<[Handle]>,
        (peers, mail): (Vec<PeerAddress>, impl PeerMail),
        state: Option<&Path>,
    ) -> anyhow::Result<NewNode> {
        let (engine, members) = engine::etcd(&config.directory, workers)?;
        let marks = Marks::new(secret_of(config));
        let node = Self::over(settings(config, peers)?, engine, mail, (state, marks));
        Ok(NewNode { rebalances: config.rebalance, members: Some(members), ..node })
    }

    /// A node over any engine. `kept`: the state directory, and the marks of terms.
    pub(crate) fn over(
        settings: NodeSettings,
        engine: impl Engine,
        mail: impl PeerMail,
        kept: (Option<&Path>, Marks),
    ) -> NewNode {
        let (name, id) = (settings.cluster.clone(), settings.node.clone());
        let process = settings.record.process;
        let (secret, secret_marks) = (kept.1.common().cloned(), settings.record.secrets.clone());
        let (left, begun) = LeftBehind::new();
        let begun = async { begun.await.unwrap_or_default() };
        let (cluster, events, task) = join_after(settings, engine, mail, begun);
        let presence = Arc::new(Presence::new(id.clone(), cluster.clone()));
        let shared = SharedDirectory::new(id.clone(), cluster.clone(), Arc::clone(&presence), kept);
        let (directory, seen) = (Arc::new(shared), Mutex::default());
        let is_handed_over = AtomicBool::new(false);
        let node = Arc::new(Self {
            name,
            id,
            process,
            cluster,
            presence,
            directory,
            seen,
            left,
            is_handed_over,
            secret,
            secret_marks,
            refusal: watch::Sender::new(None),
        });
        if handover::is_serving() {
            node.left.begin(None);
        }
        NewNode { node, task: Box::pin(task), events, rebalances: false, members: None }
    }

    /// The name of the node.
    pub(crate) const fn id(&self) -> &NodeId {
        &self.id
    }

    /// The secret of the cluster.
    pub(super) const fn secret(&self) -> Option<&CommonSecret> {
        self.secret.as_ref()
    }

    /// The marks of the secrets of this node, the first one first.
    pub(super) fn secret_marks(&self) -> &[u64] {
        &self.secret_marks
    }

    /// The handle of the node.
    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The store in which the nodes share certificates. `None`: no client can have the name of this
    /// node, so the node cannot hold a duty.
    pub(crate) fn store(&self) -> Option<ClusterStore> {
        let holder = ClientName::new(self.id.as_str()).ok()?;
        Some(ClusterStore::new(self.cluster.clone(), holder, Instance(self.process)))
    }

    /// Whether a client of this node holds a resource by a claim with this fence.
    pub(crate) fn has_claim(&self, client: &str, fence: u64) -> bool {
        self.directory.has_claim(client, fence)
    }

    /// The resource that a client of this node holds by the claim with this fence, and the number
    /// that the server knows.
    pub(crate) fn claimed(&self, client: &str, fence: u64) -> Option<(directory::Key, Generation)> {
        self.directory.claimed(client, fence)
    }

    /// The processes of clients at this node.
    pub(crate) const fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }

    /// The directory of the cluster.
    pub(crate) const fn directory(&self) -> &Arc<SharedDirectory> {
        &self.directory
    }

    /// Whether clients can go to other nodes: another node lives that does not ask its clients to
    /// go.
    pub(crate) fn has_others(&self) -> bool {
        let nodes = self.cluster.nodes().borrow().clone();
        let takes_clients = |living: &cluster_node::LivingNode| {
            living.record.as_ref().is_some_and(|record| !record.draining)
        };
        nodes.iter().any(|(id, living)| *id != self.id && takes_clients(living))
    }

    /// Leaves the cluster, within 2 s.
    pub(crate) async fn leave(&self) {
        self.cluster.leave().await;
    }

    /// What the next process of this node needs to go on in the cluster. From then on this process
    /// claims nothing.
    pub(crate) async fn heirloom(&self) -> Option<String> {
        let left = self.cluster.hand_over().await?;
        self.is_handed_over.store(true, Ordering::Release);
        Some(left.encode())
    }

    /// The next process does not serve.
    pub(crate) async fn keep_heirloom(&self) {
        if self.is_handed_over.swap(false, Ordering::AcqRel) {
            self.cluster.go_on().await;
        }
    }

    /// Begins with what a former process of this node has left. Waits a moment until the node is a
    /// member.
    pub(crate) async fn inherit(&self, heirloom: Option<&str>) {
        let left = heirloom.and_then(|text| match Heirloom::decode(text) {
            Ok(left) => Some(left),
            Err(error) => {
                tracing::warn!(%error, "the node joins the cluster anew: {error}");
                None
            }
        });
        let goes_on = left.is_some();
        self.left.begin(left);
        if goes_on {
            let mut membership = self.cluster.membership();
            let leased = membership.wait_for(|membership| membership.is_leased);
            // Without an engine the node goes on with what it knows.
            let _ = timeout(RENEWED, leased).await;
        }
    }

    /// Waits a moment until the node has joined.
    ///
    /// # Errors
    /// A living node has no version of records in common with this program. Without an engine that
    /// answers the start goes on, and the node joins later, or reports the same.
    pub(crate) async fn joins(&self) -> anyhow::Result<()> {
        if !handover::is_serving() {
            // The node begins when the former process of it lets it.
            return Ok(());
        }
        let (mut membership, mut refusal) = (self.cluster.membership(), self.refusal.subscribe());
        let joined = async {
            tokio::select! {
                _ = membership.wait_for(|membership| membership.is_leased) => None,
                refused = refusal.wait_for(Option::is_some) => refused.ok()?.clone(),
            }
        };
        match timeout(JOINED, joined).await.ok().flatten() {
            Some(why) => Err(anyhow!("this node cannot join the cluster {}: {why}", self.name)),
            None => Ok(()),
        }
    }

    /// The next process serves: the node goes on there, or leaves.
    pub(crate) async fn end(&self) {
        if self.has_handed_over() {
            self.cluster.end().await;
        } else {
            self.leave().await;
        }
    }

    /// Whether the next process goes on in the cluster, so that this process claims nothing.
    pub(crate) fn has_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Acquire)
    }

    /// Whether a client that had a claim with this fence at a former process of this node has not
    /// claimed its resource here yet.
    pub(crate) fn awaits(&self, client: &str, fence: u64) -> bool {
        let left = self.left.resource(client, fence).filter(|_| !self.has_handed_over());
        left.is_some_and(|key| !self.directory.has_resource(&key))
    }

    /// The verdict about a stream of another node that arrives at this process after the node has
    /// gone on in the next: what this process had is right for the moment until the other node
    /// has links to the next process.
    pub(crate) fn last_verdict(&self, open: &PeerOpen) -> OpenVerdict {
        match self.presence.session(open.client.as_str(), open.instance) {
            Some(_) => OpenVerdict::Serve,
            None => OpenVerdict::Gone,
        }
    }

    /// Handles an event of the cluster.
    pub(super) async fn handle(&self, event: ServerEvent, registry: &Registry) {
        match event {
            ServerEvent::Lost { key, generation } => {
                self.directory.hear(&key, ClaimNews::Lost(generation));
            }
            ServerEvent::Renumbered { key, former, generation } => {
                self.directory.hear(&key, ClaimNews::Renumbered(former, generation));
            }
            ServerEvent::Kick { client, instance } => {
                self.presence.note_yielded(client.as_str(), instance, Instant::now());
                registry.yield_elsewhere(client.as_str(), instance).await;
            }
            ServerEvent::Revoked { client, is_revoked } => {
                self.presence.note_revoked(client.as_str(), is_revoked);
                if is_revoked {
                    registry.revoked(client.as_str()).await;
                }
            }
            ServerEvent::Report { event, line } => self.note_report(&event, line),
        }
    }

    /// The node has reported something of its life.
    pub(super) fn note_report(&self, event: &NodeEvent, line: String) {
        if let NodeEvent::NoCommonVersion { node, its } = event {
            self.refusal.send_replace(Some(cluster_node::no_common_version(node, its)));
        }
        self.seen().report = Some((line, Instant::now()));
    }

    /// Whether another process of this client has the resource, at another node.
    async fn is_with_other_process(&self, key: &names::Key, client: &str) -> bool {
        let found = self.cluster.find(Subject::Resource(key.clone())).await;
        matches!(
            found,
            Located::Held { record, .. }
                if record.client.as_str() == client && record.epoch_of(&self.id).is_none()
        )
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, SeenCluster> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which nodes are alive.
    fn note_nodes(&self) {
        let nodes = self.cluster.nodes().borrow().clone();
        let mut seen = self.seen();
        let known = std::mem::take(&mut seen.nodes);
        for (id, living) in nodes.iter() {
            let before = known.get(id).filter(|(epoch, _)| *epoch == living.epoch);
            if *id != self.id && before.is_none() {
                tracing::info!(node = %id, "node {id} belongs to the cluster");
            }
            let since = before.map_or_else(Instant::now, |(_, since)| *since);
            seen.nodes.insert(id.clone(), (living.epoch, since));
        }
        for id in known.keys().filter(|id| **id != self.id && !nodes.contains_key(*id)) {
            tracing::info!(node = %id, "node {id} has left the cluster, or does not answer");
        }
    }

    /// What a status shows of the cluster.
    pub(crate) async fn status(&self) -> status::Cluster {
        let heard = self.cluster.snapshot().await.and_then(|snapshot| snapshot.heard);
        let membership = *self.cluster.membership().borrow();
        let nodes = self.cluster.nodes().borrow().clone();
        let seen = self.seen();
        let shown = |(id, living): (&NodeId, &cluster_node::LivingNode)| {
            let record = living.record.as_ref();
            let since = seen.nodes.get(id).map(|(_, since)| since.elapsed().as_secs());
            status::ClusterNode {
                name: id.to_string(),
                zone: record.map(|it| it.zone.clone()).filter(|zone| !zone.is_empty()),
                epoch: living.epoch.0,
                program: record.map(|it| it.program.clone()),
                draining: record.is_some_and(|it| it.draining),
                links: record.map_or(0, |it| it.links),
                clients: record.map(|it| it.clients.clone()).unwrap_or_default(),
                seconds: since.unwrap_or_default(),
            }
        };
        status::Cluster {
            name: self.name.clone(),
            node: self.id.to_string(),
            epoch: membership.epoch.map(|epoch| epoch.0),
            member: membership.is_leased,
            ready: *self.cluster.readiness().borrow(),
            engine_heard_seconds: heard.map(|heard| heard.as_secs()),
            nodes: nodes.iter().take(SHOWN).map(shown).collect(),
            report: seen.report.as_ref().map(|(line, _)| line.clone()),
        }
    }
}

impl NewNode {
    /// The node, its future and its events, for tests that handle events themselves.
    #[cfg(test)]
    pub(super) fn into_parts(
        self,
    ) -> (Arc<ServerNode>, Pin<Box<dyn Future<Output = ()> + Send>>, ServerEvents) {
        (self.node, self.task, self.events)
    }

    /// Runs the node, and what the server has to do for it, on the runtime of the caller until
    /// `tasks` is dropped.
    pub(crate) fn run(self, registry: &Arc<Registry>, tasks: &mut JoinSet<()>) -> Arc<ServerNode> {
        let Self { node, task, events, rebalances: _, members: _ } = self;
        tasks.spawn(task);
        tasks.spawn(follow_events(Arc::clone(&node), Arc::clone(registry), events));
        tasks.spawn(follow_losses(Arc::clone(&node), Arc::clone(registry)));
        tasks.spawn(follow_views(Arc::clone(&node)));
        tasks.spawn(tell_offers(Arc::clone(&node), Arc::clone(registry)));
        node
    }
}

/// Handles the events of the cluster. An event that takes long delays later events, so the claims
/// that were lost have a task of their own.
async fn follow_events(node: Arc<ServerNode>, registry: Arc<Registry>, mut events: ServerEvents) {
    while let Some(event) = events.next().await {
        node.handle(event, &registry).await;
    }
}

/// Closes the entrances whose resources other owners have, and applies the registrations of their
/// clients again, so that the clients are told. A process that has to yield is not told that its
/// addresses are taken: its links end before its registration is applied again.
async fn follow_losses(node: Arc<ServerNode>, registry: Arc<Registry>) {
    // In the order of their times, each client once.
    let mut later: VecDeque<(tokio::time::Instant, String)> = VecDeque::new();
    loop {
        let due = later.front().map(|(at, _)| *at);
        let lost = tokio::select! {
            lost = node.directory.next_lost() => lost,
            () = until(due) => {
                if let Some((_, client)) = later.pop_front() {
                    registry.review_lost(&client).await;
                }
                continue;
            }
        };
        let LostClaim { key, claim: HeldClaim { owner, given, .. } } = lost;
        let Some(resource) = resource(&key) else { continue };
        let clients = registry.lose(&owner.client, &resource, Generation(given.0)).await;
        let yields = node.is_with_other_process(&key, &owner.client).await;
        for client in clients {
            if !yields {
                registry.review_lost(&client).await;
            } else if later.iter().all(|(_, other)| *other != client) {
                later.push_back((tokio::time::Instant::now() + YIELDS, client));
            }
        }
    }
}

/// Waits for an instant; for ever without one.
async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Tells all clients of this node when the nodes change, until the node ends.
async fn tell_offers(node: Arc<ServerNode>, registry: Arc<Registry>) {
    let mut nodes = node.cluster.nodes();
    let mut told = offer::told(&node.id, &nodes.borrow_and_update());
    while nodes.changed().await.is_ok() {
        let now = offer::told(&node.id, &nodes.borrow_and_update());
        if now.is_some() && now != told {
            told = now;
            registry.tell_homes().await;
            tokio::time::sleep(OFFERS).await;
        }
    }
}

/// Notes nodes that come and go, and the moments from which the cluster answers again.
pub(super) async fn follow_views(node: Arc<ServerNode>) {
    let (mut nodes, mut membership) = (node.cluster.nodes(), node.cluster.membership());
    let mut is_leased = false;
    loop {
        nodes.mark_unchanged();
        let was_leased =
            std::mem::replace(&mut is_leased, membership.borrow_and_update().is_leased);
        if is_leased && !was_leased {
            node.directory.answers_again();
        }
        node.note_nodes();
        tokio::select! {
            changed = nodes.changed() => if changed.is_err() { return },
            changed = membership.changed() => if changed.is_err() { return },
        }
    }
}
