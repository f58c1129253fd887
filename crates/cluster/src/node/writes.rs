//! What the parts of a node want written, and what has become of it.

use bytes::Bytes;

use super::io::Ticket;
use crate::engine::{Condition, KeyValue, Revision};
use crate::keys::RecordPlace;
use crate::names::{ClientName, Generation, Key, NodeId};
use crate::record::{At, Former, Holding};

/// Something to write. What exactly is written, the owner of the job says when a batch has room.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Job {
    /// A resource that the server wishes, by the claim of this ticket.
    Claim(Ticket, Key),
    /// A resource that the node holds, in the present epoch.
    Keep(Key),
    /// A resource that the node does not hold any more, and the other homes that hold it, by the
    /// record of this number.
    Release(Key, Generation, Option<Box<Holding>>),
    /// The homes of a client of this node.
    Home(ClientName),
    /// A record that nobody needs, if this was its last change.
    Delete(Bytes, Revision),
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub(super) place: Option<RecordPlace>,
    pub(super) key: Bytes,
    pub(super) is: Condition,
    /// The new value; `None` deletes the record.
    pub(super) value: Option<Bytes>,
    /// The living nodes whose record is replaced.
    pub(super) notes: Vec<(NodeId, Former)>,
    /// The homes of a client in the new value.
    pub(super) at: Option<At>,
}

impl Write {
    /// Deletes a record if this was its last change.
    pub(super) const fn delete(key: Bytes, modified: Revision) -> Self {
        let is = Condition::ModifiedAt(modified);
        Self { place: None, key, is, value: None, notes: Vec::new(), at: None }
    }
}

/// What has become of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum WriteOutcome {
    /// Written by the change of this number.
    Written(Revision),
    /// The condition did not hold: the record that there is instead.
    Refused(Option<KeyValue>),
}
