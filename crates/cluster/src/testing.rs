//! The engine in memory, for tests: revisions, leases, watches, as etcd 3.4 has them. It refuses by
//! a panic what etcd would refuse as a malformed request.

#![allow(clippy::unwrap_used, reason = "the module is for tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::Moment;
use crate::engine::{
    Change, Compare, Condition, Done, KeyValue, Lease, NoReply, OPERATIONS, Operation, Performed,
    Range, Revision, Transaction,
};
use crate::node::LEASE;

/// A change and its revision.
#[derive(Clone, Debug, Hash)]
pub struct StoreEvent {
    /// The revision.
    pub at: Revision,
    /// The change.
    pub change: Change,
    /// The record before the change.
    pub former: Option<KeyValue>,
}

/// What a watch has to report.
#[derive(Clone, Debug)]
pub enum Reports {
    /// Changes, and the revision from which on the next report begins.
    Changes(Vec<Change>, Revision),
    /// The store has forgotten changes that the watch would have to report.
    Compacted,
}

/// The store.
#[derive(Clone, Debug, Hash)]
pub struct ModelStore {
    /// The number of the last change.
    pub revision: Revision,
    /// The present records.
    pub keys: BTreeMap<Bytes, KeyValue>,
    /// All changes since the last compaction, in their order.
    pub history: Vec<StoreEvent>,
    compacted: Revision,
    /// The end of each lease.
    leases: BTreeMap<Lease, Moment>,
    granted: u64,
}

impl Default for ModelStore {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelStore {
    /// An empty store.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            revision: Revision(1),
            keys: BTreeMap::new(),
            history: Vec::new(),
            compacted: Revision(0),
            leases: BTreeMap::new(),
            granted: 0,
        }
    }

    /// A new lease of a node.
    pub fn grant(&mut self, now: Moment) -> Lease {
        self.grant_for(now, LEASE)
    }

    /// A new lease of this time.
    pub fn grant_for(&mut self, now: Moment, time: Duration) -> Lease {
        self.granted += 1;
        let lease = Lease(self.granted);
        self.leases.insert(lease, now.after(time));
        lease
    }

    /// Renews a lease; `false` if it has ended.
    pub fn keep_alive(&mut self, now: Moment, lease: Lease) -> bool {
        self.expire(now);
        self.leases.get_mut(&lease).map(|until| *until = now.after(LEASE)).is_some()
    }

    /// Ends a lease, and deletes its keys.
    pub fn revoke(&mut self, lease: Lease) {
        if self.leases.remove(&lease).is_none() {
            return;
        }
        let of_lease = |found: &&KeyValue| found.lease == Some(lease);
        let keys: Vec<_> = self.keys.values().filter(of_lease).map(|it| it.key.clone()).collect();
        if !keys.is_empty() {
            self.revision.0 += 1;
            keys.iter().for_each(|key| self.delete(key));
        }
    }

    /// Ends the leases whose time is up.
    pub fn expire(&mut self, now: Moment) {
        let over = self.leases.iter().filter(|(_, until)| **until <= now);
        let over: Vec<_> = over.map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| self.revoke(lease));
    }

    /// A new leader gives each lease its full time again.
    pub fn promote(&mut self, now: Moment) {
        self.leases.values_mut().for_each(|until| *until = now.after(LEASE));
    }

    /// Forgets all changes up to now.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// A transaction. A write with a lease that has ended fails as a whole.
    ///
    /// # Errors
    /// [`NoReply::Refused`]: a lease has ended.
    ///
    /// # Panics
    /// etcd would call the transaction malformed.
    pub fn transact(&mut self, it: &Transaction) -> Result<Done, NoReply> {
        check(it, OPERATIONS);
        check_keys(&it.then);
        check_keys(&it.otherwise);
        let mut verdicts = Vec::new();
        self.judge(it, &mut verdicts);
        let mut verdicts = verdicts.into_iter();
        if !self.has_leases(it, &mut verdicts.clone()) {
            return Err(NoReply::Refused);
        }
        let before = self.revision;
        self.revision.0 += 1;
        let (held, answers, wrote) = self.apply(it, &mut verdicts);
        if !wrote {
            self.revision = before;
        }
        Ok(Done { revision: self.revision, held, answers })
    }

    /// All conditions are judged before the first operation.
    fn judge(&self, it: &Transaction, verdicts: &mut Vec<bool>) {
        let held = it.compare.iter().all(|compare| self.holds(compare));
        verdicts.push(held);
        for operation in if held { &it.then } else { &it.otherwise } {
            if let Operation::Inner(inner) = operation {
                self.judge(inner, verdicts);
            }
        }
    }

    fn holds(&self, Compare { key, is }: &Compare) -> bool {
        let found = self.keys.get(key);
        match is {
            Condition::Absent => found.is_none(),
            Condition::CreatedAt(at) => found.is_some_and(|found| found.created == *at),
            Condition::ModifiedAt(at) => found.is_some_and(|found| found.modified == *at),
            Condition::ModifiedBefore(at) => found.is_none_or(|found| found.modified < *at),
        }
    }

    fn has_leases(&self, it: &Transaction, verdicts: &mut impl Iterator<Item = bool>) -> bool {
        let held = verdicts.next().unwrap();
        (if held { &it.then } else { &it.otherwise }).iter().all(|operation| match operation {
            Operation::Put { lease: Some(lease), .. } => self.leases.contains_key(lease),
            Operation::Inner(inner) => self.has_leases(inner, verdicts),
            Operation::Put { lease: None, .. } | Operation::Delete { .. } | Operation::Range(_) => {
                true
            }
        })
    }

    fn apply(
        &mut self,
        it: &Transaction,
        verdicts: &mut impl Iterator<Item = bool>,
    ) -> (bool, Vec<Performed>, bool) {
        let held = verdicts.next().unwrap();
        let (mut answers, mut wrote) = (Vec::new(), false);
        for operation in if held { &it.then } else { &it.otherwise } {
            answers.push(match operation {
                Operation::Range(range) => self.range(range),
                Operation::Put { key, value, lease } => {
                    self.put(key, value, *lease);
                    wrote = true;
                    Performed::Put
                }
                Operation::Delete { key } => {
                    let count = u64::from(self.keys.contains_key(key));
                    wrote |= count > 0;
                    self.delete(key);
                    Performed::Delete(count)
                }
                Operation::Inner(inner) => {
                    let (held, answers, inner_wrote) = self.apply(inner, verdicts);
                    wrote |= inner_wrote;
                    Performed::Inner { held, answers }
                }
            });
        }
        (held, answers, wrote)
    }

    /// The keys of a range.
    #[must_use]
    pub fn range(&self, range: &Range) -> Performed {
        let limit = if range.limit == 0 { usize::MAX } else { range.limit as usize };
        let from = self.keys.range(range.from.clone()..).map(|(_, found)| found);
        let inside = |found: &&KeyValue| match &range.to {
            None => found.key == range.from,
            Some(to) => found.key < *to,
        };
        let keys: Vec<_> = from.clone().take_while(inside).take(limit).cloned().collect();
        let more = from.take_while(inside).count() > keys.len();
        Performed::Range { keys, more }
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, lease: Option<Lease>) {
        let former = self.keys.get(key).cloned();
        let (key, value, modified) = (key.clone(), value.clone(), self.revision);
        let created = former.as_ref().map_or(modified, |former| former.created);
        let found = KeyValue { key: key.clone(), value, created, modified, lease };
        self.keys.insert(key, found.clone());
        self.history.push(StoreEvent { at: modified, change: Change::Put(found), former });
    }

    fn delete(&mut self, key: &Bytes) {
        if let Some(former) = self.keys.remove(key) {
            let change = Change::Delete { key: key.clone(), at: self.revision };
            self.history.push(StoreEvent { at: self.revision, change, former: Some(former) });
        }
    }

    /// The changes of `range` from a revision on, and the next revision.
    #[must_use]
    pub fn since(&self, range: &Range, from: Revision) -> Reports {
        if from <= self.compacted {
            return Reports::Compacted;
        }
        let inside = |event: &&StoreEvent| {
            let key = match &event.change {
                Change::Put(found) => &found.key,
                Change::Delete { key, .. } => key,
            };
            event.at >= from && *key >= range.from && range.to.as_ref().is_none_or(|to| key < to)
        };
        // The history is in the order of the revisions.
        let start = self.history.partition_point(|event| event.at < from);
        let events = self.history[start..].iter().filter(inside);
        let changes = events.map(|event| event.change.clone()).collect();
        Reports::Changes(changes, Revision(self.revision.0 + 1).max(from))
    }
}

/// The limits of etcd (`checkTxnRequest`).
fn check(it: &Transaction, most: usize) {
    let longest = it.compare.len().max(it.then.len()).max(it.otherwise.len());
    assert!(longest <= most, "{longest} operations, {most} are allowed");
    for operation in it.then.iter().chain(&it.otherwise) {
        if let Operation::Inner(inner) = operation {
            check(inner, most - longest);
        }
    }
}

/// No key is written twice (`checkIntervals`).
fn check_keys(operations: &[Operation]) -> BTreeSet<Bytes> {
    let mut keys = BTreeSet::new();
    for operation in operations {
        match operation {
            Operation::Range(_) => {}
            Operation::Put { key, .. } | Operation::Delete { key } => {
                assert!(keys.insert(key.clone()), "{key:?} is written twice");
            }
            Operation::Inner(inner) => {
                let mut inside = check_keys(&inner.then);
                inside.extend(check_keys(&inner.otherwise));
                for key in inside {
                    assert!(keys.insert(key.clone()), "{key:?} is written twice");
                }
            }
        }
    }
    keys
}
