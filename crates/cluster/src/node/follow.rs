//! The tables that every node follows: nodes, ports, revocations, and the incarnation of the store.
//!
//! The tables are read in pages, each at a revision of its own, and the watch starts behind the
//! first page. A change that a later page had already is recognised by its number, so that the
//! tables are exact once the watch has reached the revision of the last page.
//!
//! A watch at a member of the engine that is stopped is silent, without an error. The node writes
//! its own record every 3 s, which the watch has to report. The watch ends where it has reported
//! nothing for 2 s after such a write was answered, and after 10 s of silence where no write is
//! answered. The driver chooses another member for the next watch.
//!
//! After the end of a watch the tables are read anew, never continued behind the last change: the
//! store may have been restored from a copy meanwhile, and may have passed the revision of that
//! change again. Pages of 1,000 records cost the engine 40 ms each.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use bytes::Bytes;

use super::desk::{Desk, What};
use super::io::{Lane, Output, WatchId, Watched};
use super::news::News;
use super::writes::Write;
use crate::engine::{
    Change, Done, KeyValue, NoReply, Operation, Performed, Range, Revision, Transaction,
};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Key, NodeEpoch, NodeId};
use crate::record::{Described, Holding, Incarnation, Record as _};

/// Silence after which a watch is started again: three renewals.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Silence after an answered write of this node after which a watch is started again. A member that
/// works reports a change within milliseconds; one that has many changes to report is not silent.
const LAG: Duration = Duration::from_secs(2);

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
    /// When a write of this node was answered first since then that the watch has to report.
    wrote: Option<Moment>,
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
            wrote: None,
            again_at: Moment::default(),
            watches: 0,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Following::Idle | Following::Reading { is_asked: true, .. } => None,
            Following::Reading { is_asked: false, .. }
            | Following::Watching { watch: None, .. } => Some(self.again_at),
            Following::Watching { watch: Some(_), .. } => Some(self.silent_at()),
        }
    }

    /// The moment at which a watch that reports nothing counts as silent.
    const fn silent_at(&self) -> Moment {
        match self.wrote {
            Some(wrote) => wrote.after(LAG),
            None => self.heard.after(SILENCE),
        }
    }

    /// Whether an epoch has ended. `false` if the table does not reach up to its birth.
    pub(super) fn is_dead(&self, epoch: NodeEpoch) -> bool {
        self.revision.0 >= epoch.0 && !self.tables.epochs.contains(&epoch)
    }

    /// The first change at which an epoch that may live was born, as far as the tables reach.
    pub(super) fn oldest(&self) -> Revision {
        let oldest = self.tables.epochs.first().map_or(u64::MAX, |epoch| epoch.0);
        // A node that was born later is not in the tables.
        Revision(oldest.min(self.revision.0.saturating_add(1)))
    }

    /// When the watch has reported something last; `None` before the first reading of the tables.
    pub(super) fn heard(&self) -> Option<Moment> {
        (self.revision.0 > 0).then_some(self.heard)
    }

    /// The living nodes.
    pub(super) const fn nodes(&self) -> &BTreeMap<NodeId, SeenNode> {
        &self.tables.nodes
    }

    pub(super) const fn ports(&self) -> &BTreeMap<Key, (Revision, Holding)> {
        &self.tables.ports
    }
}

impl Follow {
    /// The node is a member: the tables are read, unless the watch goes on.
    pub(super) fn begin(&mut self, desk: &mut Desk) {
        if matches!(self.stage, Following::Idle) {
            self.read_all(desk, Duration::ZERO);
        }
    }

    /// Reads all tables after this pause.
    fn read_all(&mut self, desk: &mut Desk, pause: Duration) {
        let from = desk.keys.followed().from;
        let fresh = Box::default();
        self.stage = Following::Reading { from, first: None, fresh, is_asked: false };
        self.again_at = desk.now.after(desk.random.about(pause));
    }

    pub(super) fn turn(&mut self, desk: &mut Desk) {
        let now = desk.now;
        if let Following::Watching { watch: Some(silent), .. } = self.stage
            && self.silent_at() <= now
        {
            desk.output(Output::Unwatch(silent));
            self.read_all(desk, Duration::ZERO);
        }
        if self.again_at > now {
            return;
        }
        match &mut self.stage {
            Following::Reading { from, is_asked: is_asked @ false, .. } => {
                *is_asked = true;
                let range = Range { from: from.clone(), limit: PAGE, ..desk.keys.followed() };
                let then = vec![Operation::Range(range)];
                let page = Transaction { then, ..Transaction::default() };
                desk.transact(What::Page, Lane::LookUps, page);
            }
            Following::Watching { watch: watch @ None, next } => {
                self.watches += 1;
                let id = WatchId(self.watches);
                *watch = Some(id);
                (self.heard, self.wrote) = (now, None);
                desk.output(Output::Watch(id, desk.keys.followed(), *next));
            }
            Following::Idle
            | Following::Reading { is_asked: true, .. }
            | Following::Watching { watch: Some(_), .. } => {}
        }
    }

    /// A page was read, or not.
    pub(super) fn page(&mut self, desk: &mut Desk, done: Result<&Done, NoReply>) {
        let again_at = desk.now.after(AGAIN);
        let Following::Reading { from, first, fresh, is_asked } = &mut self.stage else {
            return;
        };
        *is_asked = false;
        let Ok(Done { revision, answers, .. }) = done else {
            self.again_at = again_at;
            return;
        };
        let [Performed::Range { keys, more }] = answers.as_slice() else {
            self.again_at = again_at;
            return;
        };
        let first = *first.get_or_insert(*revision);
        if let (true, Some(last)) = (*more, keys.last()) {
            // The least key behind the last.
            *from = [&last.key[..], &[0]].concat().into();
        }
        for found in keys {
            fresh.put(desk, found);
        }
        if *more && !keys.is_empty() {
            return;
        }
        let fresh = mem::take(fresh);
        self.stage = Following::Watching { watch: None, next: Revision(first.0 + 1) };
        self.again_at = desk.now;
        self.replace(desk, *fresh, first);
    }

    /// The tables were read anew. Whatever differs from the former tables is told.
    fn replace(&mut self, desk: &mut Desk, fresh: Tables, first: Revision) {
        let former = mem::replace(&mut self.tables, fresh);
        self.revision = first;
        let tables = &self.tables;
        let gone = former.ports.keys().filter(|key| !tables.ports.contains_key(*key));
        gone.for_each(|key| desk.tell(News::Port(key.clone(), None)));
        let again = former.revoked.keys().filter(|client| !tables.revoked.contains_key(*client));
        again.for_each(|client| {
            desk.output(Output::Revoked { client: client.clone(), is_revoked: false });
        });
        let revoked = tables.revoked.keys().filter(|client| !former.revoked.contains_key(*client));
        revoked.for_each(|client| {
            desk.output(Output::Revoked { client: client.clone(), is_revoked: true });
        });
        let held = tables.ports.iter().filter(|(key, now)| former.ports.get(*key) != Some(*now));
        held.for_each(|(key, (revision, holder))| {
            desk.tell(News::Port(key.clone(), Some(((*revision).into(), holder.clone()))));
        });
    }

    /// The watch has reported something. `life`: the life of the store that the node knows.
    pub(super) fn watched(
        &mut self,
        desk: &mut Desk,
        id: WatchId,
        what: Watched,
        life: Option<u64>,
    ) {
        let Following::Watching { watch: Some(watch), next } = &mut self.stage else {
            return;
        };
        if *watch != id {
            return;
        }
        let changes = match what {
            Watched::Changes(changes) => changes,
            Watched::Compacted | Watched::Broken => return self.read_all(desk, AGAIN),
        };
        (self.heard, self.wrote) = (desk.now, None);
        for change in &changes {
            let (Change::Put(KeyValue { modified: at, .. }) | Change::Delete { at, .. }) = change;
            next.0 = next.0.max(at.0 + 1);
            desk.saw(*at);
            self.revision = self.revision.max(*at);
        }
        for change in changes {
            match change {
                Change::Put(found) => self.changed(desk, &found, life),
                Change::Delete { key, at } => self.tables.deleted(desk, &key, at),
            }
        }
    }

    /// A port of a client of this node is in the tables at once, also while the watch is silent:
    /// the server has listened there for a client of another node, and leaves the port to its own.
    pub(super) fn own_write(&mut self, desk: &mut Desk, write: &Write, change: Revision) {
        let (Some(RecordPlace::Resource(Key::Port(..))), Some(value)) =
            (&write.place, &write.value)
        else {
            return;
        };
        if self.revision.0 == 0 {
            // The tables are not read yet.
            return;
        }
        let (key, value, lease) = (write.key.clone(), value.clone(), None);
        let found = KeyValue { key, value, created: change, modified: change, lease };
        self.changed(desk, &found, None);
    }

    /// A record of this node was written by this change, which the watch has to report.
    pub(super) fn written(&mut self, desk: &Desk, change: Revision) {
        if let Following::Watching { watch: Some(_), next } = &self.stage
            && *next <= change
        {
            // A write that was answered after 10 s of silence is not the one to wait for.
            let until = self.heard.after(SILENCE - LAG);
            let wrote = desk.now.min(until);
            self.wrote = self.wrote.or(Some(wrote));
        }
    }

    fn changed(&mut self, desk: &mut Desk, found: &KeyValue, life: Option<u64>) {
        match self.tables.put(desk, found) {
            None
            | Some(
                RecordPlace::At(_)
                | RecordPlace::Batch(_)
                | RecordPlace::Blob(_)
                | RecordPlace::Former(..)
                | RecordPlace::Node(_),
            ) => {}
            Some(RecordPlace::Resource(key)) => {
                if let Some((revision, holder)) = self.tables.ports.get(&key).cloned() {
                    desk.tell(News::Port(key, Some((revision.into(), holder))));
                }
            }
            Some(RecordPlace::Revoked(client)) => {
                desk.output(Output::Revoked { client, is_revoked: true });
            }
            Some(RecordPlace::Incarnation) => {
                let number = Incarnation::decode(&found.value).map(|it| it.number).ok();
                if life.is_some() && number != life {
                    desk.tell(News::Fell);
                }
            }
        }
    }

    /// The store has another life: the tables are read anew once the node has joined.
    pub(super) fn forget(&mut self, desk: &mut Desk) {
        self.end_watch(desk);
        self.revision = Revision(0);
        // The ports stay open until the new table is known.
        self.tables.nodes.clear();
        self.tables.epochs.clear();
    }

    pub(super) fn end_watch(&mut self, desk: &mut Desk) {
        if let Following::Watching { watch: Some(watch), .. } = &self.stage {
            desk.output(Output::Unwatch(*watch));
        }
        self.stage = Following::Idle;
    }
}

impl Tables {
    /// Enters a record. Returns its place, or `None` if the tables have it or a later record.
    fn put(&mut self, desk: &mut Desk, found: &KeyValue) -> Option<RecordPlace> {
        let place = desk.keys.place(&found.key)?;
        match &place {
            RecordPlace::At(_)
            | RecordPlace::Batch(_)
            | RecordPlace::Blob(_)
            | RecordPlace::Former(..)
            | RecordPlace::Incarnation => {}
            RecordPlace::Node(node) => {
                let known = self.nodes.get(node);
                if known.is_some_and(|known| known.modified >= found.modified) {
                    return None;
                }
                let record = Described::decode(&found.value);
                let record = record.inspect_err(|error| desk.bad_record(&found.key, error)).ok();
                let epoch = NodeEpoch(found.created.0);
                let seen = SeenNode { epoch, record, modified: found.modified };
                if let Some(former) = self.nodes.insert(node.clone(), seen) {
                    self.epochs.remove(&former.epoch);
                }
                self.epochs.insert(epoch);
            }
            RecordPlace::Resource(key) => {
                if self.ports.get(key).is_some_and(|(known, _)| *known >= found.modified) {
                    return None;
                }
                match Holding::decode(&found.value) {
                    Ok(holder) => self.ports.insert(key.clone(), (found.modified, holder)),
                    Err(error) => {
                        desk.bad_record(&found.key, &error);
                        return None;
                    }
                };
            }
            RecordPlace::Revoked(client) => {
                let known = self.revoked.insert(client.clone(), found.modified);
                if known.is_some_and(|known| known >= found.modified) {
                    return None;
                }
            }
        }
        Some(place)
    }

    fn deleted(&mut self, desk: &mut Desk, key: &[u8], at: Revision) {
        match desk.keys.place(key) {
            None
            | Some(
                RecordPlace::At(_)
                | RecordPlace::Batch(_)
                | RecordPlace::Blob(_)
                | RecordPlace::Former(..)
                | RecordPlace::Incarnation,
            ) => {}
            Some(RecordPlace::Node(node)) => {
                if self.nodes.get(&node).is_some_and(|known| known.modified < at)
                    && let Some(former) = self.nodes.remove(&node)
                {
                    self.epochs.remove(&former.epoch);
                }
            }
            Some(RecordPlace::Resource(key)) => {
                if self.ports.get(&key).is_some_and(|(known, _)| *known < at) {
                    self.ports.remove(&key);
                    desk.tell(News::Port(key, None));
                }
            }
            Some(RecordPlace::Revoked(client)) => {
                if self.revoked.get(&client).is_some_and(|known| *known < at) {
                    self.revoked.remove(&client);
                    desk.output(Output::Revoked { client, is_revoked: false });
                }
            }
        }
    }
}
