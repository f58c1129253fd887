//! Start and end of all parts of a node of a cluster: the node itself, the links to other nodes,
//! and the entrances for services of their clients.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::names::NodeId;
use config::Common;
use node::session::{Handle, Worker};
use nodes::{
    HopStream, Mail, NodeAsks, NodeLinks, NodeListeners, NodeSide, PeerFiles, PeerSettings,
    ServesHops,
};
use proto::Hop;
use proto::greeting::NodeKey;
use termination::CommonSecret;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use super::far::FarServices;
use super::serve::{HopVisitor, Hops};
use crate::cluster::{MemberWays, NewNode, ServerNode, downhill, node_id};
use crate::private::FindsAbroad;
use crate::registry::Registry;
use crate::shared_clients::TellsNodes;
use crate::strays::FindsLinks;

/// A node whose ports for other nodes are bound, and that does not run yet.
pub(crate) struct NewParts {
    node: NewNode,
    listeners: NodeListeners,
    mail: Mail,
    ports_max: usize,
}

/// The parts of a node that runs.
#[derive(Debug)]
pub(crate) struct NodeParts {
    links: NodeLinks,
    far: Arc<FarServices>,
    /// The ways to etcd.
    members: Option<MemberWays>,
}

/// The purpose of the key that is derived from the secret of the cluster for links over `tcp://`.
const LINKS: &str = "links between nodes";

/// The settings of the links to other nodes.
fn peer_settings(config: &config::Cluster) -> PeerSettings {
    let peers = &config.peers;
    let files = peers.tls.as_ref().map(|tls| PeerFiles {
        ca: tls.ca.clone(),
        cert: tls.identity.cert.clone(),
        key: tls.identity.key.clone(),
    });
    let secrets = config.secrets.iter().filter_map(|token| {
        let secret = CommonSecret::new([token.secret.reveal()])?;
        secret.key(LINKS).map(NodeKey::new)
    });
    PeerSettings {
        listen: peers.listen.clone(),
        advertise: peers.advertise.clone(),
        tls: files,
        keys: secrets.collect(),
    }
}

impl NewParts {
    /// Binds the ports for other nodes, and makes the node.
    ///
    /// # Errors
    /// A certificate cannot be read, a port is taken, or the host's name is no name of a node.
    pub(crate) fn of_config(
        config: &config::Cluster,
        workers: &Arc<[Handle]>,
        (common, state): (&Common, Option<&Path>),
    ) -> anyhow::Result<Self> {
        let (id, settings) = (node_id(config)?, peer_settings(config));
        let listeners = NodeListeners::bind(&id, &settings, common, state, workers.len())?;
        let mail = Mail::default();
        let peers = (listeners.addresses(), mail.clone());
        let node = ServerNode::of_config(config, workers, peers, state)?;
        let ports_max = usize::try_from(config.ports_max).unwrap_or(usize::MAX);
        Ok(Self { node, listeners, mail, ports_max })
    }

    /// The node.
    pub(crate) const fn node(&self) -> &Arc<ServerNode> {
        &self.node.node
    }

    /// Runs all parts of a server that is a node, on the runtime of the caller until `tasks` is
    /// dropped.
    ///
    /// # Errors
    /// A living node has no version of records in common with this program.
    pub(crate) async fn run_if_some(
        parts: Option<Self>,
        registry: &Arc<Registry>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Option<NodeParts>> {
        match parts {
            Some(parts) => parts.run(registry, tasks).await.map(Some),
            None => Ok(None),
        }
    }

    async fn run(
        self,
        registry: &Arc<Registry>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<NodeParts> {
        let Self { node, listeners, mail, ports_max } = self;
        let (id, cluster) = (node.node.id().clone(), node.node.cluster().clone());
        let places = Arc::clone(&node.node);
        let hops = Hops::new(registry, Arc::<ServerNode>::clone(&places) as _);
        let side = NodeSide {
            handles: registry.handles().into(),
            table: Arc::new(cluster.clone()),
            serves: Arc::new(Serves(Arc::new(hops))),
            mail,
            serials: Arc::clone(registry.serials()),
        };
        let links = NodeLinks::start(listeners, side).await;
        let sessions = Arc::new(links.clone());
        let far = FarServices::new(id, registry, places, sessions, ports_max);
        registry.shared().hosts.names.seek_by(Arc::<FarServices>::clone(&far) as _);
        let abroad: Arc<dyn FindsAbroad> = Arc::<FarServices>::clone(&far);
        registry.shared().private.seek_by(Arc::downgrade(&abroad));
        let links_abroad: Arc<dyn FindsLinks> = Arc::<FarServices>::clone(&far);
        registry.shared().strays.seek_by(Arc::downgrade(&links_abroad));
        if let Some(common) = registry.common() {
            let nodes: Arc<dyn TellsNodes> = Arc::<FarServices>::clone(&far);
            common.tell_by(Arc::downgrade(&nodes));
        }
        tasks.spawn(follow_enrolled(Arc::clone(registry), cluster.readiness()));
        if node.rebalances {
            tasks.spawn(downhill::follow(Arc::clone(&node.node), Arc::clone(registry)));
        }
        let members = node.members.clone();
        let node = node.run(registry, tasks);
        tasks.spawn(Arc::clone(&far).follow_ports(cluster.ports()));
        tasks.spawn(Arc::clone(&far).review_names());
        node.joins().await?;
        Ok(NodeParts { links, far, members })
    }
}

impl NodeParts {
    /// Closes the entrances for services of other nodes.
    pub(crate) async fn close_entrances(&self) {
        self.far.close_all().await;
    }

    /// Asks the other nodes for links to the next process of this node. Completes when they have
    /// these, or after a while.
    pub(crate) async fn retire_incoming(&self) {
        self.links.retire_incoming().await;
    }

    /// The next process has links to the other nodes: those of this process end with their last
    /// streams.
    pub(crate) async fn retire_outgoing(&self) {
        self.links.retire_outgoing().await;
    }

    /// Completes when the ports of clients of other nodes are open, or after a while.
    pub(crate) async fn opened(&self) {
        self.far.opened().await;
    }

    /// Reads the certificates for links to other nodes and for etcd again, for new connections. The
    /// fault of one does not hold up the other.
    ///
    /// # Errors
    /// New certificates cannot be used, and their former ones stay in force.
    pub(crate) async fn renew(&self, config: &config::Cluster) -> anyhow::Result<()> {
        let renew = |members: &MemberWays| members.renew(&config.directory);
        let of_engine = self.members.as_ref().map_or(Ok(()), renew);
        self.links.renew(&peer_settings(config)).await.and(of_engine)
    }

    /// Makes no more links to other nodes. Completes when no link has a stream.
    pub(crate) async fn leave(&self) {
        self.links.leave().await;
    }
}

/// The interval at which the connected clients that were enrolled are read again. A node says at
/// once that a client has changed, and the message may get lost.
const REVIEW: Duration = Duration::from_secs(30);

/// Makes the clients that were enrolled at this node known to the other nodes, and learns what
/// other nodes change.
async fn follow_enrolled(registry: Arc<Registry>, mut readiness: watch::Receiver<bool>) {
    loop {
        if readiness.wait_for(|is_ready| *is_ready).await.is_err() {
            return;
        }
        registry.share_enrolled().await;
        sleep(REVIEW).await;
    }
}

/// The owner's side for the links.
#[derive(Debug)]
struct Serves(Arc<Hops>);

impl From<HopStream> for HopVisitor {
    fn from(stream: HopStream) -> Self {
        let HopStream { visitor: address, priority, fields } = stream;
        Self { address, priority, fields }
    }
}

impl ServesHops for Serves {
    fn stream(
        &self,
        worker: &Rc<Worker>,
        _from: &NodeId,
        hop: Hop,
        stream: HopStream,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        self.0.stream(worker, hop, stream.into(), inlet)
    }

    fn answer(&self, worker: &Rc<Worker>, asks: NodeAsks, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        self.0.answer(worker, asks, inlet)
    }

    fn flow(
        &self,
        worker: &Rc<Worker>,
        _from: &NodeId,
        hop: Hop,
        flow: HopStream,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        self.0.flow(worker, hop, flow.into(), inlet)
    }
}
