//! What all links of this node share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::names::NodeId;
use config::Common;
use families::nodes::NodeTransports;
use node::memory;
use node::session::Handle;
use proto::greeting::Name;
use proto::{InstanceId, LinkConfig};

use crate::incoming::Incomings;
use crate::lock::lock;
use crate::mail::Mail;
use crate::outgoing::Remote;
use crate::serves::ServesHops;
use crate::table::NodeTable;

/// How long a link between two nodes waits for another carrier. Visitors of another node wait for
/// 10 s, and a client whose node is gone comes back at another node within seconds.
const RESUME: Duration = Duration::from_secs(10);

/// The silence after which a node asks another node for a sign of life. The messages of the cluster
/// are as frequent.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// What all links of this node share.
pub(crate) struct Shared {
    /// This node.
    pub(crate) own: NodeId,
    /// The name of this node in greetings.
    pub(crate) name: Name,
    /// The random id of this process.
    pub(crate) instance: InstanceId,
    pub(crate) transports: NodeTransports,
    pub(crate) common: Common,
    pub(crate) handles: Arc<[Handle]>,
    pub(crate) table: Arc<dyn NodeTable>,
    pub(crate) serves: Arc<dyn ServesHops>,
    pub(crate) mail: Mail,
    /// The number of the next link.
    pub(crate) serials: Arc<AtomicU64>,
    /// The links of other nodes to this node.
    pub(crate) incomings: Incomings,
    remotes: Mutex<BTreeMap<NodeId, Arc<Remote>>>,
    leaving: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.own)
    }
}

/// The part of [`Shared`] that its owner brings.
pub(crate) struct Parts {
    pub(crate) own: NodeId,
    pub(crate) name: Name,
    pub(crate) transports: NodeTransports,
    pub(crate) common: Common,
    pub(crate) handles: Arc<[Handle]>,
    pub(crate) table: Arc<dyn NodeTable>,
    pub(crate) serves: Arc<dyn ServesHops>,
    pub(crate) mail: Mail,
    pub(crate) serials: Arc<AtomicU64>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { own, name, transports, common, handles, table, serves, mail, serials } = parts;
        Arc::new(Self {
            own,
            name,
            instance: InstanceId(::link::random()),
            transports,
            common,
            handles,
            table,
            serves,
            mail,
            serials,
            incomings: Incomings::default(),
            remotes: Mutex::default(),
            leaving: AtomicBool::new(false),
        })
    }

    /// The settings of links between nodes.
    pub(crate) fn link_config(&self) -> LinkConfig {
        let config = memory::link_config(&self.common);
        LinkConfig {
            resume_timeout: config.resume_timeout.min(RESUME),
            keepalive: config.keepalive.min(KEEPALIVE),
            ..config
        }
    }

    /// Whether this node makes and takes no further links.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// This node makes and takes no further links.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Another node, if it was living within the last minute.
    pub(crate) fn remote(&self, node: &NodeId) -> Option<Arc<Remote>> {
        lock(&self.remotes).get(node).cloned()
    }

    /// All other nodes.
    pub(crate) fn remotes(&self) -> Vec<Arc<Remote>> {
        lock(&self.remotes).values().cloned().collect()
    }

    /// Adds another node.
    pub(crate) fn add(&self, remote: &Arc<Remote>) {
        lock(&self.remotes).insert(remote.node.clone(), Arc::clone(remote));
    }

    /// Forgets another node.
    pub(crate) fn forget(&self, node: &NodeId) {
        lock(&self.remotes).remove(node);
    }
}
