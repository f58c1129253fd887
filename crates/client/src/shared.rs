//! The data that all parts of a client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use capture::observed::Observed;
use config::ClientConfig;
use ops::events::Events;
use peer::accept::PeerHost;
use peer::direct::DirectPaths;
use peer::links::PeerLinks;
use peer::material::Materials;
use proto::InstanceId;
use targets::{Checked, Pools, Records};
use tokio::sync::Notify;

use crate::forwards::Forwards;
use crate::found::FirstQuestion;
use crate::homes::HomesKnown;
use crate::invites::Invites;
use crate::measured::Measured;
use crate::uplink::{Uplink, Uplinks};

/// The data that all parts of a client share.
#[derive(Debug)]
pub(crate) struct ClientShared {
    /// The configuration in force.
    pub(crate) config: ArcSwap<ClientConfig>,
    /// The links of visitors of private services.
    pub(crate) host: PeerHost,
    /// The certificates of visits.
    pub(crate) materials: Materials,
    /// The direct paths to other clients.
    pub(crate) direct: DirectPaths,
    /// The links to private services of other clients.
    pub(crate) visits: Arc<PeerLinks>,
    /// What is measured of the paths.
    pub(crate) measured: Arc<Measured>,
    /// The servers.
    pub(crate) uplinks: Uplinks,
    /// Notified when no link of any server is live.
    pub(crate) outage: Notify,
    /// Notified when a reload has changed what names the servers.
    pub(crate) source_changed: Notify,
    /// The nodes of the cluster of the server, and the servers that were added as homes.
    pub(crate) homes: Arc<HomesKnown>,
    /// The question about the servers that was asked before the start.
    pub(crate) first_question: Option<FirstQuestion>,
    pub(crate) forwards: Forwards,
    /// The records about the targets of the services.
    pub(crate) records: Records,
    /// This process is stopping: it publishes nothing and begins no link.
    pub(crate) leaving: AtomicBool,
    /// This process replaces another, whose server in charge it knows.
    pub(crate) continues: bool,
    /// The random id of this process.
    pub(crate) instance: InstanceId,
    /// The number of the next link.
    pub(crate) serials: Arc<AtomicU64>,
    /// The number of changes of the network of this machine.
    pub(crate) network_changes: AtomicU64,
    /// The events of changes.
    pub(crate) events: Events,
    /// The services whose visits are reported, and the requests that are kept.
    pub(crate) observed: Observed,
    /// The invitations of visitors.
    pub(crate) invites: Invites,
}

impl Checked for ClientShared {
    fn services(&self) -> Option<Vec<config::Service>> {
        let is_checked = |service: &&config::Service| service.health.is_some();
        let all = self.config.load();
        (!self.is_leaving()).then(|| all.services.iter().filter(is_checked).cloned().collect())
    }

    fn pools(&self) -> &Pools {
        &self.records.pools
    }
}

impl ClientShared {
    /// Whether this process is stopping.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Notes that a link was lost: without a live link, what names the servers is asked again.
    pub(crate) fn note_loss(&self) {
        if self.uplinks.all().iter().all(|uplink| uplink.session().live() == 0) {
            self.outage.notify_one();
        }
    }

    /// The server of visits and commands.
    pub(crate) fn uplink(&self) -> Arc<Uplink> {
        self.uplinks.preferred()
    }
}
