//! The links between the nodes of a cluster.
//!
//! ```text
//!               node A                                              node B
//!   visitor ──> entrance ──stream──> outgoing ═══ link of A ═══> incoming ──> client of B
//!               cluster  ──message─> (dials)                     (accepts) ──> cluster
//!
//!   client of A <── incoming <═══ link of B ═══ outgoing <── entrance of B, cluster of B
//! ```
//!
//! Each node dials each other node, and opens streams on its own links alone. So whoever dials is
//! the visitor's side, and whoever accepts is the side of the client; which of two nodes was there
//! first, or can reach the other, decides nothing. A node keeps one link to each other node, from
//! its first worker, for the messages of the cluster; its other workers make a link for a visitor
//! that finds none, and the link retires 10 minutes after its last stream
//! ([decision 0106](../decisions/0106-each-node-dials-each-node.md)).
//!
//! A node proves who it is by a certificate of the authority of the cluster with the name
//! `node:<its name>`, at both ends (`names`). Over `tcp://` both ends prove their names by the
//! secret of the cluster ([decision 0114](../decisions/0114-nodes-over-tcp-prove-the-secret.md)).
//!
//! | question | module |
//! |---|---|
//! | how does a server begin, ask and end | [`NodeLinks`] (`links`), [`NodeListeners`] (`listeners`) |
//! | what does the server bring | [`ServesHops`] (`serves`), [`NodeTable`] (`table`) |
//! | how does a node prove who it is | `names`, `incoming/proof.rs`, `families/src/nodes.rs`; over `tcp://` `keys` and `proto/src/greeting/node_key.rs` |
//! | which nodes are dialled, and when does that end | `outgoing/follow.rs`, `outgoing/dialling.rs` |
//! | how is a link kept, and when does it retire | `outgoing/keeper.rs` |
//! | when does the cluster count a node as linked | `outgoing/news.rs` |
//! | how does a message reach another node | `mail`, `outgoing/post.rs`; as bytes: `cluster::wire` |
//! | why is there no link, in words | `outgoing/trouble.rs`, `incoming/welcome.rs` |
//! | who may log in, and how many links may a node have | `incoming/verifier.rs`, `incoming/places.rs` |
//! | which streams does another node open, and what else is refused | `incoming/owner.rs` |
//! | what is shown of the links | [`NodeLinkStatus`] (`status`) |

mod incoming;
mod keys;
mod links;
mod listeners;
mod lock;
mod mail;
mod names;
mod outgoing;
mod serves;
mod shared;
mod status;
mod table;

pub use links::{NodeLinks, NodeSide};
pub use listeners::{NodeListeners, PeerFiles, PeerSettings};
pub use mail::Mail;
pub use serves::{HopStream, NodeAsks, ServesHops};
pub use status::NodeLinkStatus;
pub use table::NodeTable;
