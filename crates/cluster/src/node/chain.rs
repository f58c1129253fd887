//! The writes of the node: one batch of at most 120 at a time, each the successor of the last.
//!
//! A batch is one transaction. Each of its writes is an inner transaction with a condition of its
//! own, so that one refused claim refuses no other. The outer conditions are the same for all: the
//! epoch of the node lives, and the record `batch/` of the node is that of the last batch. The
//! batch replaces this record, so no copy of a batch can be carried out after the batch has been
//! carried out, or after the epoch has ended.
//!
//! **A batch without an answer** is sent again as it was. If it was not carried out, one of the
//! copies is carried out now, and the others never. If it was, the conditions do not hold, and the
//! answer has the record `batch/` and all keys of the batch: whatever was written by the change
//! that wrote `batch/` was written by this batch. So the question and the repetition are one
//! request, and nothing that was released meanwhile comes back.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::claims::Pending;
use super::io::{EngineRequest, Lane};
use super::membership::is;
use super::{Node, What};
use crate::engine::{
    Compare, Condition, Done, KeyValue, NoReply, Operation, Performed, Range, Revision, Transaction,
};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, Key, NodeId};
use crate::record::{At, BatchMark, Former, HOMES, Record as _};

/// The most writes of a batch. The engine allows 128 operations, three of which ask why a batch was
/// refused, and a write that replaces the records of all homes of a client has 1 + [`HOMES`].
pub const BATCH: usize = 120;

const _: () = assert!(BATCH + 3 + 1 + HOMES <= crate::engine::OPERATIONS);

/// The time until a batch that was refused is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// Something to write.
#[derive(Clone, Debug, Hash)]
pub(super) enum Job {
    /// A resource that the server wishes.
    Claim(Pending),
    /// A resource that the node holds, in the present epoch.
    Keep(Key),
    /// A resource that the node does not hold any more.
    Release(Key, Generation),
    /// The homes of a client of this node.
    Home(ClientName),
    /// A record that nobody needs, if this was its last change.
    Delete(Bytes, Revision),
}

/// One write.
#[derive(Clone, Debug, Hash)]
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

/// What has become of a write.
pub(super) enum WriteOutcome {
    /// Written by the change of this number.
    Written(Revision),
    /// The condition did not hold: the record that there is instead.
    Refused(Option<KeyValue>),
}

#[derive(Clone, Debug, Hash)]
struct Sent {
    jobs: Vec<(Job, Write)>,
    transaction: Transaction,
    /// Whether a copy is under way.
    is_asked: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Chain {
    queue: VecDeque<Job>,
    sent: Option<Sent>,
    /// The number of the last batch of the epoch, and the change that wrote it.
    number: u64,
    changed: Revision,
    again_at: Moment,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            sent: None,
            number: 0,
            changed: Revision(0),
            again_at: Moment(Duration::ZERO),
        }
    }

    /// A new epoch begins.
    pub(super) const fn begin(&mut self, epoch: Revision) {
        self.number = 0;
        self.changed = epoch;
    }

    /// The number of the last batch of the epoch, and the change that wrote it.
    pub(super) const fn last(&self) -> (u64, Revision) {
        (self.number, self.changed)
    }

    pub(super) fn push(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    pub(super) fn push_again(&mut self, job: Job) {
        self.queue.push_front(job);
    }

    pub(super) fn delete(&mut self, key: Bytes, modified: Revision) {
        self.push(Job::Delete(key, modified));
    }

    /// The number of writes that wait.
    pub(super) fn backlog(&self) -> usize {
        self.queue.len() + self.sent.as_ref().map_or(0, |sent| sent.jobs.len())
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        let waits = self.sent.as_ref().map_or(!self.queue.is_empty(), |sent| !sent.is_asked);
        waits.then_some(self.again_at)
    }
}

impl Write {
    fn transaction(&self, node_key: impl Fn(&NodeId, &RecordPlace) -> Bytes) -> Transaction {
        let key = self.key.clone();
        let mut then = vec![match &self.value {
            Some(value) => Operation::Put { key, value: value.clone(), lease: None },
            None => Operation::Delete { key },
        }];
        if let Some(place) = &self.place {
            let note = |(node, former): &(NodeId, Former)| Operation::Put {
                key: node_key(node, place),
                value: former.encode(),
                lease: None,
            };
            then.extend(self.notes.iter().map(note));
        }
        let compare = vec![is(self.key.clone(), self.is)];
        let otherwise = vec![Operation::Range(Range::of(self.key.clone()))];
        Transaction { compare, then, otherwise }
    }
}

impl Node {
    /// Sends the next batch, or the last batch again.
    pub(super) fn turn_chain(&mut self) {
        if self.chain.again_at > self.now || !self.is_leased() {
            return;
        }
        if self.chain.sent.is_none() {
            self.fill_batch();
        }
        let Some(sent) = self.chain.sent.as_mut().filter(|sent| !sent.is_asked) else { return };
        sent.is_asked = true;
        let transaction = sent.transaction.clone();
        self.request(What::Batch, EngineRequest::Transact(Lane::Claims, transaction));
    }

    fn fill_batch(&mut self) {
        let Some(mut compare) = self.same_epoch() else { return };
        let mut jobs = Vec::new();
        let mut later = Vec::new();
        let mut written = BTreeSet::new();
        let mut inner = Vec::new();
        // Writes that do not fit beside others wait for the next batch, in their order.
        while jobs.len() < BATCH && later.len() < BATCH {
            let Some(job) = self.chain.queue.pop_front() else { break };
            let Some(write) = self.plan(&job) else { continue };
            let transaction = write.transaction(|node, place| {
                let place = Box::new(place.clone());
                self.keys.of(&RecordPlace::Former(node.clone(), place))
            });
            let keys = written_keys(&transaction);
            // The engine refuses a transaction that writes a key twice.
            if keys.iter().any(|key| written.contains(key)) {
                later.push(self.not_planned(job));
                continue;
            }
            written.extend(keys);
            inner.push(transaction);
            jobs.push((job, write));
        }
        for job in later.into_iter().rev() {
            self.chain.push_again(job);
        }
        if jobs.is_empty() {
            return;
        }
        let key = self.keys.of(&RecordPlace::Batch(self.settings.node.clone()));
        compare.push(Compare { key: key.clone(), is: Condition::ModifiedAt(self.chain.changed) });
        let value = BatchMark { number: self.chain.number + 1 }.encode();
        let lease = self.membership.member().map(|member| member.lease);
        let mut then = vec![Operation::Put { key: key.clone(), value, lease }];
        then.extend(inner.into_iter().map(Operation::Inner));
        let mut otherwise = Vec::from(self.why_not());
        let keys = [key].into_iter().chain(jobs.iter().map(|(_, write)| write.key.clone()));
        otherwise.extend(keys.map(Range::of).map(Operation::Range));
        let transaction = Transaction { compare, then, otherwise };
        self.chain.sent = Some(Sent { jobs, transaction, is_asked: false });
    }

    /// What a job has to write now; `None` if there is nothing to do any more.
    fn plan(&mut self, job: &Job) -> Option<Write> {
        match job {
            Job::Claim(pending) => self.plan_claim(pending),
            Job::Keep(key) => self.plan_keep(key),
            Job::Release(key, generation) => {
                let place = RecordPlace::Resource(key.clone());
                let key = self.keys.of(&place);
                Some(delete(key, generation.revision()))
            }
            Job::Home(client) => self.plan_home(client),
            Job::Delete(key, modified) => Some(delete(key.clone(), *modified)),
        }
    }

    /// A job that was planned goes back into the queue.
    fn not_planned(&mut self, job: Job) -> Job {
        match &job {
            Job::Home(client) => self.homes.waits_again(client),
            Job::Keep(key) => self.claims.waits(key),
            Job::Claim(_) | Job::Release(..) | Job::Delete(..) => {}
        }
        job
    }

    /// The answer to a batch, or none.
    pub(super) fn batched(&mut self, done: Result<&Done, NoReply>) {
        let Some(sent) = &mut self.chain.sent else { return };
        sent.is_asked = false;
        let done = match done {
            Ok(done) => done,
            Err(failure) => {
                let pause = match failure {
                    // The driver has waited already.
                    NoReply::Unknown => Duration::ZERO,
                    NoReply::Refused => AGAIN,
                };
                self.chain.again_at = self.now.after(pause);
                return;
            }
        };
        if done.held {
            self.carried_out(done);
        } else {
            self.refused(done);
        }
    }

    /// The batch was carried out, and this is its answer.
    fn carried_out(&mut self, done: &Done) {
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
        self.finish(done.revision, outcomes.collect());
    }

    /// The batch was carried out by this change, with these outcomes.
    fn finish(&mut self, change: Revision, outcomes: Vec<WriteOutcome>) {
        let Some(sent) = &self.chain.sent else { return };
        let went_back =
            |(outcome, (_, write)): (&WriteOutcome, &(Job, Write))| match (outcome, write.is) {
                (WriteOutcome::Refused(Some(found)), Condition::ModifiedAt(known)) => {
                    found.modified < known
                }
                (WriteOutcome::Refused(_) | WriteOutcome::Written(_), _) => false,
            };
        if outcomes.iter().zip(&sent.jobs).any(went_back) {
            // A record is older than it was.
            return self.fall();
        }
        let Some(sent) = self.chain.sent.take() else { return };
        self.chain.number += 1;
        self.chain.changed = change;
        for ((job, write), outcome) in sent.jobs.into_iter().zip(outcomes) {
            self.done(job, write, outcome);
        }
    }

    /// The conditions of the batch did not hold: it was carried out before, or the epoch has ended.
    fn refused(&mut self, done: &Done) {
        let [life, own, batch, keys @ ..] = done.answers.as_slice() else { return };
        let found = first(Some(batch));
        let number =
            found.as_ref().and_then(|it| BatchMark::decode(&it.value).ok()).map(|it| it.number);
        let (now, epoch) = (self.membership.life, self.epoch());
        self.fenced(life, own);
        if self.membership.life != now || self.epoch() != epoch || epoch.is_none() {
            return;
        }
        let Some(found) = found.filter(|_| number == Some(self.chain.number + 1)) else {
            // The epoch lives, and its last batch is not there any more.
            return self.fall();
        };
        let Some(sent) = &self.chain.sent else { return };
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
        self.finish(found.modified, outcomes);
    }

    fn done(&mut self, job: Job, write: Write, outcome: WriteOutcome) {
        match job {
            Job::Claim(pending) => self.claim_done(pending, outcome),
            Job::Keep(key) => self.keep_done(key, outcome),
            Job::Home(client) => self.home_done(&client, write, outcome),
            // Whatever is there now is newer.
            Job::Release(..) | Job::Delete(..) => {}
        }
    }

    /// The epoch has ended: the writes of the batch are planned again in the next epoch.
    pub(super) fn take_back_batch(&mut self) {
        let Some(sent) = self.chain.sent.take() else { return };
        for (job, _) in sent.jobs.into_iter().rev() {
            let job = self.not_planned(job);
            self.chain.push_again(job);
        }
    }

    /// Forgets the writes whose condition is a number of a former life of the store.
    pub(super) fn forget_old_writes(&mut self) {
        self.chain.queue.retain(|job| !matches!(job, Job::Release(..) | Job::Delete(..)));
    }
}

const fn delete(key: Bytes, modified: Revision) -> Write {
    let is = Condition::ModifiedAt(modified);
    Write { place: None, key, is, value: None, notes: Vec::new(), at: None }
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
