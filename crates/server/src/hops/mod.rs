//! Visitors of clients that have their links with other nodes of the cluster. A visitor's stream
//! takes one hop: from the node that the visitor reached, over a link between the two nodes, to a
//! node that has a link of the client.
//!
//! ```text
//!   visitor ──> entrance ──> node link ═══════════> serve ──bridge──> link ──> client ──> target
//!               far/          (crate `nodes`)       the node that has the client
//!               the node that the visitor reached
//! ```
//!
//! | file | content |
//! |---|---|
//! | `serve.rs` | the node that has the client: who may be served, and over which link |
//! | `visits.rs` | the same for clients that visit private services |
//! | `answers.rs` | questions and messages of other nodes |
//! | `judged.rs` | verdicts that hold for further streams of the same node |
//! | `far/` | the node that the visitor reached |
//! | `start.rs` | start and end of all parts of a node of a cluster |

mod answers;
mod far;
mod judged;
mod serve;
mod start;
#[cfg(test)]
mod tests;
mod visits;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use cluster::names::{Generation, NodeEpoch, NodeId};
use cluster::node::{Located, OpenVerdict, PeerOpen, Subject};

use crate::cluster::ServerNode;
use crate::directory;
pub(crate) use start::{NewParts, NodeParts};

/// An answer of the cluster.
type PlaceAnswer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the node of the cluster knows about clients and claims.
pub(crate) trait ClusterPlaces: fmt::Debug + Send + Sync {
    /// Where a client or the holder of a resource is.
    fn find(&self, subject: Subject) -> PlaceAnswer<'_, Located>;

    /// What was found has refused a stream, so it is not found again.
    fn refused(&self, subject: Subject, generation: Generation);

    /// Whether this node serves a stream of another node.
    fn judge(&self, open: PeerOpen) -> PlaceAnswer<'_, OpenVerdict>;

    /// Whether a client of this node holds a resource by a claim with this fence.
    fn has_claim(&self, client: &str, fence: u64) -> bool;

    /// The resource that a client of this node holds by the claim with this fence, and the number
    /// that the server knows.
    fn claimed(&self, client: &str, fence: u64) -> Option<(directory::Key, directory::Generation)>;

    /// The epoch of this node; `None` before the node has joined, and between two epochs.
    fn epoch(&self) -> Option<NodeEpoch>;

    /// The living nodes but this.
    fn others(&self) -> Vec<NodeId>;

    /// Whether the client had a claim with this fence at a former process of this node, and is
    /// about to have its resource here.
    fn awaits(&self, client: &str, fence: u64) -> bool;

    /// Whether this node goes on in the next process, to which clients and other nodes move.
    fn has_handed_over(&self) -> bool;

    /// As [`cluster_node::Cluster::edition`].
    fn edition(&self) -> u64;
}

impl ClusterPlaces for ServerNode {
    fn find(&self, subject: Subject) -> PlaceAnswer<'_, Located> {
        Box::pin(self.cluster().find(subject))
    }

    fn refused(&self, subject: Subject, generation: Generation) {
        self.cluster().refused(subject, generation, None);
    }

    fn judge(&self, open: PeerOpen) -> PlaceAnswer<'_, OpenVerdict> {
        if self.has_handed_over() {
            return Box::pin(std::future::ready(self.last_verdict(&open)));
        }
        Box::pin(self.cluster().judge(open))
    }

    fn awaits(&self, client: &str, fence: u64) -> bool {
        self.awaits(client, fence)
    }

    fn has_handed_over(&self) -> bool {
        self.has_handed_over()
    }

    fn has_claim(&self, client: &str, fence: u64) -> bool {
        self.has_claim(client, fence)
    }

    fn claimed(&self, client: &str, fence: u64) -> Option<(directory::Key, directory::Generation)> {
        self.claimed(client, fence)
    }

    fn epoch(&self) -> Option<NodeEpoch> {
        self.cluster().membership().borrow().epoch
    }

    fn others(&self) -> Vec<NodeId> {
        let nodes = self.cluster().nodes().borrow().clone();
        nodes.keys().filter(|node| *node != self.id()).cloned().collect()
    }

    fn edition(&self) -> u64 {
        self.cluster().edition()
    }
}
