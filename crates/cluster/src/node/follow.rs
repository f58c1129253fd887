//! The tables that every node follows: nodes, ports, revocations, and the incarnation of the store.
//!
//! The tables are read in pages, each at a revision of its own, and the watch starts behind the
//! first page. A change that a later page had already is recognised by its number, so that the
//! tables are exact once the watch has reached the revision of the last page.
//!
//! A watch at a member of the engine that is stopped is silent, without an error. The node writes
//! its own record every 3 s, which the watch has to report: after 10 s of silence the watch ends,
//! and the driver chooses another member.
//!
//! After the end of a watch the tables are read anew, never continued behind the last change: the
//! store may have been restored from a copy meanwhile, and may have passed the revision of that
//! change again. Pages of 1,000 records cost the engine 40 ms each.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use bytes::Bytes;

use super::io::{EngineRequest, Lane, Output, WatchId, Watched};
use super::{Node, What};
use crate::engine::{
    Change, Done, KeyValue, NoReply, Operation, Performed, Range, Revision, Transaction,
};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, Key, NodeEpoch, NodeId};
use crate::record::{Described, Holding, Incarnation, Record as _};

/// Silence after which a watch is started again: three renewals.
pub const SILENCE: Duration = Duration::from_secs(10);

/// The keys of a page: 200 KB and 40 ms of the engine's processor time.
pub(super) const PAGE: u32 = 1_000;

/// The time until a page or a watch that failed is asked for again.
const AGAIN: Duration = Duration::from_millis(250);

/// A node of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeenNode {
    /// Its epoch.
    pub epoch: NodeEpoch,
    /// Its record; `None` if this program cannot read it.
    pub record: Option<Described>,
    modified: Revision,
}

/// The followed tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Tables {
    nodes: BTreeMap<NodeId, SeenNode>,
    epochs: BTreeSet<NodeEpoch>,
    ports: BTreeMap<Key, (Revision, Holding)>,
    revoked: BTreeMap<ClientName, Revision>,
}

#[derive(Clone, Debug, Hash)]
enum Following {
    /// The node has not joined, or the store has changed since.
    Idle,
    /// The tables are read from this key on.
    Reading { from: Bytes, first: Option<Revision>, fresh: Box<Tables>, is_asked: bool },
    /// The watch reports the changes of this revision and of later revisions.
    Watching { watch: Option<WatchId>, next: Revision },
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Follow {
    stage: Following,
    tables: Tables,
    /// The revision up to which the tables have all births of nodes; 0 before the first reading.
    revision: Revision,
    /// When the watch reported something last.
    heard: Moment,
    again_at: Moment,
    watches: u64,
}

impl Follow {
    pub(super) fn new() -> Self {
        Self {
            stage: Following::Idle,
            tables: Tables::default(),
            revision: Revision(0),
            heard: Moment::default(),
            again_at: Moment::default(),
            watches: 0,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Following::Idle | Following::Reading { is_asked: true, .. } => None,
            Following::Reading { is_asked: false, .. }
            | Following::Watching { watch: None, .. } => Some(self.again_at),
            Following::Watching { watch: Some(_), .. } => Some(self.heard.after(SILENCE)),
        }
    }

    /// Whether an epoch has ended. `false` if the table does not reach up to its birth.
    pub(super) fn is_dead(&self, epoch: NodeEpoch) -> bool {
        self.revision.0 >= epoch.0 && !self.tables.epochs.contains(&epoch)
    }

    /// The living nodes.
    pub(super) const fn nodes(&self) -> &BTreeMap<NodeId, SeenNode> {
        &self.tables.nodes
    }

    pub(super) const fn ports(&self) -> &BTreeMap<Key, (Revision, Holding)> {
        &self.tables.ports
    }
}

impl Node {
    /// The node is a member: the tables are read, unless the watch goes on.
    pub(super) fn follow_all(&mut self) {
        if matches!(self.follow.stage, Following::Idle) {
            self.read_all(Duration::ZERO);
        }
    }

    /// Reads all tables after this pause.
    fn read_all(&mut self, pause: Duration) {
        let from = self.keys.followed().from;
        let fresh = Box::default();
        self.follow.stage = Following::Reading { from, first: None, fresh, is_asked: false };
        self.follow.again_at = self.now.after(self.random.about(pause));
    }

    pub(super) fn turn_follow(&mut self) {
        let now = self.now;
        if let Following::Watching { watch: Some(watch), .. } = &mut self.follow.stage
            && self.follow.heard.after(SILENCE) <= now
        {
            let silent = *watch;
            self.outputs.push_back(Output::Unwatch(silent));
            self.read_all(Duration::ZERO);
        }
        if self.follow.again_at > now {
            return;
        }
        match &mut self.follow.stage {
            Following::Reading { from, is_asked: is_asked @ false, .. } => {
                *is_asked = true;
                let range = Range { from: from.clone(), limit: PAGE, ..self.keys.followed() };
                let then = vec![Operation::Range(range)];
                let page = Transaction { then, ..Transaction::default() };
                self.request(What::Page, EngineRequest::Transact(Lane::LookUps, page));
            }
            Following::Watching { watch: watch @ None, next } => {
                self.follow.watches += 1;
                let id = WatchId(self.follow.watches);
                *watch = Some(id);
                self.follow.heard = now;
                self.outputs.push_back(Output::Watch(id, self.keys.followed(), *next));
            }
            Following::Idle
            | Following::Reading { is_asked: true, .. }
            | Following::Watching { watch: Some(_), .. } => {}
        }
    }

    /// A page was read, or not.
    pub(super) fn page(&mut self, done: Result<&Done, NoReply>) {
        let again_at = self.now.after(AGAIN);
        let Following::Reading { from, first, fresh, is_asked } = &mut self.follow.stage else {
            return;
        };
        *is_asked = false;
        let Ok(Done { revision, answers, .. }) = done else {
            self.follow.again_at = again_at;
            return;
        };
        let [Performed::Range { keys, more }] = answers.as_slice() else {
            self.follow.again_at = again_at;
            return;
        };
        let first = *first.get_or_insert(*revision);
        if let (true, Some(last)) = (*more, keys.last()) {
            // The least key behind the last.
            *from = [&last.key[..], &[0]].concat().into();
        }
        let mut tables = mem::take(fresh);
        for found in keys {
            self.put(&mut tables, found);
        }
        if *more && !keys.is_empty() {
            if let Following::Reading { fresh, .. } = &mut self.follow.stage {
                *fresh = tables;
            }
            return;
        }
        self.follow.stage = Following::Watching { watch: None, next: Revision(first.0 + 1) };
        self.follow.again_at = self.now;
        self.replace(*tables, first);
    }

    /// The tables were read anew. Whatever differs from the former tables is told.
    fn replace(&mut self, fresh: Tables, first: Revision) {
        let former = mem::replace(&mut self.follow.tables, fresh);
        self.follow.revision = first;
        let tables = &self.follow.tables;
        let gone = former.ports.keys().filter(|key| !tables.ports.contains_key(*key));
        let gone = gone.map(|key| Output::Port { key: key.clone(), holder: None });
        let held = tables.ports.iter().filter(|(key, now)| former.ports.get(*key) != Some(*now));
        let held: Vec<_> = held
            .map(|(key, (revision, holder))| (key.clone(), *revision, holder.clone()))
            .collect();
        let again = former.revoked.keys().filter(|client| !tables.revoked.contains_key(*client));
        let again =
            again.map(|client| Output::Revoked { client: client.clone(), is_revoked: false });
        let revoked = tables.revoked.keys().filter(|client| !former.revoked.contains_key(*client));
        let revoked =
            revoked.map(|client| Output::Revoked { client: client.clone(), is_revoked: true });
        self.outputs.extend(gone.chain(again).chain(revoked));
        for (key, revision, holder) in held {
            self.port_held(key, revision, holder);
        }
    }

    /// The watch has reported something.
    pub(super) fn watched(&mut self, id: WatchId, what: Watched) {
        let Following::Watching { watch: Some(watch), next } = &mut self.follow.stage else {
            return;
        };
        if *watch != id {
            return;
        }
        let changes = match what {
            Watched::Changes(changes) => changes,
            Watched::Compacted | Watched::Broken => return self.read_all(AGAIN),
        };
        self.follow.heard = self.now;
        for change in &changes {
            let (Change::Put(KeyValue { modified: at, .. }) | Change::Delete { at, .. }) = change;
            next.0 = next.0.max(at.0 + 1);
            self.revision = self.revision.max(*at);
        }
        let mut tables = mem::take(&mut self.follow.tables);
        for change in changes {
            match change {
                Change::Put(found) => {
                    self.follow.revision = self.follow.revision.max(found.modified);
                    self.changed(&mut tables, &found);
                }
                Change::Delete { key, at } => {
                    self.follow.revision = self.follow.revision.max(at);
                    self.deleted(&mut tables, &key, at);
                }
            }
        }
        self.follow.tables = tables;
    }

    fn changed(&mut self, tables: &mut Tables, found: &KeyValue) {
        match self.put(tables, found) {
            None
            | Some(
                RecordPlace::At(_)
                | RecordPlace::Batch(_)
                | RecordPlace::Former(..)
                | RecordPlace::Node(_),
            ) => {}
            Some(RecordPlace::Resource(key)) => {
                if let Some((revision, holder)) = tables.ports.get(&key).cloned() {
                    self.port_held(key, revision, holder);
                }
            }
            Some(RecordPlace::Revoked(client)) => {
                self.outputs.push_back(Output::Revoked { client, is_revoked: true });
            }
            Some(RecordPlace::Incarnation) => {
                let number = Incarnation::decode(&found.value).map(|it| it.number).ok();
                let known = self.membership.life.map(|life| life.number);
                if known.is_some() && number != known {
                    self.fall();
                }
            }
        }
    }

    /// Enters a record. Returns its place, or `None` if the tables have it or a later record.
    fn put(&mut self, tables: &mut Tables, found: &KeyValue) -> Option<RecordPlace> {
        let place = self.keys.place(&found.key)?;
        match &place {
            RecordPlace::At(_)
            | RecordPlace::Batch(_)
            | RecordPlace::Former(..)
            | RecordPlace::Incarnation => {}
            RecordPlace::Node(node) => {
                let known = tables.nodes.get(node);
                if known.is_some_and(|known| known.modified >= found.modified) {
                    return None;
                }
                let record = Described::decode(&found.value);
                let record = record.inspect_err(|error| self.bad_record(&found.key, error)).ok();
                let epoch = NodeEpoch(found.created.0);
                let seen = SeenNode { epoch, record, modified: found.modified };
                if let Some(former) = tables.nodes.insert(node.clone(), seen) {
                    tables.epochs.remove(&former.epoch);
                }
                tables.epochs.insert(epoch);
            }
            RecordPlace::Resource(key) => {
                if tables.ports.get(key).is_some_and(|(known, _)| *known >= found.modified) {
                    return None;
                }
                match Holding::decode(&found.value) {
                    Ok(holder) => tables.ports.insert(key.clone(), (found.modified, holder)),
                    Err(error) => {
                        self.bad_record(&found.key, &error);
                        return None;
                    }
                };
            }
            RecordPlace::Revoked(client) => {
                let known = tables.revoked.insert(client.clone(), found.modified);
                if known.is_some_and(|known| known >= found.modified) {
                    return None;
                }
            }
        }
        Some(place)
    }

    fn deleted(&mut self, tables: &mut Tables, key: &[u8], at: Revision) {
        match self.keys.place(key) {
            None
            | Some(
                RecordPlace::At(_)
                | RecordPlace::Batch(_)
                | RecordPlace::Former(..)
                | RecordPlace::Incarnation,
            ) => {}
            Some(RecordPlace::Node(node)) => {
                if tables.nodes.get(&node).is_some_and(|known| known.modified < at)
                    && let Some(former) = tables.nodes.remove(&node)
                {
                    tables.epochs.remove(&former.epoch);
                }
            }
            Some(RecordPlace::Resource(key)) => {
                if tables.ports.get(&key).is_some_and(|(known, _)| *known < at) {
                    tables.ports.remove(&key);
                    self.outputs.push_back(Output::Port { key, holder: None });
                }
            }
            Some(RecordPlace::Revoked(client)) => {
                if tables.revoked.get(&client).is_some_and(|known| *known < at) {
                    tables.revoked.remove(&client);
                    self.outputs.push_back(Output::Revoked { client, is_revoked: false });
                }
            }
        }
    }

    /// A port has this holder.
    fn port_held(&mut self, key: Key, revision: Revision, holder: Holding) {
        let generation = Generation::from(revision);
        self.look_at_port(&key, generation, &holder);
        self.outputs.push_back(Output::Port { key, holder: Some((generation, holder)) });
    }

    /// The store has another life: the tables are read anew once the node has joined.
    pub(super) fn forget_tables(&mut self) {
        self.end_watch();
        self.follow.stage = Following::Idle;
        self.follow.revision = Revision(0);
        // The ports stay open until the new table is known.
        self.follow.tables.epochs.clear();
        self.follow.tables.nodes.clear();
    }

    pub(super) fn end_watch(&mut self) {
        if let Following::Watching { watch: Some(watch), .. } = &self.follow.stage {
            self.outputs.push_back(Output::Unwatch(*watch));
        }
        self.follow.stage = Following::Idle;
    }
}
