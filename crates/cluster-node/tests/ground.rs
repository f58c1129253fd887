//! Nodes on an engine, and the links between them.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::heirloom::Heirloom;
use cluster::names::{Class, ClientName, Generation, Instance, Key, NodeId, PortProtocol};
use cluster::node::{Claimed, NodeSettings, PeerMessage};
use cluster::record::{Described, VERSIONS};
use cluster_node::{Cluster, Engine, PeerMail, ServerEvent, ServerEvents, WantedClaim, join_after};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The handles of all nodes with a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<NodeId, Cluster>>>);

struct Mail {
    own: NodeId,
    network: Network,
}

impl PeerMail for Mail {
    fn send(&mut self, to: &NodeId, message: PeerMessage) {
        let network = self.network.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = network.get(to) {
            cluster.message(self.own.clone(), message);
        }
    }
}

/// A node under test.
pub(crate) struct TestNode {
    pub(crate) id: NodeId,
    pub(crate) cluster: Cluster,
    pub(crate) events: ServerEvents,
    pub(crate) task: JoinHandle<()>,
}

/// Starts a node.
pub(crate) fn start<E: Engine>(name: &str, engine: E, network: &Network) -> TestNode {
    start_after(name, engine, network, None)
}

/// Starts a node that goes on with what its former process has left.
pub(crate) fn start_after<E: Engine>(
    name: &str,
    engine: E,
    network: &Network,
    left: Option<Heirloom>,
) -> TestNode {
    let id = node_id(name);
    let process = name.bytes().fold(1, |sum, byte| sum * 257 + u64::from(byte));
    let process = process + u64::from(left.is_some());
    let record = Described {
        process,
        versions: VERSIONS,
        peers: Vec::new(),
        clients: Vec::new(),
        zone: "z".into(),
        program: "0".into(),
        draining: false,
        links: 0,
        secrets: Vec::new(),
    };
    let settings = NodeSettings {
        cluster: "test".into(),
        node: id.clone(),
        record,
        cache: 100,
        gather: cluster::node::GATHER,
        seed: process,
    };
    let mail = Mail { own: id.clone(), network: network.clone() };
    let (cluster, events, node) = join_after(settings, engine, mail, ready(left));
    TestNode { id, cluster, events, task: tokio::spawn(node) }
}

impl Network {
    /// Links two nodes.
    pub(crate) fn link(&self, one: &TestNode, other: &TestNode) {
        let mut network = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, to) in [(one, other), (other, one)] {
            network.insert(from.id.clone(), from.cluster.clone());
            from.cluster.link_up(to.id.clone());
        }
    }
}

impl TestNode {
    /// Waits until the node is a member that sees this number of nodes.
    pub(crate) async fn sees(&self, count: usize) {
        let mut membership = self.cluster.membership();
        let mut nodes = self.cluster.nodes();
        let joined = async {
            membership.wait_for(|now| now.epoch.is_some() && now.is_leased).await.unwrap();
            nodes.wait_for(|nodes| nodes.len() == count).await.unwrap();
        };
        timeout(Duration::from_secs(60), joined).await.unwrap();
    }

    /// Claims a port for a process.
    pub(crate) async fn claim(&self, port: u16, client: &str, instance: u64) -> Claimed {
        let wanted = wanted(port, client, instance);
        self.cluster.claim(vec![wanted]).await.pop().unwrap()
    }

    /// Claims a port until the claim is held, and returns its number.
    pub(crate) async fn insist(&self, port: u16, limit: Duration) -> Generation {
        eventually(limit, async || match self.claim(port, "insists", 9).await {
            Claimed::Held(generation) => Some(generation),
            Claimed::Taken { .. } | Claimed::Away => None,
        })
        .await
    }

    /// The next event that is no report.
    pub(crate) async fn event(&mut self, limit: Duration) -> Option<ServerEvent> {
        let next = async {
            loop {
                match self.events.next().await {
                    Some(ServerEvent::Report { .. }) => {}
                    event => return event,
                }
            }
        };
        timeout(limit, next).await.ok().flatten()
    }
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(limit: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The claim of a port by a process.
pub(crate) fn wanted(port: u16, client: &str, instance: u64) -> WantedClaim {
    let (client, instance) = (client_name(client), Instance(instance));
    WantedClaim { key: key(port), client, instance, about: String::new(), expected: None }
}

pub(crate) fn key(port: u16) -> Key {
    Key::Port(PortProtocol::Tcp, Class::Public, port)
}

pub(crate) fn client_name(name: &str) -> ClientName {
    ClientName::new(name).unwrap()
}

pub(crate) fn node_id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// The number of a claim that is held.
pub(crate) fn held(claimed: Claimed) -> Generation {
    let Claimed::Held(generation) = claimed else { panic!("{claimed:?}") };
    generation
}

/// Whether a claim is taken by a client of this node.
pub(crate) fn is_taken_by(claimed: &Claimed, node: &TestNode) -> bool {
    matches!(claimed, Claimed::Taken { by, .. } if by.node == node.id)
}
