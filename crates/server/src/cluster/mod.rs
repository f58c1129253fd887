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
//! | `engine.rs` | connections to etcd, by the dialers of this program |
//! | `shared.rs` | the directory of the cluster: claims and look-ups |
//! | `table.rs` | the claims of this server, whose numbers may change, and early events |
//! | `presence.rs` | which processes of clients are here, and which have yielded to other nodes |
//! | `about.rs` | what a claim says to other nodes about its services |
//!
//! The node runs on the slow runtime. Nothing here is on the data path.

pub(crate) mod about;
mod engine;
#[cfg(test)]
mod over_etcd;
mod presence;
mod server_node;
mod shared;
mod table;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use presence::{Presence, ProcessHere, instance_of};
pub(crate) use server_node::{NewNode, ServerNode, node_id};
pub(crate) use shared::SharedDirectory;
