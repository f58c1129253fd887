//! What all links of this node share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster::names::NodeId;
use config::Common;
use families::nodes::NodeTransports;
use node::memory;
use node::session::Handle;
use proto::greeting::Name;
use proto::{InstanceId, LinkConfig};

use crate::incoming::Incomings;
use crate::keys::PlainKeys;
use crate::mail::Mail;
use crate::serves::ServesHops;
use crate::table::NodeTable;

/// How long a link between two nodes waits for another carrier. Visitors of another node wait for
/// 10 s, and a client whose node is gone comes back at another node within seconds.
const RESUME: Duration = Duration::from_secs(10);

/// The silence after which a node asks another node for a sign of life. The messages of the cluster
/// are as frequent.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// The largest window of a stream, in bytes. A node that joins a stream of another node with a
/// stream of a client holds up to a window of each direction while one end reads nothing. 4 MiB
/// carry 3.3 Gbit/s at 10 ms between two nodes, and on one machine as much as 16 MiB
/// (`how_fast_are_bulk_streams_over_a_joint`), which a stalled stream would hold up to 24 MiB of.
const WINDOW: u64 = 4 << 20;

/// What all links of this node share.
pub(crate) struct NodeShared {
    /// This node.
    pub(crate) own: NodeId,
    /// The name of this node in greetings.
    pub(crate) name: Name,
    /// The random id of this process.
    pub(crate) instance: InstanceId,
    pub(crate) transports: NodeTransports,
    pub(crate) keys: PlainKeys,
    pub(crate) common: Common,
    pub(crate) handles: Arc<[Handle]>,
    pub(crate) table: Arc<dyn NodeTable>,
    pub(crate) serves: Arc<dyn ServesHops>,
    pub(crate) mail: Mail,
    /// The number of the next link.
    pub(crate) serials: Arc<AtomicU64>,
    /// The links of other nodes to this node.
    pub(crate) incomings: Incomings,
    leaving: AtomicBool,
}

impl fmt::Debug for NodeShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeShared({})", self.own)
    }
}

/// The part of [`NodeShared`] that its owner brings.
pub(crate) struct SharedParts {
    pub(crate) own: NodeId,
    pub(crate) name: Name,
    pub(crate) transports: NodeTransports,
    pub(crate) keys: PlainKeys,
    pub(crate) common: Common,
    pub(crate) handles: Arc<[Handle]>,
    pub(crate) table: Arc<dyn NodeTable>,
    pub(crate) serves: Arc<dyn ServesHops>,
    pub(crate) mail: Mail,
    pub(crate) serials: Arc<AtomicU64>,
}

impl NodeShared {
    pub(crate) fn new(parts: SharedParts) -> Arc<Self> {
        let SharedParts {
            own,
            name,
            transports,
            keys,
            common,
            handles,
            table,
            serves,
            mail,
            serials,
        } = parts;
        Arc::new(Self {
            own,
            name,
            instance: InstanceId(::link::random()),
            transports,
            keys,
            common,
            handles,
            table,
            serves,
            mail,
            serials,
            incomings: Incomings::default(),
            leaving: AtomicBool::new(false),
        })
    }

    /// The settings of links between nodes.
    pub(crate) fn link_config(&self) -> LinkConfig {
        let config = memory::link_config(&self.common);
        LinkConfig {
            window_initial: config.window_initial.min(WINDOW),
            window_max: config.window_max.min(WINDOW),
            replay_per_stream: config.replay_per_stream.min(WINDOW),
            resume_timeout: config.resume_timeout.min(RESUME),
            keepalive: config.keepalive.min(KEEPALIVE),
            ..config
        }
    }

    /// Whether this node makes and takes no further links.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// This node makes and takes no further links.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }
}
