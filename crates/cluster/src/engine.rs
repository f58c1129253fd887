//! Requests to the engine, the consistent store that all nodes of a cluster share, and its answers,
//! as plain values. Their meaning is that of etcd 3.4 and later (etcd API reference, `Txn`):
//! a transaction reads and writes at one revision, and each transaction that writes increases the
//! revision of the store by 1.

use bytes::Bytes;

/// The most compares, and the most operations on either side, of one transaction. etcd refuses
/// more by default (`--max-txn-ops`). A transaction inside an operation may have as many as the
/// longest of the three lists around it leaves (etcd, `checkTxnRequest`), so a transaction with 120
/// operations may have inner transactions with 8.
pub const OPERATIONS: usize = 128;

/// The number of a change of the store: from 1 upwards, larger for each later change. 0 means that
/// there was no change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The number of a lease: keys that were stored with it are deleted when the lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u64);

/// One atomic step: if all `compare` hold, the operations `then` are done in order, otherwise the
/// operations `otherwise`. A key may be written at most once in one transaction, transactions
/// inside it included. All conditions, those of inner transactions too, are judged before the first
/// operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The conditions. Without any, the operations `then` are done.
    pub compare: Vec<Compare>,
    /// The operations of a transaction whose conditions hold.
    pub then: Vec<Operation>,
    /// The operations of a transaction with a condition that does not hold.
    pub otherwise: Vec<Operation>,
}

/// A condition on one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compare {
    /// The key.
    pub key: Bytes,
    /// What has to hold.
    pub is: Condition,
}

/// What has to hold of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The store has no such key.
    Absent,
    /// The key was created by this change, and was never deleted since.
    CreatedAt(Revision),
    /// This change was the last change of the key.
    ModifiedAt(Revision),
    /// The store has no such key, or its last change was before this change.
    ModifiedBefore(Revision),
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads keys.
    Range(Range),
    /// Stores a value.
    Put {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
        /// The lease with which the key ends.
        lease: Option<Lease>,
    },
    /// Deletes a key, or does nothing if the store has no such key.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// A transaction inside the transaction: it is judged alone, at the same revision.
    Inner(Transaction),
}

/// The keys of a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The first key.
    pub from: Bytes,
    /// The first key after the range. `None`: the key `from` alone.
    pub to: Option<Bytes>,
    /// The most keys of an answer. 0: all.
    pub limit: u32,
}

impl Range {
    /// The key alone.
    #[must_use]
    pub const fn of(key: Bytes) -> Self {
        Self { from: key, to: None, limit: 0 }
    }

    /// All keys that begin with `prefix`. An empty prefix or a prefix of bytes 0xff alone has no
    /// upper bound (etcd API reference, `range_end`).
    #[must_use]
    pub fn below(prefix: &Bytes) -> Self {
        let mut to = prefix.to_vec();
        while let Some(last) = to.pop() {
            if let Some(next) = last.checked_add(1) {
                to.push(next);
                break;
            }
        }
        let to = if to.is_empty() { Bytes::from_static(&[0]) } else { to.into() };
        // etcd reads a first key of one zero byte as the least key.
        let from = if prefix.is_empty() { Bytes::from_static(&[0]) } else { prefix.clone() };
        Self { from, to: Some(to), limit: 0 }
    }
}

/// One key with its value and its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The change that created the key.
    pub created: Revision,
    /// The last change of the key.
    pub modified: Revision,
    /// The lease with which the key ends.
    pub lease: Option<Lease>,
}

/// The answer to a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// The revision of the store after the transaction.
    pub revision: Revision,
    /// All conditions held.
    pub held: bool,
    /// An answer for each operation that was done, in order.
    pub answers: Vec<Performed>,
}

/// The answer to one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Performed {
    /// The keys of a range in ascending order.
    Range {
        /// The keys, at most as many as the limit of the query.
        keys: Vec<KeyValue>,
        /// The range has further keys beyond the limit.
        more: bool,
    },
    /// The value is stored.
    Put,
    /// The number of deleted keys.
    Delete(u64),
    /// The answer of a transaction inside the transaction.
    Inner {
        /// All conditions of the inner transaction held.
        held: bool,
        /// An answer for each of its operations that was done, in order.
        answers: Vec<Self>,
    },
}

/// A change that a watch reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The key was created or modified.
    Put(KeyValue),
    /// The key was deleted, by a request or because its lease ended.
    Delete {
        /// The key.
        key: Bytes,
        /// The change that deleted the key.
        at: Revision,
    },
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoReply {
    /// The request was not carried out.
    Refused,
    /// The request may have been carried out, or may be carried out later: no answer came in time.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_first_key_that_lacks_it() {
        let to = |prefix: &'static [u8]| Range::below(&Bytes::from_static(prefix)).to;
        assert_eq!(to(b"a/"), Some(Bytes::from_static(b"a0")));
        assert_eq!(to(b"a\xff\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!(to(b"\xff\xff"), Some(Bytes::from_static(b"\0")));
        assert_eq!(to(b""), Some(Bytes::from_static(b"\0")));
        assert_eq!(Range::below(&Bytes::new()).from, Bytes::from_static(b"\0"));
    }
}
