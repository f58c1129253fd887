//! The way to other nodes, as far as a node has to know it.

use cluster::names::NodeId;
use cluster::node::PeerMessage;

/// Carries messages to other nodes, over links that somebody else holds. The holder tells the node
/// of the links and of the messages that arrive ([`Cluster::link_up`](crate::Cluster::link_up),
/// [`Cluster::link_down`](crate::Cluster::link_down),
/// [`Cluster::message`](crate::Cluster::message)).
pub trait PeerMail: Send + 'static {
    /// Sends a message, without waiting. A message without room or without a link is dropped: the
    /// rules of the cluster take each message for one that may get lost.
    fn send(&mut self, to: &NodeId, message: PeerMessage);
}
