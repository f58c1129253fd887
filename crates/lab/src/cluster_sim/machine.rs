//! The nodes with their drivers.

use cluster::engine::Revision;
use cluster::names::NodeId;
use cluster::node::{Node, WatchId};

use super::events::Process;

/// A machine with a node. Times are microseconds.
#[derive(Debug)]
pub(super) struct SimMachine {
    pub(super) id: NodeId,
    /// `None` while the process does not run.
    pub(super) node: Option<Node>,
    pub(super) starts: u16,
    /// The time of the event for the deadline of the node.
    pub(super) due: Option<u64>,
    /// The watch of the node and the first change that it has not reported.
    pub(super) watch: Option<(WatchId, Revision)>,
    pub(super) is_reporting: bool,
    /// The members of the engine to which requests and the watch go.
    pub(super) member: u8,
    pub(super) watch_member: u8,
    /// The epoch of the node in the store.
    pub(super) epoch: Option<Revision>,
    /// The change of the last renewal of the record whose answer has arrived.
    pub(super) beaten: Revision,
    /// The time that the last batch took.
    pub(super) took: u64,
    pub(super) is_ready: bool,
    pub(super) drains: bool,
    /// When the log-ins that have arrived are verified.
    pub(super) verified: u64,
}

impl SimMachine {
    pub(super) const fn new(id: NodeId, member: u8) -> Self {
        Self {
            id,
            node: None,
            starts: 0,
            due: None,
            watch: None,
            is_reporting: false,
            member,
            watch_member: member,
            epoch: None,
            beaten: Revision(0),
            took: 0,
            is_ready: false,
            drains: false,
            verified: 0,
        }
    }

    /// Forgets what the process knew.
    pub(super) fn clear(&mut self) {
        (self.node, self.due, self.watch) = (None, None, None);
        (self.is_reporting, self.is_ready, self.drains) = (false, false, false);
        (self.beaten, self.took, self.verified) = (Revision(0), 0, 0);
    }

    /// Whether this is the process that runs.
    pub(super) const fn is(&self, process: Process) -> bool {
        self.starts == process.starts && self.node.is_some()
    }
}

/// The name of a node.
pub(super) fn name(node: u16) -> NodeId {
    // Names of a letter and digits are always names.
    NodeId::new(&format!("n{node:03}")).unwrap_or_else(|_| unreachable!("a name"))
}

/// The number of a node.
pub(super) fn number(name: &NodeId) -> Option<u16> {
    name.as_str().strip_prefix('n')?.parse().ok()
}
