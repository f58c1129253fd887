//! How a node is doing, for a person.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::names::NodeEpoch;

/// How a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// The epoch of the node; `None` while it is no member.
    pub epoch: Option<NodeEpoch>,
    /// The lease of the node is certainly alive.
    pub is_leased: bool,
    /// Visitors and clients should be sent to this node.
    pub is_ready: bool,
    /// The number of living nodes, as far as this node knows.
    pub nodes: usize,
    /// The number of links to other nodes.
    pub links: usize,
    /// The time since the last answer of the engine.
    pub heard: Option<Duration>,
    /// The time since the last report about nodes, ports and revocations; `None` before the first.
    pub tables: Option<Duration>,
    /// The number of writes that wait for the engine.
    pub backlog: usize,
    /// The number of answers of look-ups that are kept.
    pub cached: usize,
    /// What the node has asked the engine since its start.
    pub counts: RequestCounts,
}

/// The requests of a node to the engine since its start. A repeated batch counts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Batches of writes.
    pub batches: u64,
    /// The writes in them.
    pub writes: u64,
    /// Batches of look-ups.
    pub look_up_batches: u64,
    /// The look-ups in them.
    pub look_ups: u64,
    /// Batches about bytes of the server.
    pub blob_batches: u64,
    /// The wishes in them.
    pub blobs: u64,
    /// Requests that were not answered in time.
    pub unanswered: u64,
}

#[expect(clippy::missing_trait_methods, reason = "the default of `hash_slice` is right")]
impl Hash for RequestCounts {
    /// States that differ in what was counted alone are the same for a search through all states.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
