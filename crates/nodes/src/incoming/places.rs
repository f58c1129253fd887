//! The workers of the links of other nodes. A link is on the worker where its first carrier
//! arrived; its later carriers may arrive on any worker.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cluster::names::NodeId;
use logging::RepeatLimit;
use net::brake::Failures;
use net::source::prefix;
use node::session::Session;
use proto::greeting::{LinkSecret, Name};
use proto::{InstanceId, LinkId};

use crate::lock::lock;

/// The maximum number of links of one other node: a process has one for each of its workers, and
/// during an upgrade two processes have links.
const LINKS_MAX: usize = 64;

/// The most pairs of a name and a source that have failed to prove the secret of the cluster.
const GUESSERS: usize = 1024;

/// The pause after such a failure doubles so often, to 3.2 s: less than the time-out of a greeting.
const DOUBLINGS: u32 = 5;

/// The links of other nodes, over all workers.
#[derive(Debug)]
pub(crate) struct Incomings {
    places: Mutex<HashMap<LinkId, IncomingPlace>>,
    /// The first bytes of the ids of links.
    generation: [u8; 4],
    complaints: Mutex<RepeatLimit<(IpAddr, String)>>,
    /// The last failed log-in, and why it failed.
    refused: Mutex<Option<(IpAddr, String)>>,
    failures: Mutex<Failures<(Name, IpAddr)>>,
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
        let failures = Mutex::new(Failures::new(GUESSERS, DOUBLINGS));
        let (places, refused) = Default::default();
        Self { places, generation: ::link::random(), complaints, refused, failures }
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

    /// Counts a wrong proof of the secret of the cluster. Returns the time for which its refusal
    /// waits.
    pub(super) fn brake(&self, name: &Name, source: IpAddr, now: Instant) -> Duration {
        lock(&self.failures).count((name.clone(), prefix(source)), now)
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn wrong_proofs_wait_longer_each_time_and_a_neighbour_does_not() {
        let (incomings, now) = (Incomings::default(), Instant::now());
        let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let pauses = [(); 7].map(|()| incomings.brake(&a, source, now).as_millis());
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 3200]);
        assert_eq!(incomings.brake(&b, source, now).as_millis(), 100, "another name");
        assert_eq!(
            incomings.brake(&a, [192, 0, 2, 1].into(), now).as_millis(),
            100,
            "another source"
        );
    }
}
