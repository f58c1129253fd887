//! Nodes, the table that they follow, and what they serve.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cluster::names::{NodeEpoch, NodeId};
use cluster::node::PeerMessage;
use cluster::record::{Described, PeerAddress, VERSIONS};
use cluster_node::{LivingNode, LivingNodes, PeerMail as _};
use config::{Common, ServerFlags, Sources, Text};
use link::ProcessBudget;
use node::memory;
use node::session::{State, Worker, Workers};
use nodes::{
    HopStream, Mail, NodeLinkStatus, NodeLinks, NodeListeners, NodeSide, NodeTable, PeerFiles,
    PeerSettings, ServesHops,
};
use proto::greeting::NodeKey;
use proto::{Hop, ResetCode};
use relay::{Visitor, accept_duplex};
use testkit::certs::{Authority, Flaw};
use tokio::io::copy_bidirectional;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use crate::streams::PLAIN;

/// The limit of each wait: several times what a busy machine takes.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn node_id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// What a node is told by the cluster, and tells it.
#[derive(Debug, Default)]
pub(crate) struct TestTable {
    nodes: watch::Sender<LivingNodes>,
    /// The nodes that are linked, and how often the cluster was told of a change.
    pub(crate) linked: Mutex<BTreeMap<NodeId, (bool, usize)>>,
    pub(crate) messages: Mutex<Vec<(NodeId, PeerMessage)>>,
}

impl TestTable {
    /// Fills the table.
    pub(crate) fn set(&self, nodes: &[(NodeId, Vec<PeerAddress>)]) {
        let living = nodes.iter().map(|(node, peers)| {
            let record = Described {
                process: 1,
                versions: VERSIONS,
                peers: peers.clone(),
                clients: Vec::new(),
                zone: String::new(),
                program: String::new(),
                draining: false,
                links: 0,
                secrets: Vec::new(),
            };
            (node.clone(), LivingNode { epoch: NodeEpoch(1), record: Some(record) })
        });
        self.nodes.send_replace(Arc::new(living.collect()));
    }

    pub(crate) fn is_linked(&self, node: &NodeId) -> bool {
        lock(&self.linked).get(node).is_some_and(|(is_up, _)| *is_up)
    }

    /// How often the cluster was told that a link has come or gone.
    pub(crate) fn changes(&self, node: &NodeId) -> usize {
        lock(&self.linked).get(node).map_or(0, |(_, changes)| *changes)
    }

    fn note(&self, node: NodeId, is_up: bool) {
        let mut linked = lock(&self.linked);
        let (known, changes) = linked.entry(node).or_default();
        assert_ne!(*known, is_up, "told twice");
        (*known, *changes) = (is_up, *changes + 1);
    }
}

impl NodeTable for TestTable {
    fn nodes(&self) -> watch::Receiver<LivingNodes> {
        self.nodes.subscribe()
    }

    fn link_up(&self, node: NodeId) {
        self.note(node, true);
    }

    fn link_down(&self, node: NodeId) {
        self.note(node, false);
    }

    fn message(&self, from: NodeId, message: PeerMessage) {
        lock(&self.messages).push((from, message));
    }
}

/// Returns the bytes and datagrams of each stream and flow, and notes what was asked.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    pub(crate) hops: Mutex<Vec<(NodeId, usize, Hop, HopStream)>>,
}

impl Echo {
    fn note(&self, worker: &Worker, from: &NodeId, hop: Hop, stream: HopStream) {
        lock(&self.hops).push((from.clone(), worker.index, hop, stream));
    }
}

impl ServesHops for Echo {
    fn stream(
        &self,
        worker: &Rc<Worker>,
        from: &NodeId,
        hop: Hop,
        stream: HopStream,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        self.note(worker, from, hop, stream);
        let (outlet, mut duplex) = accept_duplex(inlet, Visitor::Unknown, &Rc::default(), None);
        tokio::task::spawn_local(async move {
            let (mut near, mut far) = tokio::io::simplex(1 << 16);
            let mut echo = tokio::io::join(&mut near, &mut far);
            // The end of the stream ends the echo.
            let _ = copy_bidirectional(&mut duplex, &mut echo).await;
        });
        outlet
    }

    fn flow(
        &self,
        worker: &Rc<Worker>,
        from: &NodeId,
        hop: Hop,
        flow: HopStream,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        self.note(worker, from, hop, flow);
        Some(Rc::new(EchoFlow(inlet)))
    }
}

#[derive(Debug)]
struct EchoFlow(Box<dyn FlowInlet>);

impl FlowOutlet for EchoFlow {
    fn deliver(&self, datagram: Bytes) {
        assert_eq!(self.0.send(&mut std::iter::once(&datagram[..])), 0);
    }

    fn close(&self, _: ResetCode) {}
}

/// The authority of a cluster, and the folder of its files.
pub(crate) struct Ground {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) authority: Authority,
    ca: PathBuf,
}

/// A node under test.
pub(crate) struct TestNode {
    pub(crate) id: NodeId,
    pub(crate) links: NodeLinks,
    pub(crate) table: Arc<TestTable>,
    pub(crate) serves: Arc<Echo>,
    pub(crate) addresses: Vec<PeerAddress>,
    pub(crate) workers: Workers,
    pub(crate) mail: Mail,
}

/// The settings of links that nodes share with clients.
pub(crate) fn common() -> Common {
    common_with(16)
}

/// The same with another bound of the windows of streams, in MiB.
pub(crate) fn common_with(window_max: usize) -> Common {
    let text = format!(
        "listen: tcp://127.0.0.1:0\nmemory_budget: 256MiB\nclients: []\nwindow: {{ max: \
         {window_max}MiB }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let read = |_: &Path| Err("no files".to_owned());
    let sources = Sources { env: &|_: &str| None, read: &read };
    config::load_server(Some(text), &ServerFlags::default(), &sources).unwrap().config.common
}

impl Ground {
    pub(crate) fn new() -> Self {
        let (folder, authority) =
            (tempfile::tempdir().unwrap(), Authority::new("cluster").unwrap());
        let ca = authority.save(folder.path()).unwrap();
        Self { folder, authority, ca }
    }

    /// The settings of a node that shows a certificate with this name.
    pub(crate) fn settings(&self, listen: &[&str], certificate: &str) -> PeerSettings {
        let leaf = self.authority.client(&[], certificate, Flaw::None).unwrap();
        let file = certificate.replace(':', "-");
        let (cert, key) = leaf.save(self.folder.path(), &file).unwrap();
        let listen = listen.iter().map(|url| url.parse().unwrap()).collect();
        let tls = Some(PeerFiles { ca: self.ca.clone(), cert, key });
        PeerSettings { listen, advertise: Vec::new(), tls, keys: vec![key_of(1)] }
    }

    /// Starts a node with a certificate of its name.
    pub(crate) async fn start(&self, name: &str, listen: &[&str], workers: usize) -> TestNode {
        let settings = self.settings(listen, &format!("node:{name}"));
        start(name, &settings, workers).await
    }
}

/// A key that nodes have in common.
pub(crate) fn key_of(secret: u8) -> NodeKey {
    NodeKey::new([secret; 32])
}

/// The settings of a node without a certificate, with these keys.
pub(crate) fn plain_settings(secrets: &[u8]) -> PeerSettings {
    let keys = secrets.iter().map(|secret| key_of(*secret)).collect();
    let listen = PLAIN.map(|url| url.parse().unwrap()).into();
    PeerSettings { listen, advertise: Vec::new(), tls: None, keys }
}

/// Starts a node that returns what arrives.
pub(crate) async fn start(name: &str, settings: &PeerSettings, workers: usize) -> TestNode {
    let echo = Arc::<Echo>::default();
    let mut node = start_with(name, settings, (workers, &common()), Arc::clone(&echo) as _).await;
    node.serves = echo;
    node
}

/// Starts a node.
pub(crate) async fn start_with(
    name: &str,
    settings: &PeerSettings,
    (workers, common): (usize, &Common),
    serves: Arc<dyn ServesHops>,
) -> TestNode {
    let id = node_id(name);
    let count = NonZeroUsize::new(workers).unwrap();
    let budget = ProcessBudget::new(256 << 20);
    let lease = move |_| State::new(memory::lease(&budget, count));
    let workers = Workers::start(count, lease).unwrap();
    let listeners = NodeListeners::bind(&id, settings, common, None, count.get()).unwrap();
    let addresses = listeners.addresses();
    let (table, mail) = (Arc::<TestTable>::default(), Mail::default());
    let side = NodeSide {
        handles: Arc::clone(workers.handles()),
        table: Arc::clone(&table) as _,
        serves,
        mail: mail.clone(),
        serials: Arc::new(AtomicU64::new(1)),
    };
    let links = NodeLinks::start(listeners, side).await;
    TestNode { id, links, table, serves: Arc::default(), addresses, workers, mail }
}

/// Shows each of these nodes all of them.
pub(crate) fn introduce(nodes: &[&TestNode]) {
    let all: Vec<_> = nodes.iter().map(|node| (node.id.clone(), node.addresses.clone())).collect();
    nodes.iter().for_each(|node| node.table.set(&all));
}

impl TestNode {
    /// Waits until the cluster is told that there are links to these nodes.
    pub(crate) async fn is_linked_to(&self, others: &[&Self]) {
        let all = async || {
            let linked = others.iter().all(|other| self.table.is_linked(&other.id));
            linked.then_some(())
        };
        eventually("links", all).await;
    }

    /// Waits for the reason why there is no link to a node.
    pub(crate) async fn trouble(&self, other: &NodeId) -> String {
        eventually("trouble", async || self.status(other).await.trouble).await
    }

    pub(crate) async fn status(&self, other: &NodeId) -> NodeLinkStatus {
        self.links.status().await.remove(other).unwrap_or_default()
    }

    pub(crate) fn send(&self, to: &Self, message: PeerMessage) {
        self.mail.clone().send(&to.id, message);
    }

    /// Waits for the next message.
    pub(crate) async fn message(&self) -> (NodeId, PeerMessage) {
        eventually("a message", async || {
            let mut messages = lock(&self.table.messages);
            (!messages.is_empty()).then(|| messages.remove(0))
        })
        .await
    }

    /// Cuts the carriers of the links of the first worker to a node. Returns their number.
    pub(crate) async fn cut(&self, other: &Self) -> usize {
        let session = self.links.session(&other.id).unwrap();
        let cut = move |worker: &Rc<Worker>| {
            let links = worker.state.links_of(session.id);
            links.iter().filter(|(_, link)| link.cut()).count()
        };
        self.workers.handles()[0].call(cut).await.unwrap()
    }

    pub(crate) async fn stop(self) {
        self.workers.stop().await;
    }
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < SOON, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
