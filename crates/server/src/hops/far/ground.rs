//! What the entrances for services of other nodes need of the node around them.

use std::fmt;
use std::sync::Arc;

use cluster::names::NodeId;
use node::session::Session;

use crate::hops::ClusterPlaces;
use crate::registry::Registry;

/// The links to other nodes, as sessions.
pub(in crate::hops) trait NodeSessions: fmt::Debug + Send + Sync {
    /// The session of the links to a node. `None`: the node is not known.
    fn session(&self, node: &NodeId) -> Option<Arc<Session>>;
}

impl NodeSessions for nodes::NodeLinks {
    fn session(&self, node: &NodeId) -> Option<Arc<Session>> {
        self.session(node)
    }
}

/// The node around the entrances.
#[derive(Debug)]
pub(super) struct FarGround {
    /// The name of this node.
    pub(super) node: NodeId,
    pub(super) registry: Arc<Registry>,
    pub(super) places: Arc<dyn ClusterPlaces>,
    pub(super) nodes: Arc<dyn NodeSessions>,
}
