//! What everybody can see of the cluster: snapshots of which a receiver gets the latest. A receiver
//! that is slow holds up nothing and misses states in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::names::{Generation, Key, NodeEpoch, NodeId};
use cluster::node::Node;
use cluster::record::{Described, Holding};
use tokio::sync::watch;
use tokio::time::Instant;

/// The least time between two snapshots of the ports. 10,000 ports are copied in 2 ms.
const PORTS_AGAIN: Duration = Duration::from_millis(50);

/// A living node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingNode {
    /// Its epoch.
    pub epoch: NodeEpoch,
    /// Its record; `None` if this program cannot read it.
    pub record: Option<Described>,
}

/// All living nodes.
pub type LivingNodes = Arc<BTreeMap<NodeId, LivingNode>>;

/// All held ports, each with the number of its record and with its holder.
pub type HeldPorts = Arc<BTreeMap<Key, (Generation, Holding)>>;

/// Whether the node belongs to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The epoch of the node; `None` before the node has joined, and between two epochs.
    pub epoch: Option<NodeEpoch>,
    /// The lease of the node is certainly alive.
    pub is_leased: bool,
}

/// The receivers.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    pub(crate) nodes: watch::Receiver<LivingNodes>,
    pub(crate) ports: watch::Receiver<HeldPorts>,
    pub(crate) readiness: watch::Receiver<bool>,
    pub(crate) membership: watch::Receiver<Membership>,
    pub(crate) edition: Arc<AtomicU64>,
}

/// The senders, and what has changed since the last snapshot.
#[derive(Debug)]
pub(crate) struct ViewSenders {
    nodes: watch::Sender<LivingNodes>,
    ports: watch::Sender<HeldPorts>,
    readiness: watch::Sender<bool>,
    membership: watch::Sender<Membership>,
    edition: Arc<AtomicU64>,
    epoch: Option<NodeEpoch>,
    /// The table of nodes may have changed.
    pub(crate) nodes_changed: bool,
    /// A port has changed.
    pub(crate) ports_changed: bool,
    ports_at: Instant,
}

impl ViewSenders {
    /// Views of a node that has not joined.
    pub(crate) fn new() -> (Self, Views) {
        let (nodes, seen_nodes) = watch::channel(LivingNodes::default());
        let (ports, seen_ports) = watch::channel(HeldPorts::default());
        let (readiness, seen_readiness) = watch::channel(false);
        let (membership, seen_membership) = watch::channel(Membership::default());
        let edition = Arc::<AtomicU64>::default();
        let senders = Self {
            nodes,
            ports,
            readiness,
            membership,
            edition: Arc::clone(&edition),
            epoch: None,
            nodes_changed: false,
            ports_changed: false,
            ports_at: Instant::now(),
        };
        let views = Views {
            nodes: seen_nodes,
            ports: seen_ports,
            readiness: seen_readiness,
            membership: seen_membership,
            edition,
        };
        (senders, views)
    }

    /// The node has this epoch from now on.
    pub(crate) const fn has_epoch(&mut self, epoch: Option<NodeEpoch>) {
        self.epoch = epoch;
    }

    /// Whether visitors and clients should be sent to this node.
    pub(crate) fn is_ready(&self, is_ready: bool) {
        self.readiness.send_replace(is_ready);
    }

    /// The node is about to hear something by which a verdict may become void.
    pub(crate) fn voids_verdicts(&self) {
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// When the ports are to be shown at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ports_changed.then_some(self.ports_at)
    }

    /// Shows what has changed.
    pub(crate) fn publish(&mut self, node: &Node) {
        let now = Membership { epoch: self.epoch, is_leased: node.is_member() };
        self.membership.send_if_modified(|shown| {
            let is_new = *shown != now;
            *shown = now;
            is_new
        });
        if std::mem::take(&mut self.nodes_changed) && !self.shows_nodes_of(node) {
            let seen = node.nodes().iter().map(|(id, seen)| {
                let living = LivingNode { epoch: seen.epoch, record: seen.record.clone() };
                (id.clone(), living)
            });
            self.nodes.send_replace(Arc::new(seen.collect()));
        }
        if self.ports_changed && self.ports_at <= Instant::now() {
            self.ports_changed = false;
            self.ports_at = Instant::now() + PORTS_AGAIN;
            let held = node.ports().iter().map(|(key, (revision, holder))| {
                (key.clone(), (Generation::from(*revision), holder.clone()))
            });
            self.ports.send_replace(Arc::new(held.collect()));
        }
    }

    /// Whether the nodes are those that are shown. Each node writes its record every 3 s, mostly
    /// the same.
    fn shows_nodes_of(&self, node: &Node) -> bool {
        let shown = self.nodes.borrow();
        shown.len() == node.nodes().len()
            && shown.iter().zip(node.nodes()).all(|((id, shown), (other, seen))| {
                id == other && shown.epoch == seen.epoch && shown.record == seen.record
            })
    }

    /// The node has ended.
    pub(crate) fn end(&self) {
        self.readiness.send_replace(false);
        self.membership.send_replace(Membership::default());
    }
}
