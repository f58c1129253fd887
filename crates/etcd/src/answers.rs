//! What calls return, beside the values of [`cluster::engine`].

use std::time::Duration;

use cluster::engine::{KeyValue, Lease, Revision};

/// Which state of the store a range is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The present state: a quorum confirms it.
    Current,
    /// What the member has, which may be old. It needs no quorum.
    Local,
    /// The state after this change. A quorum confirms that the member has it. A compacted or future
    /// revision is an error with [`Code::OUT_OF_RANGE`](crate::Code::OUT_OF_RANGE).
    At(Revision),
}

/// A part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision of the store when it was read. A range that is read at a revision has the
    /// present revision here.
    pub revision: Revision,
    /// The keys in ascending order.
    pub keys: Vec<KeyValue>,
    /// The range has further keys beyond its limit.
    pub more: bool,
}

/// A new lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its number.
    pub lease: Lease,
    /// How long it lives without a renewal, in whole seconds. etcd may grant more than was asked
    /// for: its least is 1.5 elections (2 s by default).
    pub ttl: Duration,
}

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The version of etcd.
    pub version: String,
    /// The id of the member.
    pub member: u64,
    /// The id of the leader. `None`: the member knows none.
    pub leader: Option<u64>,
    /// The revision of its store.
    pub revision: Revision,
    /// The size of its store on the disk.
    pub bytes: u64,
    /// Errors and alarms in the words of etcd, at most 16.
    pub alarms: Vec<String>,
}
