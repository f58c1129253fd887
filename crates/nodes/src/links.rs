//! The handle of all links between this node and the other nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cluster::names::NodeId;
use node::session::{Handle, Session, Worker};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::incoming;
use crate::listeners::{NodeListeners, PeerSettings, certificates};
use crate::mail::Mail;
use crate::outgoing::{Outgoings, follow};
use crate::serves::ServesHops;
use crate::shared::{NodeShared, SharedParts};
use crate::status::{self, NodeLinkStatus};
use crate::table::NodeTable;

/// The poll interval for the last streams of a node that leaves.
const LOOK: Duration = Duration::from_millis(100);

/// The longest wait for the other nodes, which dial the next process of this node.
const RETIRED: Duration = Duration::from_secs(2);

/// The poll interval for that: clients move afterwards.
const LOOK_RETIRED: Duration = Duration::from_millis(10);

/// The server around the links.
#[derive(Debug)]
pub struct NodeSide {
    /// The workers.
    pub handles: Arc<[Handle]>,
    /// The node of the cluster.
    pub table: Arc<dyn NodeTable>,
    /// Serves the streams of other nodes.
    pub serves: Arc<dyn ServesHops>,
    /// The messages of the cluster: a clone of what the cluster has.
    pub mail: Mail,
    /// The number of the next link of this process.
    pub serials: Arc<AtomicU64>,
}

/// All links between this node and the other nodes. Clones are the same handle. The links live as
/// long as the workers.
#[derive(Clone, Debug)]
pub struct NodeLinks {
    shared: Arc<NodeShared>,
    outgoings: Arc<Outgoings>,
}

impl NodeLinks {
    /// Accepts other nodes from now on, and dials the nodes of the table.
    pub async fn start(listeners: NodeListeners, side: NodeSide) -> Self {
        let NodeListeners { own, name, transports, common, bound, keys, .. } = listeners;
        let NodeSide { handles, table, serves, mail, serials } = side;
        let parts = SharedParts {
            own,
            name,
            transports,
            keys,
            common,
            handles: Arc::clone(&handles),
            table,
            serves,
            mail,
            serials,
        };
        let shared = NodeShared::new(parts);
        for port in bound {
            let address = port.address;
            for (handle, open) in handles.iter().zip(port.by_worker) {
                let shared = Arc::clone(&shared);
                let accept = move |worker: &Rc<Worker>| match open() {
                    Ok(listener) => incoming::accept(worker, &shared, listener),
                    Err(error) => {
                        tracing::error!(%address, "cannot accept other nodes at {address}: {error}");
                    }
                };
                // A worker that has stopped accepts nobody.
                let _ = handle.run(accept).await;
            }
        }
        let outgoings = Arc::<Outgoings>::default();
        if let Some(first) = handles.first() {
            let (shared, outgoings) = (Arc::clone(&shared), Arc::clone(&outgoings));
            let follow = move |worker: &Rc<Worker>| {
                drop(spawn_local(follow(Rc::clone(worker), shared, outgoings)));
            };
            // A worker that has stopped makes no links.
            let _ = first.run(follow).await;
        }
        Self { shared, outgoings }
    }

    /// The links of this node to another node: each worker finds its own link by
    /// [`State::live_link`](node::session::State::live_link), and a worker without a link asks for
    /// one by [`Session::demand`]. `None`: the node has not been living for a minute.
    #[must_use]
    pub fn session(&self, node: &NodeId) -> Option<Arc<Session>> {
        self.outgoings.remote(node).map(|remote| Arc::clone(&remote.session))
    }

    /// Reads the certificates again, for later connections. The present links retire: each has a
    /// successor, and ends with its last stream. The addresses and keys of `settings` are not
    /// looked at, and without certificates nothing happens.
    ///
    /// # Errors
    /// The new certificates cannot be used, and the former ones stay in force.
    pub async fn renew(&self, settings: &PeerSettings) -> anyhow::Result<()> {
        let Some(files) = &settings.tls else { return Ok(()) };
        let read = certificates(&self.shared.own, files)?;
        self.shared.transports.renew(read, &self.shared.common)?;
        let Some(first) = self.shared.handles.first() else { return Ok(()) };
        let (shared, outgoings) = (Arc::clone(&self.shared), Arc::clone(&self.outgoings));
        // A worker that has stopped makes no links.
        let _ = first.run(move |worker| outgoings.begin_anew(worker, &shared)).await;
        Ok(())
    }

    /// What is shown of the links, by node.
    pub async fn status(&self) -> BTreeMap<NodeId, NodeLinkStatus> {
        status::of(&self.shared, &self.outgoings).await
    }

    /// The address from which somebody failed to log in last, and why.
    #[must_use]
    pub fn refused(&self) -> Option<(IpAddr, String)> {
        self.shared.incomings.refused()
    }

    /// Asks the other nodes for links to the next process of this node, which has the ports.
    /// Returns when they open no more streams at this process, and after 2 s in any case.
    pub async fn retire_incoming(&self) {
        let retired = async {
            loop {
                let left = incoming::retire(&self.shared).await;
                if left {
                    return;
                }
                sleep(LOOK_RETIRED).await;
            }
        };
        // A node that does not answer opens no streams either.
        let _ = timeout(RETIRED, retired).await;
    }

    /// The links to other nodes end with their last streams, and no more are made.
    pub async fn retire_outgoing(&self) {
        self.outgoings.leave(&self.shared).await;
    }

    /// Makes and takes no more links. Returns when no link has a stream: the caller sets a limit.
    pub async fn leave(&self) {
        self.shared.leave();
        self.outgoings.leave(&self.shared).await;
        loop {
            incoming::close_idle(&self.shared).await;
            let all = status::of(&self.shared, &self.outgoings).await;
            if all.values().all(|links| links.streams == 0) {
                return;
            }
            sleep(LOOK).await;
        }
    }
}
