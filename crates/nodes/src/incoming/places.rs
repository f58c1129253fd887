//! The workers of the links of other nodes. A link is on the worker where its first carrier
//! arrived; its later carriers may arrive on any worker.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use cluster::names::NodeId;
use logging::RepeatLimit;
use node::session::Session;
use proto::greeting::{LinkSecret, Name};
use proto::{InstanceId, LinkId};

use crate::lock::lock;

/// The maximum number of links of one other node: a process has one for each of its workers, and
/// during an upgrade two processes have links.
const LINKS_MAX: usize = 64;

/// The links of other nodes, over all workers.
#[derive(Debug)]
pub(crate) struct Incomings {
    places: Mutex<HashMap<LinkId, IncomingPlace>>,
    /// The first bytes of the ids of links.
    generation: [u8; 4],
    complaints: Mutex<RepeatLimit<(IpAddr, String)>>,
    /// The last failed log-in, and why it failed.
    refused: Mutex<Option<(IpAddr, String)>>,
}

/// A link of another node.
#[derive(Debug)]
pub(super) struct IncomingPlace {
    pub(super) name: Name,
    pub(super) node: NodeId,
    pub(super) worker: usize,
    pub(super) serial: u64,
    /// The session of all links of the node.
    pub(super) session: Arc<Session>,
    pub(super) secret: LinkSecret,
    pub(super) instance: InstanceId,
}

impl Default for Incomings {
    fn default() -> Self {
        let complaints = Mutex::new(RepeatLimit::new());
        let (places, refused) = Default::default();
        Self { places, generation: ::link::random(), complaints, refused }
    }
}

impl Incomings {
    pub(super) fn places(&self) -> MutexGuard<'_, HashMap<LinkId, IncomingPlace>> {
        lock(&self.places)
    }

    pub(super) const fn generation(&self) -> [u8; 4] {
        self.generation
    }

    /// Whether a node may have another link.
    pub(super) fn have_room(&self, name: &Name) -> bool {
        self.places().values().filter(|place| place.name == *name).count() < LINKS_MAX
    }

    /// The secret of a link of this process of a node.
    pub(super) fn secret(
        &self,
        name: &Name,
        instance: InstanceId,
        link: LinkId,
    ) -> Option<LinkSecret> {
        let places = self.places();
        let place = places.get(&link)?;
        let is_own = place.name == *name && place.instance == instance;
        is_own.then(|| place.secret.clone())
    }

    /// Forgets a link that has ended.
    pub(super) fn forget(&self, link: LinkId) {
        self.places().remove(&link);
    }

    /// The sessions of the nodes that have links to this node.
    pub(crate) fn sessions(&self) -> HashMap<NodeId, Arc<Session>> {
        let places = self.places();
        places.values().map(|place| (place.node.clone(), Arc::clone(&place.session))).collect()
    }

    /// The last failed log-in, and why it failed.
    pub(crate) fn refused(&self) -> Option<(IpAddr, String)> {
        lock(&self.refused).clone()
    }

    /// Records a failed log-in from this address. Whether it is to be logged, and the number of
    /// those that were not.
    pub(super) fn complain(&self, source: IpAddr, why: &str) -> Option<u64> {
        *lock(&self.refused) = Some((source, why.to_owned()));
        lock(&self.complaints).pass((source, why.to_owned()), Instant::now())
    }
}
