//! The bytes of the server, on a lane of their own: whatever the server keeps, records of clients
//! and claims wait for none of it.
//!
//! One batch of up to 16 wishes is under way at a time, under the condition that the epoch of the
//! node lives. A wish is sent once: a write without an answer may have been carried out, and the
//! server is told so. A blob that is kept for a time has a lease of its own, which is asked for
//! before.

use std::collections::{BTreeSet, VecDeque};
use std::mem;

use bytes::Bytes;

use super::desk::{Desk, What};
use super::io::{EngineReply, EngineRequest, Lane, NodeEvent, Output, Ticket};
use super::standing::NodeStanding;
use crate::blob::{self, BLOB_BYTES, Blob, BlobAct, BlobExpected, BlobOutcome, BlobWish};
use crate::engine::{
    Compare, Condition, Done, KeyValue, Lease, NoReply, Operation, Performed, Range, Transaction,
};
use crate::keys::BlobPlace;
use crate::record::{Record as _, Revoked};

/// The most wishes that wait: 8 MiB.
pub const BLOBS: usize = 256;

/// The most wishes of a batch. A request of etcd has 1.5 MiB at most, an answer of 32 KiB each.
pub const BLOB_BATCH: usize = 16;

const _: () = assert!(BLOB_BATCH * BLOB_BYTES <= 512 * 1024);

#[derive(Clone, Debug, Hash)]
pub(super) struct Blobs {
    queue: VecDeque<(Ticket, BlobWish, Option<Lease>)>,
    /// The wish whose lease is asked for.
    leasing: Option<(Ticket, BlobWish)>,
    asked: Vec<(Ticket, BlobWish)>,
}

impl Blobs {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), leasing: None, asked: Vec::new() }
    }

    /// The server wishes something.
    pub(super) fn wish(
        &mut self,
        desk: &mut Desk,
        is_leased: bool,
        ticket: Ticket,
        wish: BlobWish,
    ) {
        let is_long = match &wish.act {
            BlobAct::Put { value, .. } => value.len() > BLOB_BYTES,
            BlobAct::Get | BlobAct::Delete { .. } => false,
        };
        if is_long || !wish.place.fits() {
            return desk.output(Output::Blob(ticket, BlobOutcome::TooLong));
        }
        if !is_leased || self.queue.len() >= BLOBS {
            return away(desk, ticket, false);
        }
        self.queue.push_back((ticket, wish, None));
    }

    pub(super) fn turn(&mut self, desk: &mut Desk, standing: &NodeStanding<'_>) {
        if !self.asked.is_empty() || self.leasing.is_some() || self.queue.is_empty() {
            return;
        }
        let Some(compare) = standing.same_epoch(desk).filter(|_| standing.is_leased) else {
            return self.give_up(desk);
        };
        let mut then = Vec::new();
        let mut written = BTreeSet::new();
        while then.len() < BLOB_BATCH {
            let Some((_, wish, lease)) = self.queue.front() else { break };
            let key = desk.keys.of(&wish.place.record());
            let keep = match &wish.act {
                BlobAct::Put { keep, .. } => keep.filter(|_| lease.is_none()),
                BlobAct::Get | BlobAct::Delete { .. } => None,
            };
            if let Some(keep) = keep {
                // The wishes before go first, and the lease is there for the next batch.
                if then.is_empty() {
                    let wish = self.queue.pop_front();
                    self.leasing = wish.map(|(ticket, wish, _)| (ticket, wish));
                    desk.request(What::BlobLease, EngineRequest::Grant(Lane::Blobs, keep));
                    return;
                }
                break;
            }
            // The engine refuses a transaction that writes a key twice, and wishes stay in order.
            if !written.insert(key.clone()) {
                break;
            }
            then.push(operation(key, wish, *lease));
            if let Some((ticket, wish, _)) = self.queue.pop_front() {
                self.asked.push((ticket, wish));
            }
        }
        desk.counts.blob_batches += 1;
        desk.counts.blobs += then.len() as u64;
        let transaction = Transaction { compare, then, otherwise: desk.why_not().into() };
        desk.transact(What::Blobs, Lane::Blobs, transaction);
    }

    /// The lease of a wish was granted, or not.
    pub(super) fn leased(&mut self, desk: &mut Desk, reply: &Result<EngineReply, NoReply>) {
        let Some((ticket, wish)) = self.leasing.take() else { return };
        match reply {
            Ok(EngineReply::Granted(lease)) => self.queue.push_front((ticket, wish, Some(*lease))),
            Ok(EngineReply::Done(_) | EngineReply::Renewed(_)) | Err(_) => {
                away(desk, ticket, false);
            }
        }
    }

    /// The answer to a batch, or none.
    pub(super) fn answered(&mut self, desk: &mut Desk, done: Result<&Done, NoReply>) {
        let asked = mem::take(&mut self.asked);
        match done {
            Ok(done) if done.held => {
                for ((ticket, wish), answer) in asked.into_iter().zip(&done.answers) {
                    let outcome = outcome(desk, &wish, done, answer);
                    desk.output(Output::Blob(ticket, outcome));
                }
            }
            // The epoch has ended, and nothing was carried out.
            Ok(_) | Err(NoReply::Refused) => {
                asked.into_iter().for_each(|(ticket, _)| away(desk, ticket, false));
            }
            Err(NoReply::Unknown) => {
                for (ticket, wish) in asked {
                    away(desk, ticket, wish.act != BlobAct::Get);
                }
            }
        }
    }

    /// The engine is away, or the numbers in the wishes are of a former life of the store.
    fn give_up(&mut self, desk: &mut Desk) {
        let queue = mem::take(&mut self.queue);
        queue.into_iter().for_each(|(ticket, ..)| away(desk, ticket, false));
    }

    /// The store has another life. No answer to what is under way will come.
    pub(super) fn forget(&mut self, desk: &mut Desk) {
        self.give_up(desk);
        if let Some((ticket, _)) = self.leasing.take() {
            away(desk, ticket, false);
        }
        self.answered(desk, Err(NoReply::Unknown));
    }
}

fn away(desk: &mut Desk, ticket: Ticket, may_be_done: bool) {
    desk.output(Output::Blob(ticket, BlobOutcome::Away { may_be_done }));
}

/// What the engine has to do for a wish.
fn operation(key: Bytes, wish: &BlobWish, lease: Option<Lease>) -> Operation {
    let range = Operation::Range(Range::of(key.clone()));
    let (act, expected) = match &wish.act {
        BlobAct::Get => return range,
        BlobAct::Put { value, expected, .. } => {
            let value = match &wish.place {
                BlobPlace::Revoked(_) => Revoked {}.encode(),
                BlobPlace::Account(_)
                | BlobPlace::Certificate(_)
                | BlobPlace::Challenge(_)
                | BlobPlace::Client(_)
                | BlobPlace::Code(_)
                | BlobPlace::Tickets(_) => blob::encode(value),
            };
            (Operation::Put { key: key.clone(), value, lease }, *expected)
        }
        BlobAct::Delete { expected } => (Operation::Delete { key: key.clone() }, *expected),
    };
    let compare = match expected {
        BlobExpected::Any => Vec::new(),
        BlobExpected::Absent => vec![Compare { key, is: Condition::Absent }],
        BlobExpected::At(revision) => vec![Compare { key, is: Condition::ModifiedAt(revision) }],
    };
    Operation::Inner(Transaction { compare, then: vec![act], otherwise: vec![range] })
}

fn outcome(desk: &mut Desk, wish: &BlobWish, done: &Done, answer: &Performed) -> BlobOutcome {
    match answer {
        Performed::Range { keys, .. } => match keys.first() {
            None => BlobOutcome::Found(None),
            Some(found) => read(desk, &wish.place, found),
        },
        Performed::Inner { held: true, answers } => match answers.first() {
            Some(Performed::Delete(0)) => BlobOutcome::Refused(None),
            Some(Performed::Delete(_)) => BlobOutcome::Deleted,
            Some(Performed::Put) => BlobOutcome::Written(done.revision),
            Some(Performed::Range { .. } | Performed::Inner { .. }) | None => {
                BlobOutcome::Away { may_be_done: true }
            }
        },
        Performed::Inner { held: false, answers } => match answers.first() {
            Some(Performed::Range { keys, .. }) => {
                BlobOutcome::Refused(keys.first().map(|found| found.modified))
            }
            Some(Performed::Put | Performed::Delete(_) | Performed::Inner { .. }) | None => {
                BlobOutcome::Refused(None)
            }
        },
        Performed::Put | Performed::Delete(_) => {
            BlobOutcome::Away { may_be_done: wish.act != BlobAct::Get }
        }
    }
}

/// A blob of the engine. A version that this program does not read is reported, and is no blob
/// that the server could write over by mistake.
fn read(desk: &mut Desk, place: &BlobPlace, found: &KeyValue) -> BlobOutcome {
    let value = match place {
        BlobPlace::Revoked(_) => Some(Bytes::new()),
        BlobPlace::Account(_)
        | BlobPlace::Certificate(_)
        | BlobPlace::Challenge(_)
        | BlobPlace::Client(_)
        | BlobPlace::Code(_)
        | BlobPlace::Tickets(_) => blob::decode(&found.value),
    };
    let Some(value) = value else {
        let key = String::from_utf8_lossy(&found.key).into_owned();
        let reason = "the blob has a version that this program does not read".into();
        desk.report(NodeEvent::BadRecord { key, reason });
        return BlobOutcome::Away { may_be_done: false };
    };
    BlobOutcome::Found(Some(Blob { revision: found.modified, value }))
}
