//! What a part of a node has to say to other parts. No part knows another part that does something:
//! it puts news on the desk, and the node ([`super`]) gives them to whom they concern.

use std::time::Duration;

use super::io::{PeerKnowledge, Subject, Ticket};
use super::writes::{Job, Write, WriteOutcome};
use crate::engine::Revision;
use crate::keys::RecordPlace;
use crate::names::{ClientName, Generation, Key, NodeId};
use crate::record::{At, Holding};

/// News of a part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum News {
    /// Of the membership: the node is a member since this change. All that it has is written.
    Joined(Revision),
    /// Of the membership: the epoch has ended. What is under way in it is void.
    EpochOver,
    /// Of any part: the numbers of the store have gone back, or its incarnation has changed.
    Fell,
    /// Of the membership: the store has another life, so what was read in its former life is void.
    Anew,
    /// Of the membership: another node has replaced this record of the node by this change. The
    /// note about it is deleted after the record was looked at.
    Lost { place: RecordPlace, change: Generation, delete: Job },
    /// Of the followed tables: a port has another holder, or none.
    Port(Key, Option<(Generation, Holding)>),
    /// Of the chain: what has become of a job.
    Done(Job, Write, WriteOutcome),
    /// Of the homes: a process of this node has yielded to the process in this record.
    Yielded(ClientName, Generation, At),
    /// Of the look-ups: what there is to know of a client.
    Looked(ClientName, PeerKnowledge),
    /// Of the look-ups: the answer for somebody who waits.
    Answer {
        waiter: Waiter,
        subject: Subject,
        known: PeerKnowledge,
        /// The time since it was read.
        age: Duration,
    },
}

/// Who waits for the answer of a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Waiter {
    /// The server.
    Server(Ticket),
    /// A node that has asked, and the number of its question.
    Peer(NodeId, u64),
}
