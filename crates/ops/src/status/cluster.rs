//! The cluster of a server, in its status.

use serde::{Deserialize, Serialize};

/// The cluster of which a server is a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// The name of the cluster.
    pub name: String,
    /// The name of this node.
    pub node: String,
    /// The number of its membership; absent before it has joined, and between two memberships.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Whether the membership is certainly alive: new addresses of services can be claimed.
    pub member: bool,
    /// Whether clients and visitors should be sent to this node.
    pub ready: bool,
    /// The seconds since the engine (etcd) has answered; absent before its first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_heard_seconds: Option<u64>,
    /// The living nodes, this node included, in the order of their names; at most 200.
    pub nodes: Vec<ClusterNode>,
    /// A readable text: the last event of the membership.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

/// A living node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// Its failure domain; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The number of its membership.
    pub epoch: u64,
    /// The version of its program; absent where this program cannot read its record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether it asks its clients to go.
    pub draining: bool,
    /// Its links of clients.
    pub links: u32,
    /// The URLs at which clients reach this node and no other node (`cluster.clients`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// The seconds since this node knows it, in its present membership.
    pub seconds: u64,
}
