//! The server as a node of a cluster: what the server and its node (crate `cluster-node`) have to
//! tell each other. Without `cluster` in the configuration nothing of this exists.
//!
//! ```text
//!   registry ── claim, release ──> SharedDirectory ───┐
//!            ── links of clients ─> Presence ─────────┤            ┌─ engine: etcd by HTTP
//!            <── lost, yield ────── ServerNode <──────┴── Cluster ─┤
//!                                                                  └─ Mail (crate `nodes`)
//! ```
//!
//! | file | content |
//! |---|---|
//! | `server_node.rs` | start and end of the node, its events, its status |
//! | `certificates.rs` | the store of certificates, challenges and tickets that the nodes share |
//! | `downhill.rs` | clients go to emptier nodes |
//! | `engine.rs` | connections to etcd, by the dialers of this program |
//! | `offer.rs` | what clients are told of the nodes, so that they choose their homes |
//! | `located.rs` | where a client, a name or a port is, for people |
//! | `rekey.rs` | the change of the secret |
//! | `shared.rs` | the directory of the cluster: claims and look-ups |
//! | `left.rs` | what a former process of the node has left to this process |
//! | `table.rs` | the claims of this server, whose numbers may change, and early events |
//!
//! The node runs on the slow runtime. Nothing here is on the data path.

mod certificates;
pub(crate) mod downhill;
mod engine;
mod left;
mod located;
pub(crate) mod offer;
#[cfg(test)]
mod over_etcd;
#[cfg(test)]
mod people_over_etcd;
mod rekey;
mod server_node;
mod shared;
mod table;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use engine::MemberWays;
pub(crate) use server_node::{NewNode, ServerNode, node_id};
pub(crate) use shared::SharedDirectory;
