//! The writes of the node: one batch of at most 120 at a time, each the successor of the last.
//!
//! A batch is one transaction. Each of its writes is an inner transaction with a condition of its
//! own, so that one refused claim refuses no other. The outer conditions are the same for all: the
//! epoch of the node lives, and the record `batch/` of the node is that of the last batch. The
//! batch replaces this record, so no copy of a batch can be carried out after the batch has been
//! carried out, or after the epoch has ended.
//!
//! **Batches gather.** While a batch is under way, what is to be written waits for the next, so
//! batches grow exactly when the engine is slow. Where nobody waits for a write, as for the record
//! of a client that is logged in, the next batch begins 100 ms after the last began. The first
//! write after a pause begins at once.
//!
//! **A batch without an answer** is sent again as it was. If it was not carried out, one of the
//! copies is carried out now, and the others never. If it was, the conditions do not hold, and the
//! answer has the record `batch/` and all keys of the batch: whatever was written by the change
//! that wrote `batch/` was written by this batch. So the question and the repetition are one
//! request, and nothing that was released meanwhile comes back.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::desk::{Desk, What};
use super::io::Lane;
use super::news::News;
use super::standing::NodeStanding;
use super::writes::{Job, Write, WriteOutcome};
use crate::engine::{
    Compare, Condition, Done, KeyValue, Lease, NoReply, Operation, Performed, Range, Revision,
    Transaction,
};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::NodeId;
use crate::record::{BatchMark, Former, HOMES, Record as _};

/// The most writes of a batch. The engine allows 128 operations, three of which ask why a batch was
/// refused, and a write that replaces the records of all homes of a client has 1 + [`HOMES`].
pub const BATCH: usize = 120;

const _: () = assert!(BATCH + 3 + 1 + HOMES <= crate::engine::OPERATIONS);

/// The time from the start of a batch to the next batch that nobody waits for. The engine works 756
/// µs for a batch and 44 µs for each of its writes, and a node with 10,000 clients has 6 log-ins
/// and log-outs in a second.
pub const GATHER: Duration = Duration::from_millis(100);

/// The time until a batch that was refused is sent again.
const AGAIN: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Hash)]
struct Sent {
    jobs: Vec<(Job, Write)>,
    transaction: Transaction,
    /// Whether a copy is under way.
    is_asked: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Chain {
    sent: Option<Sent>,
    /// The number of the last batch of the epoch, and the change that wrote it.
    number: u64,
    changed: Revision,
    again_at: Moment,
    /// When the last batch was filled.
    filled: Moment,
}

impl Chain {
    pub(super) const fn new() -> Self {
        let never = Moment(Duration::ZERO);
        Self { sent: None, number: 0, changed: Revision(0), again_at: never, filled: never }
    }

    /// A new epoch begins.
    pub(super) const fn begin(&mut self, epoch: Revision) {
        self.number = 0;
        self.changed = epoch;
    }

    /// The epoch goes on behind this batch.
    pub(super) const fn adopt(&mut self, (number, changed): (u64, Revision)) {
        (self.number, self.changed) = (number, changed);
    }

    /// Whether no batch is under way.
    pub(super) const fn is_idle(&self) -> bool {
        self.sent.is_none()
    }

    /// The number of the last batch of the epoch, and the change that wrote it.
    pub(super) const fn last(&self) -> (u64, Revision) {
        (self.number, self.changed)
    }

    /// The number of writes that wait.
    pub(super) fn backlog(&self, desk: &Desk) -> usize {
        desk.jobs.len() + self.sent.as_ref().map_or(0, |sent| sent.jobs.len())
    }

    pub(super) fn deadline(&self, desk: &Desk) -> Option<Moment> {
        match &self.sent {
            Some(sent) => (!sent.is_asked).then_some(self.again_at),
            None => (!desk.jobs.is_empty()).then(|| self.again_at.max(self.next_at(desk))),
        }
    }

    /// When the next batch begins: at once if somebody waits for one of its writes or if it is
    /// full, and otherwise some time after the last, so that it gathers writes.
    fn next_at(&self, desk: &Desk) -> Moment {
        let is_awaited = |job: &Job| match job {
            Job::Claim(..) => true,
            Job::Keep(_) | Job::Release(..) | Job::Home(_) | Job::Delete(..) => false,
        };
        if desk.jobs.len() >= BATCH || desk.jobs.iter().any(is_awaited) {
            return self.filled;
        }
        self.filled.after(desk.settings.gather)
    }

    /// Sends the next batch, or the last batch again. `plan` says what a job has to write now;
    /// `None` if there is nothing to do any more. Returns jobs that were planned and do not fit
    /// into the batch.
    pub(super) fn turn(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        lease: Option<Lease>,
        plan: impl FnMut(&mut Desk, &Job) -> Option<Write>,
    ) -> Vec<Job> {
        if self.again_at > desk.now || !standing.is_leased {
            return Vec::new();
        }
        let later = if self.sent.is_none() && self.next_at(desk) <= desk.now {
            self.fill(desk, standing, lease, plan)
        } else {
            Vec::new()
        };
        if let Some(sent) = self.sent.as_mut().filter(|sent| !sent.is_asked) {
            sent.is_asked = true;
            desk.counts.batches += 1;
            desk.counts.writes += sent.jobs.len() as u64;
            desk.transact(What::Batch, Lane::Claims, sent.transaction.clone());
        }
        later
    }

    fn fill(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        lease: Option<Lease>,
        mut plan: impl FnMut(&mut Desk, &Job) -> Option<Write>,
    ) -> Vec<Job> {
        let Some(mut compare) = standing.same_epoch(desk) else { return Vec::new() };
        let mut jobs = Vec::new();
        let mut later = Vec::new();
        let mut written = BTreeSet::new();
        let mut inner = Vec::new();
        // Writes that do not fit beside others wait for the next batch, in their order.
        while jobs.len() < BATCH && later.len() < BATCH {
            let Some(job) = desk.jobs.pop_front() else { break };
            let Some(write) = plan(desk, &job) else { continue };
            let transaction = transaction(&write, |node, place| {
                let place = Box::new(place.clone());
                desk.keys.of(&RecordPlace::Former(node.clone(), place))
            });
            let keys = written_keys(&transaction);
            // The engine refuses a transaction that writes a key twice.
            if keys.iter().any(|key| written.contains(key)) {
                later.push(job);
                continue;
            }
            written.extend(keys);
            inner.push(transaction);
            jobs.push((job, write));
        }
        if jobs.is_empty() {
            return later;
        }
        let key = desk.batch_key();
        compare.push(Compare { key: key.clone(), is: Condition::ModifiedAt(self.changed) });
        let value = BatchMark { number: self.number + 1 }.encode();
        let mut then = vec![Operation::Put { key: key.clone(), value, lease }];
        then.extend(inner.into_iter().map(Operation::Inner));
        let mut otherwise = Vec::from(desk.why_not());
        let keys = [key].into_iter().chain(jobs.iter().map(|(_, write)| write.key.clone()));
        otherwise.extend(keys.map(Range::of).map(Operation::Range));
        let transaction = Transaction { compare, then, otherwise };
        self.sent = Some(Sent { jobs, transaction, is_asked: false });
        self.filled = desk.now;
        later
    }

    /// The answer to a batch, or none. An answer by which the conditions of the batch did not hold
    /// is for [`Chain::refused`], if the epoch lives nevertheless.
    pub(super) fn answered(&mut self, desk: &mut Desk, done: Result<&Done, NoReply>) {
        let Some(sent) = &mut self.sent else { return };
        sent.is_asked = false;
        match done {
            Ok(done) if done.held => self.carried_out(desk, done),
            Ok(_) => {}
            Err(failure) => {
                let pause = match failure {
                    // The driver has waited already.
                    NoReply::Unknown => Duration::ZERO,
                    NoReply::Refused => AGAIN,
                };
                self.again_at = desk.now.after(pause);
            }
        }
    }

    /// The batch was carried out, and this is its answer.
    fn carried_out(&mut self, desk: &mut Desk, done: &Done) {
        // The first answer is that of the record `batch/`.
        let outcomes = done.answers.iter().skip(1).map(|answer| match answer {
            Performed::Inner { held: true, .. } => WriteOutcome::Written(done.revision),
            Performed::Inner { held: false, answers } => {
                WriteOutcome::Refused(first(answers.first()))
            }
            Performed::Range { .. } | Performed::Put | Performed::Delete(_) => {
                WriteOutcome::Refused(None)
            }
        });
        self.finish(desk, done.revision, outcomes.collect());
    }

    /// The batch was carried out by this change, with these outcomes.
    fn finish(&mut self, desk: &mut Desk, change: Revision, outcomes: Vec<WriteOutcome>) {
        let Some(sent) = &self.sent else { return };
        let went_back =
            |(outcome, (_, write)): (&WriteOutcome, &(Job, Write))| match (outcome, write.is) {
                (WriteOutcome::Refused(Some(found)), Condition::ModifiedAt(known)) => {
                    found.modified < known
                }
                (WriteOutcome::Refused(_) | WriteOutcome::Written(_), _) => false,
            };
        if outcomes.iter().zip(&sent.jobs).any(went_back) {
            // A record is older than it was.
            return desk.tell(News::Fell);
        }
        let Some(sent) = self.sent.take() else { return };
        self.number += 1;
        self.changed = change;
        for ((job, write), outcome) in sent.jobs.into_iter().zip(outcomes) {
            desk.tell(News::Done(job, write, outcome));
        }
    }

    /// The conditions of the batch did not hold, and the epoch lives: the batch was carried out
    /// before.
    pub(super) fn refused(&mut self, desk: &mut Desk, done: &Done) {
        let Some(sent) = &self.sent else { return };
        let [_, _, batch, keys @ ..] = done.answers.as_slice() else { return };
        let found = first(Some(batch));
        let number =
            found.as_ref().and_then(|it| BatchMark::decode(&it.value).ok()).map(|it| it.number);
        let Some(found) = found.filter(|_| number == Some(self.number + 1)) else {
            // The epoch lives, and its last batch is not there any more.
            return desk.tell(News::Fell);
        };
        let outcomes = sent.jobs.iter().zip(keys).map(|((_, write), answer)| {
            let there = first(Some(answer));
            let is_ours = there.as_ref().map(|it| it.modified) == Some(found.modified);
            let is_deleted = there.is_none() && write.value.is_none();
            if is_ours || is_deleted {
                WriteOutcome::Written(found.modified)
            } else {
                WriteOutcome::Refused(there)
            }
        });
        let outcomes = outcomes.collect();
        self.finish(desk, found.modified, outcomes);
    }

    /// The epoch has ended. Returns the jobs of the batch, which are planned again in the next
    /// epoch.
    pub(super) fn take_back(&mut self) -> Vec<Job> {
        let sent = self.sent.take();
        sent.into_iter().flat_map(|sent| sent.jobs).map(|(job, _)| job).collect()
    }
}

/// A write as a transaction. `note`: the key of the note for a node that loses the record at a
/// place.
fn transaction(write: &Write, note: impl Fn(&NodeId, &RecordPlace) -> Bytes) -> Transaction {
    let key = write.key.clone();
    let mut then = vec![match &write.value {
        Some(value) => Operation::Put { key, value: value.clone(), lease: None },
        None => Operation::Delete { key },
    }];
    if let Some(place) = &write.place {
        let note = |(node, former): &(NodeId, Former)| Operation::Put {
            key: note(node, place),
            value: former.encode(),
            lease: None,
        };
        then.extend(write.notes.iter().map(note));
    }
    let compare = vec![Compare { key: write.key.clone(), is: write.is }];
    let otherwise = vec![Operation::Range(Range::of(write.key.clone()))];
    Transaction { compare, then, otherwise }
}

fn first(answer: Option<&Performed>) -> Option<KeyValue> {
    match answer? {
        Performed::Range { keys, .. } => keys.first().cloned(),
        Performed::Put | Performed::Delete(_) | Performed::Inner { .. } => None,
    }
}

fn written_keys(transaction: &Transaction) -> Vec<Bytes> {
    let key = |operation: &Operation| match operation {
        Operation::Put { key, .. } | Operation::Delete { key } => Some(key.clone()),
        Operation::Range(_) | Operation::Inner(_) => None,
    };
    transaction.then.iter().filter_map(key).collect()
}
