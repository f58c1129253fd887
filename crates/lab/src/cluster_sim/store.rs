//! The records of the engine in memory: revisions, leases, and the changes that the nodes follow.

use std::collections::BTreeMap;

use bytes::Bytes;
use cluster::engine::{
    Change, Compare, Condition, Done, KeyValue, Lease, NoReply, Operation, Performed, Range,
    Revision, Transaction,
};
use cluster::node::LEASE;

/// A record without its key.
#[derive(Debug)]
struct Stored {
    value: Bytes,
    created: Revision,
    modified: Revision,
    lease: Option<Lease>,
}

/// The store. Times are microseconds.
#[derive(Debug)]
pub(super) struct SimStore {
    revision: Revision,
    keys: BTreeMap<Bytes, Stored>,
    /// The ends of the leases, and their keys.
    leases: BTreeMap<Lease, (u64, Vec<Bytes>)>,
    granted: u64,
    followed: Range,
    /// The changes of followed keys, in the order of their revisions.
    changes: Vec<(Revision, Change)>,
    /// The keys without a lease that were written or deleted and not taken yet.
    touched: Vec<Bytes>,
}

const fn lease_time() -> u64 {
    LEASE.as_secs() * 1_000_000
}

impl SimStore {
    pub(super) const fn new(followed: Range) -> Self {
        Self {
            revision: Revision(1),
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            granted: 0,
            followed,
            changes: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &Bytes) -> Option<&Bytes> {
        self.keys.get(key).map(|stored| &stored.value)
    }

    pub(super) const fn revision(&self) -> Revision {
        self.revision
    }

    /// The changes of followed keys.
    pub(super) fn changes(&self) -> &[(Revision, Change)] {
        &self.changes
    }

    /// The keys that were written or deleted since the last call.
    pub(super) fn take_touched(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.touched)
    }

    /// The number of keys of a range.
    pub(super) fn count(&self, range: &Range) -> u64 {
        self.within(range).count() as u64
    }

    fn within(&self, range: &Range) -> impl Iterator<Item = (&Bytes, &Stored)> {
        let limit = if range.limit == 0 { usize::MAX } else { range.limit as usize };
        let inside = |key: &Bytes| match &range.to {
            None => *key == range.from,
            Some(to) => key < to,
        };
        let from = self.keys.range(range.from.clone()..);
        from.take_while(move |(key, _)| inside(key)).take(limit)
    }

    pub(super) fn grant(&mut self, now: u64) -> Lease {
        self.granted += 1;
        let lease = Lease(self.granted);
        self.leases.insert(lease, (now + lease_time(), Vec::new()));
        lease
    }

    /// Renews a lease; `false` if it has ended.
    pub(super) fn keep_alive(&mut self, now: u64, lease: Lease) -> bool {
        let found = self.leases.get_mut(&lease);
        found.map(|(until, _)| *until = now + lease_time()).is_some()
    }

    /// Ends a lease. Returns the number of its keys.
    pub(super) fn revoke(&mut self, lease: Lease) -> u64 {
        let Some((_, mut keys)) = self.leases.remove(&lease) else { return 0 };
        keys.retain(|key| self.keys.get(key).is_some_and(|stored| stored.lease == Some(lease)));
        if !keys.is_empty() {
            self.revision.0 += 1;
        }
        for key in &keys {
            self.delete(key);
        }
        keys.len() as u64
    }

    /// The leases whose time is up.
    pub(super) fn over(&self, now: u64) -> Vec<Lease> {
        let over = self.leases.iter().filter(|(_, (until, _))| *until <= now);
        over.map(|(lease, _)| *lease).collect()
    }

    /// A new leader gives each lease its full time again.
    pub(super) fn promote(&mut self, now: u64) {
        for (until, _) in self.leases.values_mut() {
            *until = now + lease_time();
        }
    }

    /// Carries a transaction out. No key of a transaction of the nodes is both written and judged
    /// by a later inner transaction, so each inner transaction may be judged when its turn comes.
    pub(super) fn transact(&mut self, transaction: &Transaction) -> Result<Done, NoReply> {
        if !self.has_leases(transaction) {
            return Err(NoReply::Refused);
        }
        let before = self.revision;
        self.revision.0 += 1;
        let (held, answers, wrote) = self.apply(transaction);
        if !wrote {
            self.revision = before;
        }
        Ok(Done { revision: self.revision, held, answers })
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

    /// Inner transactions of the nodes write without a lease.
    fn has_leases(&self, transaction: &Transaction) -> bool {
        if !transaction.compare.iter().all(|compare| self.holds(compare)) {
            return true;
        }
        transaction.then.iter().all(|operation| match operation {
            Operation::Put { lease: Some(lease), .. } => self.leases.contains_key(lease),
            Operation::Put { lease: None, .. }
            | Operation::Delete { .. }
            | Operation::Range(_)
            | Operation::Inner(_) => true,
        })
    }

    fn apply(&mut self, transaction: &Transaction) -> (bool, Vec<Performed>, bool) {
        let held = transaction.compare.iter().all(|compare| self.holds(compare));
        let operations = if held { &transaction.then } else { &transaction.otherwise };
        let (mut answers, mut wrote) = (Vec::with_capacity(operations.len()), false);
        for operation in operations {
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
                    let (held, answers, inner_wrote) = self.apply(inner);
                    wrote |= inner_wrote;
                    Performed::Inner { held, answers }
                }
            });
        }
        (held, answers, wrote)
    }

    fn range(&self, range: &Range) -> Performed {
        let found = |(key, stored): (&Bytes, &Stored)| KeyValue {
            key: key.clone(),
            value: stored.value.clone(),
            created: stored.created,
            modified: stored.modified,
            lease: stored.lease,
        };
        if range.to.is_none() {
            let keys = self.keys.get_key_value(&range.from).map(found).into_iter().collect();
            return Performed::Range { keys, more: false };
        }
        let keys: Vec<_> = self.within(range).map(found).collect();
        let further = Range { limit: range.limit.saturating_add(1), ..range.clone() };
        let more = range.limit > 0 && self.within(&further).count() > keys.len();
        Performed::Range { keys, more }
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, lease: Option<Lease>) {
        let modified = self.revision;
        let created = self.keys.get(key).map_or(modified, |former| former.created);
        if let Some((_, keys)) = lease.and_then(|lease| self.leases.get_mut(&lease))
            && !keys.contains(key)
        {
            keys.push(key.clone());
        }
        if self.is_followed(key) {
            let (key, value) = (key.clone(), value.clone());
            let put = Change::Put(KeyValue { key, value, created, modified, lease });
            self.changes.push((modified, put));
        }
        if lease.is_none() {
            self.touched.push(key.clone());
        }
        self.keys.insert(key.clone(), Stored { value: value.clone(), created, modified, lease });
    }

    fn delete(&mut self, key: &Bytes) {
        let Some(former) = self.keys.remove(key) else { return };
        if self.is_followed(key) {
            let deleted = Change::Delete { key: key.clone(), at: self.revision };
            self.changes.push((self.revision, deleted));
        }
        if former.lease.is_none() {
            self.touched.push(key.clone());
        }
    }

    fn is_followed(&self, key: &Bytes) -> bool {
        let Range { from, to, .. } = &self.followed;
        key >= from && to.as_ref().is_none_or(|to| key < to)
    }
}

#[cfg(test)]
mod tests {
    use cluster::keys::Keyspace;

    use super::*;

    fn put(key: &Bytes, lease: Option<Lease>) -> Operation {
        Operation::Put { key: key.clone(), value: Bytes::from_static(b"v"), lease }
    }

    #[test]
    fn a_write_needs_its_conditions_and_its_lease() {
        let mut store = SimStore::new(Keyspace::new("sim").followed());
        let key = Bytes::from_static(b"key");
        let lease = store.grant(0);
        let compare = vec![Compare { key: key.clone(), is: Condition::Absent }];
        let then = vec![put(&key, Some(lease))];
        let otherwise = vec![Operation::Range(Range::of(key.clone()))];
        let create = Transaction { compare, then, otherwise };
        assert_eq!(store.transact(&create).map(|done| (done.held, done.revision.0)), Ok((true, 2)));
        assert_eq!(
            store.transact(&create).map(|done| (done.held, done.revision.0)),
            Ok((false, 2))
        );
        assert!(store.keep_alive(5_000_000, lease));
        assert_eq!(store.over(14_999_999), []);
        assert_eq!(store.over(15_000_000), [lease]);
        assert_eq!(store.revoke(lease), 1);
        assert_eq!(store.value(&key), None);
        assert_eq!(store.transact(&create), Err(NoReply::Refused), "the lease has ended");
        assert!(!store.keep_alive(15_000_000, lease));
    }

    #[test]
    fn followed_keys_are_reported_and_others_are_touched() {
        let keys = Keyspace::new("sim");
        let mut store = SimStore::new(keys.followed());
        let nodes = keys.nodes();
        let node = Bytes::from([&nodes.from[..], b"n001"].concat());
        let other = Bytes::from_static(b"/tunnel/sim/1/at/c1");
        let lease = store.grant(0);
        let then = vec![put(&node, Some(lease)), put(&other, None)];
        assert!(store.transact(&Transaction { then, ..Transaction::default() }).is_ok());
        assert_eq!(store.changes().len(), 1);
        assert_eq!(store.take_touched(), [other]);
        assert_eq!(store.count(&nodes), 1);
        assert_eq!(store.revoke(lease), 1);
        assert!(matches!(store.changes(), [_, (Revision(3), Change::Delete { .. })]));
    }
}
