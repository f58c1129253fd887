//! Follows the table of nodes on the first worker: each living node has a link, and a node that is
//! gone keeps its links for a minute, and longer while they have streams. A new epoch or a new
//! process of a node changes nothing here; its addresses may.

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

    /// Lets the links to nodes that are gone retire. Returns when the next node is due.
    fn forget_gone(&mut self, shared: &Arc<NodeShared>) -> Option<Instant> {
        let now = Instant::now();
        self.nodes.retain(|node, of| {
            let is_gone = of.gone.is_some_and(|gone| gone + GONE <= now);
            if is_gone {
                tracing::info!(
                    %node,
                    "node {node} has left the cluster: its links end with their last streams"
                );
                self.outgoings.forget(node, shared);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use ::link::ProcessBudget;
    use cluster::names::NodeEpoch;
    use cluster::node::PeerMessage;
    use cluster_node::LivingNode;
    use config::{ServerFlags, Sources, Text};
    use families::nodes::NodeTransports;
    use node::memory;
    use node::session::{State, Workers};
    use proto::Hop;
    use tokio::sync::watch;
    use tokio::task::LocalSet;
    use tokio::time::sleep;
    use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

    use super::*;
    use crate::keys::PlainKeys;
    use crate::mail::Mail;
    use crate::serves::{HopStream, ServesHops};
    use crate::shared::SharedParts;
    use crate::table::NodeTable;

    /// A table, and a server that serves nobody.
    #[derive(Debug, Default)]
    struct Table(watch::Sender<LivingNodes>);

    impl NodeTable for Table {
        fn nodes(&self) -> watch::Receiver<LivingNodes> {
            self.0.subscribe()
        }

        fn link_up(&self, _: NodeId) {}

        fn link_down(&self, _: NodeId) {}

        fn message(&self, _: NodeId, _: PeerMessage) {}
    }

    impl ServesHops for Table {
        fn stream(
            &self,
            _: &Rc<Worker>,
            _: &NodeId,
            _: Hop,
            _: HopStream,
            _: Box<dyn Inlet>,
        ) -> Rc<dyn Outlet> {
            unreachable!("there are no links")
        }

        fn flow(
            &self,
            _: &Rc<Worker>,
            _: &NodeId,
            _: Hop,
            _: HopStream,
            _: Box<dyn FlowInlet>,
        ) -> Option<Rc<dyn FlowOutlet>> {
            unreachable!("there are no links")
        }
    }

    /// Node `a`, with a worker whose thread has the clock of the test.
    fn ground(workers: &Workers, table: &Arc<Table>) -> (Rc<Worker>, Arc<NodeShared>) {
        let text = Text { name: "server.yaml", text: "listen: tcp://127.0.0.1:0\nclients: []\n" };
        let read = |_: &Path| Err("no files".to_owned());
        let sources = Sources { env: &|_: &str| None, read: &read };
        let config = config::load_server(Some(text), &ServerFlags::default(), &sources).unwrap();
        let shared = NodeShared::new(SharedParts {
            own: NodeId::new("a").unwrap(),
            name: "a".parse().unwrap(),
            transports: NodeTransports::new(None),
            keys: PlainKeys::default(),
            common: config.config.common,
            handles: Arc::clone(workers.handles()),
            table: Arc::clone(table) as _,
            serves: Arc::clone(table) as _,
            mail: Mail::default(),
            serials: Arc::new(AtomicU64::new(1)),
        });
        let lease = memory::lease(&ProcessBudget::new(64 << 20), NonZeroUsize::MIN);
        let peers = Arc::clone(workers.handles());
        (Rc::new(Worker { index: 0, peers, state: State::new(lease) }), shared)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_gone_for_a_minute_has_no_links_and_one_that_comes_back_keeps_them() {
        let budget = ProcessBudget::new(64 << 20);
        let lease = move |_| State::new(memory::lease(&budget, NonZeroUsize::MIN));
        let workers = Workers::start(NonZeroUsize::MIN, lease).unwrap();
        let table = Arc::<Table>::default();
        let (worker, shared) = ground(&workers, &table);
        let outgoings = Arc::<Outgoings>::default();
        let b = NodeId::new("b").unwrap();
        let living = |nodes: &[&NodeId]| {
            let dead = |node: &&NodeId| {
                ((*node).clone(), LivingNode { epoch: NodeEpoch(1), record: None })
            };
            let nodes: BTreeMap<_, _> = nodes.iter().map(dead).collect();
            table.0.send_replace(Arc::new(nodes));
        };
        let story = async {
            living(&[&shared.own, &b]);
            sleep(Duration::from_secs(1)).await;
            assert!(outgoings.remote(&shared.own).is_none(), "no link to itself");
            let first = outgoings.remote(&b).unwrap();
            assert_eq!(first.trouble().as_deref(), Some("this version cannot read its record"));
            living(&[&shared.own]);
            sleep(Duration::from_secs(40)).await;
            living(&[&shared.own, &b]);
            sleep(Duration::from_secs(40)).await;
            assert!(Arc::ptr_eq(&first, &outgoings.remote(&b).unwrap()), "it came back");
            living(&[]);
            sleep(Duration::from_secs(59)).await;
            assert!(outgoings.remote(&b).is_some());
            sleep(Duration::from_secs(2)).await;
            assert!(outgoings.remote(&b).is_none());
        };
        let following = follow(worker, Arc::clone(&shared), Arc::clone(&outgoings));
        LocalSet::new()
            .run_until(async {
                tokio::select! {
                    () = following => unreachable!("the node does not leave"),
                    () = story => {}
                }
            })
            .await;
    }
}
