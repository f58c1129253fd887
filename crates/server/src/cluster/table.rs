//! The claims that this server has from the cluster, each under the number that the server was
//! given first.
//!
//! The number of a claim changes when the node gets a new epoch, and events come on another way
//! than the answers to claims. So an event may name a claim whose answer was not handled yet: while
//! a claim of a resource is under way, the events of the resource are kept, and they are applied
//! when the last such claim is answered. An event that names no claim of this server by then is
//! about a claim that was released or replaced.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use cluster::names::{Generation, Instance, Key};

use crate::directory::Owner;

/// The most events of one resource that are kept. Claims are answered within 5 s, and in that time
/// a resource has a few events at most.
const EARLY: usize = 64;

/// The most resources of which is known that a process of this server has lost them to another
/// process of its client.
const YIELDED: usize = 16_384;

/// An event of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimNews {
    /// Another owner has the resource of this claim.
    Lost(Generation),
    /// The claim has another number now.
    Renumbered(Generation, Generation),
}

/// A claim that this server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldClaim {
    /// The owner as the server names it.
    pub(super) owner: Owner,
    /// The process of the client as the cluster names it.
    pub(super) instance: Instance,
    /// The number that the server knows.
    pub(super) given: Generation,
    /// The present number.
    pub(super) now: Generation,
    /// What other nodes name the claim by: [`cluster::record::fence`].
    pub(super) fence: u64,
}

/// What is known of a resource.
#[derive(Debug, Default)]
struct OfKey {
    held: Option<HeldClaim>,
    /// The claims of the resource that are under way.
    flights: usize,
    /// Events that came meanwhile.
    early: VecDeque<ClaimNews>,
}

/// A claim that another owner has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LostClaim {
    pub(super) key: Key,
    pub(super) claim: HeldClaim,
}

/// All claims of this server.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    keys: BTreeMap<Key, OfKey>,
    /// The clients of the claims that are held, by the fence of the claim.
    clients: HashMap<u64, Arc<str>>,
    /// Claims that were lost, and not taken by the server yet.
    lost: VecDeque<LostClaim>,
    /// The resources that a process has lost, with its session, in the order of the losses. Such a
    /// process does not take the resource from its successor, unless it has logged in since.
    yielded: BTreeMap<Key, (Instance, u64)>,
    order: VecDeque<Key>,
}

impl ClaimTable {
    /// The claim of a resource.
    pub(super) fn held(&self, key: &Key) -> Option<&HeldClaim> {
        self.keys.get(key)?.held.as_ref()
    }

    /// A claim of the resource is under way.
    pub(super) fn begin(&mut self, key: &Key) {
        self.keys.entry(key.clone()).or_default().flights += 1;
    }

    /// The resource was given to this server.
    pub(super) fn hold(&mut self, key: &Key, claim: HeldClaim) {
        self.yielded.remove(key);
        let (fence, client) = (claim.fence, Arc::clone(&claim.owner.client));
        let former = self.keys.entry(key.clone()).or_default().held.replace(claim);
        if let Some(former) = former {
            self.clients.remove(&former.fence);
        }
        self.clients.insert(fence, client);
    }

    /// Whether a client holds a resource by a claim with this fence.
    pub(super) fn has_claim(&self, client: &str, fence: u64) -> bool {
        self.clients.get(&fence).is_some_and(|own| **own == *client)
    }

    /// The resource that a client holds by the claim with this fence, and the number that the
    /// server knows.
    pub(super) fn claimed(&self, client: &str, fence: u64) -> Option<(Key, Generation)> {
        if !self.has_claim(client, fence) {
            return None;
        }
        let held = self.keys.iter().filter_map(|(key, of)| Some((key, of.held.as_ref()?)));
        let (key, claim) = held.into_iter().find(|(_, claim)| claim.fence == fence)?;
        Some((key.clone(), claim.given))
    }

    /// A claim of the resource is not under way any more.
    pub(super) fn end(&mut self, key: &Key) {
        let Some(of) = self.keys.get_mut(key) else { return };
        of.flights = of.flights.saturating_sub(1);
        if of.flights == 0 {
            for news in std::mem::take(&mut of.early) {
                self.apply(key, news);
            }
        }
        self.tidy(key);
    }

    /// An event of the cluster.
    pub(super) fn hear(&mut self, key: &Key, news: ClaimNews) {
        let Some(of) = self.keys.get_mut(key) else { return };
        if of.flights == 0 {
            self.apply(key, news);
            return self.tidy(key);
        }
        if of.early.len() >= EARLY {
            of.early.pop_front();
        }
        of.early.push_back(news);
    }

    fn apply(&mut self, key: &Key, news: ClaimNews) {
        let Some(of) = self.keys.get_mut(key) else { return };
        let now = of.held.as_ref().map(|held| held.now);
        match news {
            ClaimNews::Renumbered(former, generation) if now == Some(former) => {
                if let Some(held) = &mut of.held {
                    held.now = generation;
                }
            }
            ClaimNews::Lost(generation) if now == Some(generation) => {
                if let Some(claim) = of.held.take() {
                    self.clients.remove(&claim.fence);
                    self.note_yielded(key, (claim.instance, claim.owner.process));
                    self.lost.push_back(LostClaim { key: key.clone(), claim });
                }
            }
            ClaimNews::Renumbered(..) | ClaimNews::Lost(_) => {}
        }
    }

    fn note_yielded(&mut self, key: &Key, process: (Instance, u64)) {
        if self.yielded.insert(key.clone(), process).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > YIELDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.yielded.remove(&oldest);
        }
    }

    /// Whether this process has lost the resource in this session, and has not got it since.
    pub(super) fn has_yielded(&self, key: &Key, process: (Instance, u64)) -> bool {
        self.yielded.get(key) == Some(&process)
    }

    /// The server releases the claim of this number. Returns the present number; `None`: the claim
    /// is not the latest claim of this server.
    pub(super) fn release(&mut self, key: &Key, given: Generation) -> Option<Generation> {
        let of = self.keys.get_mut(key)?;
        let held = of.held.take_if(|held| held.given == given)?;
        self.clients.remove(&held.fence);
        self.tidy(key);
        Some(held.now)
    }

    /// A claim that was lost.
    pub(super) fn take_lost(&mut self) -> Option<LostClaim> {
        self.lost.pop_front()
    }

    /// Whether a claim was lost that the server has not taken.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    fn tidy(&mut self, key: &Key) {
        if self.keys.get(key).is_some_and(|of| of.held.is_none() && of.flights == 0) {
            self.keys.remove(key);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.clients.is_empty() && self.lost.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use cluster::names::{Class, PortProtocol};

    use super::*;
    use crate::directory::NodeEpoch;

    fn key(port: u16) -> Key {
        Key::Port(PortProtocol::Tcp, Class::Public, port)
    }

    fn claim(number: u64) -> HeldClaim {
        let owner = Owner { client: "home".into(), process: 1, node: NodeEpoch::HERE };
        let (fence, number) = (100 + number, Generation(number));
        HeldClaim { owner, instance: Instance(7), given: number, now: number, fence }
    }

    const fn renumbered(former: u64, now: u64) -> ClaimNews {
        ClaimNews::Renumbered(Generation(former), Generation(now))
    }

    const fn lost(number: u64) -> ClaimNews {
        ClaimNews::Lost(Generation(number))
    }

    #[test]
    fn a_claim_is_released_by_its_newest_number() {
        let mut table = ClaimTable::default();
        table.begin(&key(1));
        table.hold(&key(1), claim(5));
        table.end(&key(1));
        table.hear(&key(1), renumbered(5, 8));
        table.hear(&key(1), renumbered(5, 9));
        table.hear(&key(1), renumbered(8, 11));
        assert_eq!(table.release(&key(1), Generation(11)), None);
        assert_eq!(table.release(&key(1), Generation(5)), Some(Generation(11)));
        assert_eq!(table.release(&key(1), Generation(5)), None);
        assert!(table.is_empty());
    }

    #[test]
    fn a_claim_is_known_by_its_fence_while_it_is_held() {
        let mut table = ClaimTable::default();
        let has = |table: &ClaimTable, fence| table.has_claim("home", fence);
        table.hold(&key(1), claim(5));
        assert!(has(&table, 105) && !table.has_claim("office", 105));
        table.hear(&key(1), renumbered(5, 8));
        assert!(has(&table, 105), "the number is not a part of the fence");
        assert_eq!(table.claimed("home", 105), Some((key(1), Generation(5))));
        assert_eq!((table.claimed("office", 105), table.claimed("home", 108)), (None, None));
        // The terms of the service have changed: it has another claim.
        table.hold(&key(1), claim(9));
        assert!(has(&table, 109) && !has(&table, 105));
        // The claim is passed on with the same terms.
        table.hold(&key(1), HeldClaim { fence: 109, ..claim(10) });
        assert!(has(&table, 109));
        table.hear(&key(1), lost(10));
        assert!(!has(&table, 109));
        table.hold(&key(2), claim(11));
        assert_eq!(table.release(&key(2), Generation(11)), Some(Generation(11)));
        assert!(!has(&table, 111));
    }

    #[test]
    fn events_that_come_before_the_answer_are_applied_with_it() {
        let mut table = ClaimTable::default();
        // The claim is renumbered and lost before its answer is handled.
        table.begin(&key(1));
        table.hear(&key(1), renumbered(5, 8));
        table.hear(&key(1), lost(8));
        table.hold(&key(1), claim(5));
        assert_eq!(table.take_lost(), None);
        table.end(&key(1));
        let claim_lost = table.take_lost().unwrap();
        assert_eq!((claim_lost.claim.given, claim_lost.claim.now), (Generation(5), Generation(8)));
        assert!(table.has_yielded(&key(1), (Instance(7), 1)) && table.is_empty());
        assert!(!table.has_yielded(&key(1), (Instance(7), 2)), "it has logged in again");

        // The claim was passed on: the event names the former number.
        table.begin(&key(2));
        table.hold(&key(2), claim(5));
        table.end(&key(2));
        table.begin(&key(2));
        table.hear(&key(2), lost(5));
        table.hold(&key(2), claim(6));
        table.end(&key(2));
        assert_eq!(table.take_lost(), None);
        assert_eq!(table.held(&key(2)), Some(&claim(6)));

        // The claim could not be passed on, because another owner has the resource.
        table.begin(&key(2));
        table.hear(&key(2), lost(6));
        table.end(&key(2));
        assert!(table.take_lost().is_some() && table.is_empty());
    }

    #[test]
    fn events_wait_for_the_last_claim_of_the_resource_and_only_for_these() {
        let mut table = ClaimTable::default();
        for _ in 0..2 {
            table.begin(&key(1));
        }
        table.hold(&key(1), claim(5));
        table.hear(&key(1), lost(5));
        table.end(&key(1));
        assert_eq!(table.take_lost(), None);
        table.end(&key(1));
        assert!(table.take_lost().is_some());
        // Nobody has the claim.
        table.hear(&key(3), lost(9));
        assert!(table.is_empty());
    }

    #[test]
    fn what_is_kept_of_lost_resources_is_bounded() {
        let mut table = ClaimTable::default();
        for n in 0..YIELDED + 10 {
            let key = Key::Host(cluster::names::Space::Http, n.to_string().into());
            table.hold(&key, claim(1));
            table.hear(&key, lost(1));
            assert!(table.take_lost().is_some());
        }
        assert_eq!(table.yielded.len(), YIELDED);
        table.hold(&key(1), claim(1));
        for _ in 0..2 * EARLY {
            table.begin(&key(1));
            table.hear(&key(1), lost(9));
        }
        assert_eq!(table.keys[&key(1)].early.len(), EARLY);
    }
}
