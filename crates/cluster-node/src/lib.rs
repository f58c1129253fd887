//! A node of a cluster as a task: it drives [`cluster::node::Node`] over a client of the engine
//! ([`Engine`], which [`etcd::Etcd`] is) and over the links to other nodes ([`PeerMail`], which
//! node links bring). The crate opens no socket and starts no task: [`join`] returns the future of
//! the node, and the caller spawns it on a runtime of its choice. A dropped future ends everything
//! at once, and the records of the node are void when its lease ends (10 s).
//!
//! ```text
//!          claim, find, judge, blobs              one future
//!  ┌────────┐ ──bounded queues──► ┌──────────────────────────────────────────┐
//!  │Cluster │                     │ ┌──────┐  requests  ┌─────────────────┐  │
//!  │(handle)│ ──release, log-in── │ │ Node │ ─────────► │ lanes: renewals,│──┼─► engine
//!  └────────┘     (Mailbox)─────► │ │      │ ◄───────── │ claims, and more│  │
//!      ▲                          │ └──────┘  answers   └─────────────────┘  │
//!      └──── Views (snapshots) ◄──│   │  ▲    reports   ┌─────────────────┐  │
//!  server ◄─ ServerEvents ◄───────│   │  └───────────── │ watch           │◄─┼── engine
//!                                 └───┼──────────────────────────────────────┘
//!                                     └──► PeerMail ──► other nodes
//! ```
//!
//! **What waits for what.** The node waits for nobody: a request to the engine has 1 s, a message
//! to another node may get lost, and an event for the server that has no room ends the node. Only
//! those that ask ([`Cluster::claim`], [`Cluster::find`], [`Cluster::judge`]) wait. What the server
//! merely tells ([`Cluster::release`], [`Cluster::logged_in`] and others) is kept until the node
//! takes it, and never waits.
//!
//! **Nothing is lost with a future.** A claim whose future was dropped is released when its answer
//! comes, also when the answer had been given and was not read.
//!
//! **Time.** Moments are those of tokio's clock, which counts the time for which the process was
//! stopped, and the time for which the machine was suspended (`clock`).
//!
//! | question | module |
//! |---|---|
//! | how does a caller begin and end | [`join`] (`task`) |
//! | what can the server ask and tell | [`Cluster`] (`handle`) |
//! | what waits for the node, and what bounds it | `mailbox` |
//! | what does the server have to do | [`ServerEvent`] (`events`) |
//! | what can everybody see | [`Membership`], [`LivingNode`] (`views`) |
//! | what has the node to know of the engine | [`Engine`] (`engine`), for etcd: `over_etcd` |
//! | how are requests carried out, and when are they given up | `lanes` |
//! | how are changes followed | `follower` |
//! | how are the tables of the cluster read for people | [`Cluster::page`] (`pages`) |
//! | which input goes to the node next, and what follows from its outputs | `task`, `driver` |
//! | which claims and questions have no answer yet | `open` |
//! | what is logged | `words` |
//! | how is the node doing | [`Cluster::snapshot`] (`handle`) |

mod clock;
mod driver;
mod engine;
mod events;
mod follower;
mod handle;
mod lanes;
mod mailbox;
mod open;
mod over_etcd;
mod pages;
mod peers;
mod task;
mod views;
mod words;

pub use engine::{Engine, EngineCaller, EngineFollower, Unanswered};
pub use events::{EVENTS, ServerEvent, ServerEvents};
pub use handle::Cluster;
pub use lanes::ANSWER;
pub use open::WantedClaim;
pub use over_etcd::{EtcdCaller, EtcdFollower};
pub use pages::{PAGE_RECORDS, RecordPage, WantedPage};
pub use peers::PeerMail;
pub use task::{LEAVING, join, join_after};
pub use views::{HeldPorts, LivingNode, LivingNodes, Membership};
pub use words::no_common_version;
