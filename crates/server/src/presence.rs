//! Which processes of clients are at this node, as the cluster is told of them, and which processes
//! have yielded to a process at another node.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::names::{self, ClientName, Generation, Instance, NodeId};
use cluster::node::{OpenVerdict, PeerOpen};
use cluster_node::Cluster;
use proto::InstanceId;
use proto::control::ControlMessage;

use crate::cluster::offer;

/// The time for which a process that has yielded is refused. It asks again after that, and yields
/// again for as long as the other process is there. Clients ask for refused services every 15 s as
/// well.
const YIELDED_FOR: Duration = Duration::from_secs(15);

/// The most clients of which a process has yielded that are kept.
const YIELDED: usize = 16_384;

/// A process of a client with links to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessHere {
    /// The id of its session.
    pub(crate) session: u64,
    /// Its number in the cluster.
    pub(crate) instance: Instance,
    /// The number of its links.
    pub(crate) links: u32,
    /// It decides about the services of its client.
    pub(crate) is_in_force: bool,
}

/// The number of a process in the cluster. Processes that run beside each other count as one,
/// because they do not fight: their number is made from the name of the client.
pub(crate) fn instance_of(client: &str, instance: InstanceId, is_beside: bool) -> Instance {
    let InstanceId([a, b, c, d, e, f, g, h, ..]) = instance;
    if !is_beside {
        return Instance(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    }
    Instance(names::hashed(b"beside ".iter().chain(client.as_bytes()).copied()))
}

/// The processes of the clients of this server.
#[derive(Debug)]
pub(crate) struct Presence {
    /// The name of this node.
    node: NodeId,
    cluster: Cluster,
    clients: Mutex<HashMap<String, Present>>,
    /// The processes that have yielded, by client, and when.
    yielded: Mutex<HashMap<String, (Instance, Instant)>>,
    /// The clients without rights in the whole cluster.
    revoked: Mutex<HashSet<String>>,
    /// The node asks its clients to go.
    draining: AtomicBool,
}

#[derive(Debug, Default)]
struct Present {
    /// What the cluster was told last.
    told: Option<(Instance, u32)>,
    /// The sessions, each with its number in the cluster.
    sessions: Vec<(u64, Instance)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presence {
    pub(super) fn new(node: NodeId, cluster: Cluster) -> Self {
        let (clients, yielded, revoked, draining) = Default::default();
        Self { node, cluster, clients, yielded, revoked, draining }
    }

    /// What a client is told of the nodes. `None`: they are not known yet.
    pub(crate) fn offer(&self, client: &str) -> Option<ControlMessage> {
        offer::message(&self.node, &self.cluster, client)
    }

    /// The node of the cluster.
    pub(super) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The links of a client have changed: these are all its processes, and the server has this
    /// number of links of all clients. The caller holds the lock of the sessions, so that the
    /// cluster hears of changes in their order.
    pub(crate) fn changed(&self, client: &str, processes: &[ProcessHere], all_links: usize) {
        let Ok(name) = ClientName::new(client) else { return };
        let mut clients = lock(&self.clients);
        let present = clients.entry(client.to_owned()).or_default();
        present.sessions = processes.iter().map(|it| (it.session, it.instance)).collect();
        // Of processes in force there is one number. The process that has logged in last is in
        // charge.
        let in_force = processes.iter().filter(|it| it.is_in_force);
        let latest = in_force.clone().max_by_key(|it| it.session).map(|it| it.instance);
        let now = latest.map(|instance| {
            let own = in_force.filter(|it| it.instance == instance);
            (instance, own.map(|it| it.links).fold(0, u32::saturating_add))
        });
        let told = std::mem::replace(&mut present.told, now);
        if processes.is_empty() {
            clients.remove(client);
        }
        drop(clients);
        if let Some((instance, links)) = now
            && told != now
        {
            self.cluster.logged_in(name.clone(), instance, links);
        }
        if let Some((former, _)) = told
            && now.is_none_or(|(instance, _)| instance != former)
        {
            self.cluster.logged_out(name, former);
        }
        self.describe(all_links);
    }

    fn describe(&self, links: usize) {
        let draining = self.draining.load(Ordering::Relaxed);
        self.cluster.describe(draining, u32::try_from(links).unwrap_or(u32::MAX));
    }

    /// From now on clients should go to other nodes.
    pub(crate) fn drain(&self, links: usize) {
        self.draining.store(true, Ordering::Relaxed);
        self.describe(links);
    }

    /// The number of the process of a session.
    pub(super) fn instance(&self, client: &str, session: u64) -> Option<Instance> {
        let clients = lock(&self.clients);
        let mut sessions = clients.get(client)?.sessions.iter();
        sessions.find(|(id, _)| *id == session).map(|(_, instance)| *instance)
    }

    /// The session of the process with this number.
    pub(super) fn session(&self, client: &str, instance: Instance) -> Option<u64> {
        let clients = lock(&self.clients);
        let sessions = clients.get(client)?.sessions.iter();
        sessions.filter(|(_, own)| *own == instance).map(|(id, _)| *id).max()
    }

    /// A process at another node is in charge: this process is refused for a while.
    pub(super) fn note_yielded(&self, client: &str, instance: Instance, now: Instant) {
        let mut yielded = lock(&self.yielded);
        if yielded.len() >= YIELDED {
            yielded.retain(|_, (_, at)| now.saturating_duration_since(*at) < YIELDED_FOR);
        }
        if yielded.len() < YIELDED {
            yielded.insert(client.to_owned(), (instance, now));
        }
    }

    /// A client has lost its rights, or has them again.
    pub(super) fn note_revoked(&self, client: &str, is_revoked: bool) {
        let mut revoked = lock(&self.revoked);
        if is_revoked {
            revoked.insert(client.to_owned());
        } else {
            revoked.remove(client);
        }
    }

    /// Whether the client has no rights in the cluster.
    pub(crate) fn is_revoked(&self, client: &str) -> bool {
        lock(&self.revoked).contains(client)
    }

    /// Whether a later process of the client has replaced this process, by the record of the client
    /// as far as this node knows it.
    pub(crate) async fn was_replaced(&self, client: &str, instance: Instance) -> bool {
        let Ok(client) = ClientName::new(client) else { return false };
        // Each record has a higher number, so the verdict is the record.
        let open = PeerOpen { client, instance, generation: Generation(0) };
        match self.cluster.judge(open).await {
            OpenVerdict::Moved(_, at) => at.former.contains(&instance),
            OpenVerdict::Serve | OpenVerdict::Ask | OpenVerdict::Gone => false,
        }
    }

    /// Whether a process has to leave the services of its client to a process at another node.
    pub(crate) fn has_yielded(&self, client: &str, instance: Instance, now: Instant) -> bool {
        let yielded = lock(&self.yielded);
        yielded.get(client).is_some_and(|(other, at)| {
            *other == instance && now.saturating_duration_since(*at) < YIELDED_FOR
        })
    }
}
