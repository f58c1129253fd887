//! Follows the table of nodes on the first worker: each living node has a link, and a node that is
//! gone keeps its links for a minute. A new epoch or a new process of a node changes nothing here;
//! its addresses may.

use std::collections::HashMap;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::names::NodeId;
use cluster_node::LivingNodes;
use node::session::Worker;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep_until};

use super::dialling::{Dialling, Outgoings};
use super::post::carry;
use crate::shared::NodeShared;

/// How long a node that is not in the table keeps its links. A node that restarts, or whose lease
/// has ended because the engine was away, is back earlier.
const GONE: Duration = Duration::from_secs(60);

/// Follows the table until this node leaves.
pub(crate) async fn follow(worker: Rc<Worker>, shared: Arc<NodeShared>, outgoings: Arc<Outgoings>) {
    let mut nodes = shared.table.nodes();
    let mut followed = Followed { nodes: HashMap::new(), outgoings };
    while !shared.is_leaving() {
        let living = LivingNodes::clone(&nodes.borrow_and_update());
        followed.see(&living, &worker, &shared);
        let next = followed.forget_gone(&shared);
        tokio::select! {
            changed = nodes.changed() => if changed.is_err() {
                // The node of the cluster has ended, and its table is the last that is known.
                return pending().await;
            },
            () = until(next) => {}
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The nodes that were living within the last minute.
struct Followed {
    nodes: HashMap<NodeId, FollowedNode>,
    outgoings: Arc<Outgoings>,
}

struct FollowedNode {
    dialling: Arc<Dialling>,
    /// Tells the cluster of the links, and carries its messages.
    tasks: [AbortHandle; 2],
    /// Since when the node is not in the table.
    gone: Option<Instant>,
}

impl Drop for FollowedNode {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Followed {
    fn see(&mut self, living: &LivingNodes, worker: &Rc<Worker>, shared: &Arc<NodeShared>) {
        for (node, known) in living.iter().filter(|(node, _)| **node != shared.own) {
            let begin = || begin(self.outgoings.add(node, shared), worker, shared);
            let of = self.nodes.entry(node.clone()).or_insert_with(begin);
            of.gone = None;
            if let Some(record) = &known.record {
                of.dialling.set(&record.peers, shared);
                of.dialling.keep(worker, shared);
            } else {
                of.dialling.remote.fail("this version cannot read its record".to_owned(), true);
            }
        }
        for (node, of) in &mut self.nodes {
            if !living.contains_key(node) {
                of.gone.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Ends the links to nodes that are gone. Returns when the next node is due.
    fn forget_gone(&mut self, shared: &NodeShared) -> Option<Instant> {
        let now = Instant::now();
        self.nodes.retain(|node, of| {
            let is_gone = of.gone.is_some_and(|gone| gone + GONE <= now);
            if is_gone {
                tracing::info!(%node, "node {node} has left the cluster; its links end");
                of.dialling.end();
                self.outgoings.forget(node);
                shared.mail.close(node);
            }
            !is_gone
        });
        self.nodes.values().filter_map(|of| Some(of.gone? + GONE)).min()
    }
}

/// Begins to follow a node.
fn begin(dialling: Arc<Dialling>, worker: &Rc<Worker>, shared: &Arc<NodeShared>) -> FollowedNode {
    let (telling, table) = (Arc::clone(&dialling.remote), Arc::clone(&shared.table));
    let tells = spawn_local(async move {
        telling.news.tell(&table, &telling.node, || telling.mailbox.clear()).await;
    });
    let (carrying, here) = (Arc::clone(&dialling.remote), Rc::clone(worker));
    let carries = spawn_local(async move {
        carry(here, &carrying.session, &carrying.mailbox).await;
    });
    let tasks = [tells.abort_handle(), carries.abort_handle()];
    FollowedNode { dialling, tasks, gone: None }
}
