//! The invariants, checked against what the engine has really done.
//!
//! | invariant | checked |
//! |---|---|
//! | I1: nobody is served by a process that was superseded more than 13 s ago, by a node with a lease | for each served visitor |
//! | I2: nobody is served by a session that was superseded before the last renewal of its node | for each served visitor |
//! | I3: 13 s after the last fault each living client is served from each node | [`ModelWorld::check_reach`] |
//! | I4: of two processes of a client one is in charge, after 2 kicks at most | [`ModelWorld::check_charge`] |
//! | I5: a release frees no newer claim, and a claim of a living node is replaced only by a claim that expects it | for each change of the store |
//! | I6: nothing is held for ever by nobody | [`ModelWorld::check_holders`] |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::people::{ModelVisit, ServerSession};
use super::world::{ModelWorld, millis};
use crate::Moment;
use crate::engine::{Change, KeyValue, NoReply, Operation, Revision};
use crate::keys::{Keyspace, RecordPlace};
use crate::names::{ClientName, Generation, Instance, Key, NodeEpoch, NodeId};
use crate::node::{EngineReply, EngineRequest, Lane, NodeEvent};
use crate::record::{At, HOMES, Holder, Holding, Record as _};
use crate::testing::ModelStore;

/// The bound of I1 and I3: a lease and a renewal.
pub(super) const BOUND: Duration = Duration::from_secs(13);

/// The most kicks for each process of a client but the first.
const KICKS: u32 = 2;

/// A version of the record of a client.
#[derive(Clone, Debug)]
struct Version {
    time: Moment,
    at: Revision,
    record: Option<At>,
}

/// What has really happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    known: Revision,
    versions: BTreeMap<ClientName, Vec<Version>>,
    /// The last renewal of the record of each node whose answer has arrived.
    beaten: BTreeMap<usize, Revision>,
    expected: BTreeSet<(Key, Generation)>,
    /// The kicks of each client since the last new process, and the most that are allowed.
    kicks: BTreeMap<ClientName, (u32, u32)>,
    pub(super) was_restored: bool,
    pub(super) events: BTreeMap<String, u64>,
    pub(super) served: u64,
    pub(super) not_served: u64,
    pub(super) held: u64,
    pub(super) taken: u64,
    pub(super) away: u64,
    pub(super) losses: u64,
    pub(super) kicked: u64,
    /// The visitors that had to be served and were not.
    failed: Vec<String>,
}

impl Truth {
    /// Looks at the changes of the store, which a node has made or the end of leases.
    pub(super) fn learn(
        &mut self,
        time: Moment,
        store: &ModelStore,
        keys: &Keyspace,
        by: Option<&NodeId>,
    ) {
        let start = store.history.partition_point(|event| event.at <= self.known);
        for event in &store.history[start..] {
            let (key, value) = match &event.change {
                Change::Put(found) => (&found.key, Some(&found.value)),
                Change::Delete { key, .. } => (key, None),
            };
            match keys.place(key) {
                Some(RecordPlace::At(client)) => {
                    let record = value.map(|value| At::decode(value).unwrap());
                    if let (None, Some(former)) = (&record, &event.former) {
                        check_homes(store, keys, by, former);
                    }
                    let versions = self.versions.entry(client).or_default();
                    versions.push(Version { time, at: event.at, record });
                }
                Some(RecordPlace::Resource(key)) => {
                    if let (Some(former), Some(by)) = (&event.former, by) {
                        let now = value.map(|value| Holding::decode(value).unwrap());
                        self.check_claim(store, keys, (&key, by), former, now);
                    }
                }
                Some(
                    RecordPlace::Batch(_)
                    | RecordPlace::Blob(_)
                    | RecordPlace::Former(..)
                    | RecordPlace::Incarnation
                    | RecordPlace::Node(_)
                    | RecordPlace::Revoked(_),
                ) => {}
                None => panic!("{key:?} is no key"),
            }
        }
        self.known = store.revision;
    }

    /// I5.
    fn check_claim(
        &self,
        store: &ModelStore,
        keys: &Keyspace,
        (key, by): (&Key, &NodeId),
        former: &KeyValue,
        now: Option<Holding>,
    ) {
        let holder = Holding::decode(&former.value).unwrap();
        let is_left = |it: &Holder| it.node != *by && is_alive(store, keys, &it.node, it.epoch);
        let others: Vec<_> = holder.holders().into_iter().filter(is_left).collect();
        // Until all nodes know that the store has gone back, a number may be that of a claim which
        // was lost. etcd gives no number twice if a copy is restored with `--bump-revision`.
        if self.was_restored || others.is_empty() {
            return;
        }
        let Some(now) = now else {
            panic!("I5: {by} has freed {key:?}, which {holder:?} holds");
        };
        if now.is_of(&holder.client, holder.instance) {
            let stays = |it: &Holder| now.epoch_of(&it.node) == Some(it.epoch);
            assert!(
                others.iter().all(stays) || now.also.len() + 1 == HOMES,
                "I5: {by} has made {now:?} of {holder:?}, a home of which is gone",
            );
            return;
        }
        let is_expected = self.expected.contains(&(key.clone(), former.modified.into()));
        assert!(
            is_expected && now.client == holder.client,
            "I5: {by} has replaced {holder:?} by {now:?}, which did not expect it",
        );
    }

    /// When and by which change a session was superseded, after the record named its process, at
    /// this home if one is given.
    pub(super) fn superseded(
        &self,
        client: &ClientName,
        session: &ServerSession,
        home: Option<&NodeId>,
    ) -> Option<(Moment, Revision)> {
        let versions = self.versions.get(client)?;
        let names = |version: &Version| {
            version.record.as_ref().map(|record| record.instance == session.instance)
        };
        let has_home = |version: &Version| {
            let mut homes = version.record.iter().flat_map(|record| &record.homes);
            home.is_none_or(|home| homes.any(|it| it.node == *home))
        };
        let is_own = |version: &Version| {
            names(version) == Some(true) && version.time >= session.since && has_home(version)
        };
        // Without a record whoever is logged in is in charge.
        if !versions.iter().any(is_own) || versions.last()?.record.is_none() {
            return None;
        }
        // The process may have been in charge again meanwhile.
        let last = versions.iter().rposition(|version| names(version) == Some(true))?;
        let later = versions[last..].iter().find(|version| names(version) == Some(false))?;
        Some((later.time, later.at))
    }

    /// I1 and I2.
    pub(super) fn served(
        &mut self,
        now: Moment,
        visit: &ModelVisit,
        owner: usize,
        id: &NodeId,
        session: &ServerSession,
        is_leased: bool,
    ) {
        self.served += 1;
        let ServerSession { instance, .. } = session;
        if let Some((time, _)) = self.superseded(&visit.client, session, None) {
            let late = now.since(time);
            assert!(
                !is_leased || late <= BOUND,
                "I1: {} is served by {instance:?} at {id}, which was superseded {late:?} ago",
                visit.client,
            );
        }
        if let Some((_, at)) = self.superseded(&visit.client, session, Some(id)) {
            assert!(
                self.beaten.get(&owner).is_none_or(|beaten| *beaten < at),
                "I2: {} is served by {instance:?} at {id}, superseded by {at:?} before a renewal",
                visit.client,
            );
        }
    }

    pub(super) fn turned_away(&mut self, visit: &ModelVisit, why: &str) {
        self.not_served += 1;
        if visit.must {
            self.failed.push(format!("{} at n{}: {why}", visit.client, visit.ingress));
        }
    }

    /// A node gets an answer of the engine.
    pub(super) fn answered(
        &mut self,
        node: usize,
        request: &EngineRequest,
        answer: &Result<EngineReply, NoReply>,
    ) {
        let EngineRequest::Transact(Lane::Renewals, transaction) = request else { return };
        let Ok(EngineReply::Done(done)) = answer else { return };
        let is_beat = matches!(
            transaction.then.as_slice(),
            [Operation::Put { .. }, Operation::Range(_), Operation::Range(_)]
        );
        if is_beat && done.held {
            self.beaten.insert(node, done.revision);
        }
    }

    pub(super) fn crashed(&mut self, node: usize) {
        self.beaten.remove(&node);
    }

    pub(super) fn expects(&mut self, key: &Key, generation: Generation) {
        self.expected.insert((key.clone(), generation));
    }

    pub(super) fn kicked(&mut self, client: &ClientName) {
        self.kicked += 1;
        self.kicks.entry(client.clone()).or_default().0 += 1;
    }

    pub(super) fn reported(&mut self, event: &NodeEvent) {
        assert!(!matches!(event, NodeEvent::BadRecord { .. }), "{event:?}");
        let name = format!("{event:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default();
        *self.events.entry(name.into()).or_default() += 1;
    }

    /// A copy of the store was restored.
    pub(super) fn restored(&mut self, time: Moment, store: &ModelStore, keys: &Keyspace) {
        self.was_restored = true;
        self.known = store.revision;
        self.versions.clear();
        self.beaten.clear();
        self.expected.clear();
        for found in store.keys.values() {
            if let Some(RecordPlace::At(client)) = keys.place(&found.key) {
                let record = Some(At::decode(&found.value).unwrap());
                let version = Version { time, at: found.modified, record };
                self.versions.entry(client).or_default().push(version);
            }
        }
    }

    /// No new process comes from now on. Of each client these processes are alive.
    pub(super) fn quiet<'a>(&mut self, alive: impl Iterator<Item = &'a ClientName>) {
        self.kicks.clear();
        for client in alive {
            let (_, most) = self.kicks.entry(client.clone()).or_default();
            // One more, because of a message or a record from before.
            *most += if *most == 0 { 1 } else { KICKS };
        }
    }
}

/// Whether the node is in this epoch.
pub(super) fn is_alive(
    store: &ModelStore,
    keys: &Keyspace,
    node: &NodeId,
    epoch: NodeEpoch,
) -> bool {
    let found = store.keys.get(&keys.of(&RecordPlace::Node(node.clone())));
    found.is_some_and(|found| found.created.0 == epoch.0)
}

/// I5 for the record of a client: nobody deletes a home of another living node.
fn check_homes(store: &ModelStore, keys: &Keyspace, by: Option<&NodeId>, former: &KeyValue) {
    for home in At::decode(&former.value).unwrap().homes {
        let is_others = Some(&home.node) != by && is_alive(store, keys, &home.node, home.epoch);
        assert!(!is_others, "I5: {by:?} has deleted {home:?}");
    }
}

impl ModelWorld {
    /// I3: each living client is served from each node now.
    pub(super) fn check_reach(&mut self) {
        let clients: BTreeSet<_> = self
            .people
            .iter()
            .filter(|person| person.is_alive && !person.was_kicked)
            .map(|person| person.client.clone())
            .collect();
        self.visits.clear();
        for client in clients {
            for at in 0..self.hosts.len() {
                self.visit(at, &client, true);
            }
        }
        self.run(millis(2_500));
        let waiting: Vec<_> = self.visits.values().filter(|visit| visit.must).collect();
        assert!(
            waiting.is_empty() && self.truth.failed.is_empty(),
            "I3: not served: {:?}, waiting: {waiting:?}",
            self.truth.failed,
        );
    }

    /// I4: at most one process of each client has sessions, and the record names these.
    pub(super) fn check_charge(&self) {
        let mut sessions: BTreeMap<&ClientName, BTreeMap<Instance, BTreeSet<&NodeId>>> =
            BTreeMap::new();
        for host in &self.hosts {
            for (client, session) in &host.sessions {
                let of_client = sessions.entry(client).or_default();
                of_client.entry(session.instance).or_default().insert(&host.id);
            }
        }
        for (client, instances) in &sessions {
            assert_eq!(instances.len(), 1, "I4: {client} has {instances:?}");
            let found = self.store.keys.get(&self.keys.of(&RecordPlace::At((*client).clone())));
            let record =
                At::decode(&found.unwrap_or_else(|| panic!("I4: {client}")).value).unwrap();
            assert!(instances.contains_key(&record.instance), "I4: {client}: {record:?}");
        }
        for (client, (kicks, most)) in &self.truth.kicks {
            assert!(kicks <= most, "I4: {client} had {kicks} kicks, {most} are allowed");
        }
    }

    /// I6: whatever a record of a living node says is so, and the other way round.
    pub(super) fn check_holders(&self) {
        let host = |node: &NodeId| self.hosts.iter().find(|host| host.id == *node).unwrap();
        for found in self.store.keys.values() {
            match self.keys.place(&found.key) {
                Some(RecordPlace::Resource(key)) => {
                    let record = Holding::decode(&found.value).unwrap();
                    for holder in record.holders() {
                        if !is_alive(&self.store, &self.keys, &holder.node, holder.epoch) {
                            continue;
                        }
                        // Another home changes the number without a word to this node.
                        let held = host(&holder.node).held.get(&key);
                        let is_held = held.is_some_and(|hold| {
                            record.is_of(&hold.client, hold.instance)
                                && hold.generation <= found.modified.into()
                        });
                        assert!(is_held, "I6: {holder:?} of {record:?} holds nothing: {held:?}");
                    }
                }
                Some(RecordPlace::At(client)) => {
                    let record = At::decode(&found.value).unwrap();
                    for home in &record.homes {
                        if is_alive(&self.store, &self.keys, &home.node, home.epoch) {
                            let session = host(&home.node).sessions.get(&client);
                            let instance = session.map(|session| session.instance);
                            assert_eq!(instance, Some(record.instance), "I6: {client}: {home:?}");
                        }
                    }
                }
                Some(RecordPlace::Former(node, place)) => {
                    let epoch = crate::record::Former::decode(&found.value).unwrap().epoch;
                    let is_left = is_alive(&self.store, &self.keys, &node, epoch);
                    assert!(!is_left, "I6: {node} has not read that it lost {place:?}");
                }
                Some(
                    RecordPlace::Batch(_)
                    | RecordPlace::Blob(_)
                    | RecordPlace::Incarnation
                    | RecordPlace::Node(_)
                    | RecordPlace::Revoked(_),
                )
                | None => {}
            }
        }
        for host in &self.hosts {
            for (key, hold) in &host.held {
                let place = RecordPlace::Resource(key.clone());
                let found = self.store.keys.get(&self.keys.of(&place));
                let record = found.map(|found| Holding::decode(&found.value).unwrap());
                let is_own = record.as_ref().is_some_and(|record| {
                    record.epoch_of(&host.id).is_some() && record.is_of(&hold.client, hold.instance)
                });
                assert!(is_own, "I6: {} has {key:?} by {hold:?}, the store {record:?}", host.id);
            }
            for (client, session) in &host.sessions {
                let place = RecordPlace::At(client.clone());
                let found = self.store.keys.get(&self.keys.of(&place));
                let record = found.map(|found| At::decode(&found.value).unwrap());
                let has = |record: At| record.homes.iter().any(|home| home.node == host.id);
                assert!(record.is_some_and(has), "I6: {client} has {session:?} at {}", host.id);
            }
        }
    }
}
