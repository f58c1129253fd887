//! Nodes of a real cluster, whose engine is in memory, over real links.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cluster::names::{ClientName, Instance, NodeId};
use cluster::node::{Located, NodeSettings, Subject};
use cluster::record::{Described, VERSIONS};
use cluster_node::{Cluster, ServerEvents, join};
use link::ProcessBudget;
use node::memory;
use node::session::{State, Workers};
use nodes::{Mail, NodeLinks, NodeListeners, NodeSide};

use crate::ground::{Echo, Ground, common, eventually, node_id};
use crate::memory_engine::MemoryEngine;
use crate::streams::BOTH;

/// A node of a cluster with its links.
struct ClusterNode {
    id: NodeId,
    engine: MemoryEngine,
    cluster: Cluster,
    links: NodeLinks,
    workers: Workers,
    _events: ServerEvents,
}

impl ClusterNode {
    async fn start(ground: &Ground, name: &str, engine: MemoryEngine) -> Self {
        let (id, count) = (node_id(name), NonZeroUsize::MIN);
        let settings = ground.settings(&BOTH, &format!("node:{name}"));
        let listeners = NodeListeners::bind(&id, &settings, &common(), None, 1).unwrap();
        let process = u64::from(name.as_bytes()[0]);
        let record = Described {
            process,
            versions: VERSIONS,
            peers: listeners.addresses(),
            clients: Vec::new(),
            zone: String::new(),
            program: String::new(),
            draining: false,
            links: 0,
            secrets: Vec::new(),
        };
        let (cluster, seed) = ("test".to_owned(), process);
        let gather = cluster::node::GATHER;
        let node = id.clone();
        let settings = NodeSettings { cluster, node, record, cache: 100, gather, seed };
        let mail = Mail::default();
        let (cluster, events, node) = join(settings, engine.clone(), mail.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "a node of a cluster is no task of a worker"
        )]
        drop(tokio::spawn(node));
        let budget = ProcessBudget::new(64 << 20);
        let workers = Workers::start(count, move |_| State::new(memory::lease(&budget, count)));
        let workers = workers.unwrap();
        let side = NodeSide {
            handles: Arc::clone(workers.handles()),
            table: Arc::new(cluster.clone()),
            serves: Arc::<Echo>::default(),
            mail,
            serials: Arc::new(AtomicU64::new(1)),
        };
        let links = NodeLinks::start(listeners, side).await;
        Self { id, engine, cluster, links, workers, _events: events }
    }

    /// The nodes to which this node has a link.
    async fn linked(&self) -> Vec<NodeId> {
        let all: BTreeMap<_, _> = self.links.status().await;
        all.into_iter().filter(|(_, links)| links.is_live).map(|(node, _)| node).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_engine_is_away_learns_from_the_others_where_a_client_is() {
    let (ground, engine) = (Ground::new(), MemoryEngine::new());
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(ClusterNode::start(&ground, name, engine.of_another_node()).await);
    }
    for node in &nodes {
        eventually("links to both", async || (node.linked().await.len() == 2).then_some(())).await;
    }
    let [a, b, _] = &nodes[..] else { unreachable!("three") };
    let client = ClientName::new("home").unwrap();
    b.cluster.logged_in(client.clone(), Instance(7), 1);
    let find = async || match a.cluster.find(Subject::Client(client.clone())).await {
        Located::There { record, .. } => Some(record),
        Located::Here(_) | Located::Held { .. } | Located::Nowhere | Located::Away => None,
    };
    a.engine.hang(true);
    let record = eventually("an answer of b", find).await;
    assert_eq!((record.instance, &record.homes[0].node), (Instance(7), &b.id));
    for node in nodes {
        node.cluster.leave().await;
        node.workers.stop().await;
    }
}
