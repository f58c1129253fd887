//! What the links need of the cluster, and tell it.

use std::fmt;

use cluster::names::NodeId;
use cluster::node::PeerMessage;
use cluster_node::{Cluster, LivingNodes};
use tokio::sync::watch;

/// The table of nodes, and the node that the links belong to.
pub trait NodeTable: fmt::Debug + Send + Sync {
    /// The living nodes, with this node.
    fn nodes(&self) -> watch::Receiver<LivingNodes>;

    /// This node can send messages to another node.
    fn link_up(&self, node: NodeId);

    /// This node cannot send messages to another node any more.
    fn link_down(&self, node: NodeId);

    /// Another node has sent a message.
    fn message(&self, from: NodeId, message: PeerMessage);
}

impl NodeTable for Cluster {
    fn nodes(&self) -> watch::Receiver<LivingNodes> {
        Self::nodes(self)
    }

    fn link_up(&self, node: NodeId) {
        Self::link_up(self, node);
    }

    fn link_down(&self, node: NodeId) {
        Self::link_down(self, node);
    }

    fn message(&self, from: NodeId, message: PeerMessage) {
        Self::message(self, from, message);
    }
}
