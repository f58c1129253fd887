//! What all parts of a node share: who the node is, the time, random numbers, the requests without
//! an answer, and three trays for what a part wants done.
//!
//! | tray | emptied by |
//! |---|---|
//! | outputs | the driver, after each input |
//! | jobs: what is to be written | the chain of batches, when the engine has answered the last |
//! | news for other parts | the node, after each call of a part |

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::io::{EngineReply, EngineRequest, Lane, NodeEvent, NodeSettings, Output, RequestId};
use super::news::News;
use super::random::Random;
use super::snapshot::RequestCounts;
use super::writes::Job;
use crate::engine::{Compare, Condition, NoReply, Operation, Range, Revision, Transaction};
use crate::keys::{Keyspace, RecordPlace};
use crate::moment::Moment;
use crate::names::{NodeEpoch, NodeId};
use crate::record::BadRecord;

/// The life of the store that the node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Life {
    pub(super) number: u64,
    pub(super) changed: Revision,
}

/// The time between two marks of the revisions.
const MARK: Duration = Duration::from_millis(250);

/// The most marks: 64 s. What waits for the engine for longer is ordered by the oldest mark.
const MARKS: usize = 256;

/// A request to the engine without an answer.
#[derive(Clone, Debug, Hash)]
struct Outstanding {
    what: What,
    sent: Moment,
    /// The highest revision of the answers before the request was sent. An answer is linearizable,
    /// so a lower revision in it shows that the store has gone back.
    floor: Revision,
}

/// What a request to the engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// A lease for a new epoch.
    Grant { sent: Moment },
    /// What there is before the record of the node is created.
    Survey,
    /// An incarnation, or the end of a former record of the node.
    Prepare,
    /// The record of the node.
    Enter,
    /// The renewal of the lease.
    KeepAlive { sent: Moment },
    /// The renewal of the record, after this batch, which was written by this change.
    Beat { number: u64, changed: Revision },
    /// A page of the followed tables.
    Page,
    /// A batch of writes.
    Batch,
    /// A batch of look-ups.
    LookUp,
    /// A page of the sweep.
    Sweep,
    /// A batch of wishes about bytes of the server.
    Blobs,
    /// The lease of such bytes.
    BlobLease,
    /// Nobody waits for the answer.
    Nothing,
}

impl What {
    /// Whether the request is void once the epoch has ended.
    const fn is_of_epoch(self) -> bool {
        match self {
            Self::Grant { .. }
            | Self::Survey
            | Self::Prepare
            | Self::Enter
            | Self::KeepAlive { .. }
            | Self::Beat { .. }
            | Self::Batch => true,
            Self::Page
            | Self::LookUp
            | Self::Sweep
            | Self::Blobs
            | Self::BlobLease
            | Self::Nothing => false,
        }
    }
}

/// The desk of a node.
#[derive(Clone, Debug, Hash)]
pub(super) struct Desk {
    pub(super) settings: NodeSettings,
    pub(super) keys: Keyspace,
    pub(super) random: Random,
    pub(super) now: Moment,
    /// What is to be written.
    pub(super) jobs: VecDeque<Job>,
    outputs: VecDeque<Output>,
    news: VecDeque<News>,
    /// The requests to the engine that have no answer yet.
    asked: BTreeMap<RequestId, Outstanding>,
    requests: u64,
    /// The highest revision of any answer.
    revision: Revision,
    /// When the engine answered last.
    heard: Option<Moment>,
    pub(super) counts: RequestCounts,
    /// When requests were sent, and the revisions of their answers, the earliest first.
    marks: VecDeque<(Moment, Revision)>,
}

impl Desk {
    pub(super) fn new(settings: NodeSettings, now: Moment) -> Self {
        Self {
            keys: Keyspace::new(&settings.cluster),
            random: Random(settings.seed),
            settings,
            now,
            jobs: VecDeque::new(),
            outputs: VecDeque::new(),
            news: VecDeque::new(),
            asked: BTreeMap::new(),
            requests: 0,
            revision: Revision(0),
            heard: None,
            counts: RequestCounts::default(),
            marks: VecDeque::new(),
        }
    }

    /// The name of the node.
    pub(super) const fn node(&self) -> &NodeId {
        &self.settings.node
    }

    pub(super) fn output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn report(&mut self, event: NodeEvent) {
        self.output(Output::Report(event));
    }

    /// Reports a value that is no record.
    pub(super) fn bad_record(&mut self, key: &[u8], error: &BadRecord) {
        let key = String::from_utf8_lossy(key).into_owned();
        self.report(NodeEvent::BadRecord { key, reason: error.to_string() });
    }

    /// Tells other parts.
    pub(super) fn tell(&mut self, news: News) {
        self.news.push_back(news);
    }

    pub(super) fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Asks the engine.
    pub(super) fn request(&mut self, what: What, request: EngineRequest) {
        self.requests += 1;
        let id = RequestId(self.requests);
        if what != What::Nothing {
            let asked = Outstanding { what, sent: self.now, floor: self.revision };
            self.asked.insert(id, asked);
        }
        self.output(Output::Request(id, request));
    }

    /// Asks the engine by a transaction.
    pub(super) fn transact(&mut self, what: What, lane: Lane, transaction: Transaction) {
        self.request(what, EngineRequest::Transact(lane, transaction));
    }

    /// The engine has answered, or not. Returns what the request was for, unless nobody waits for
    /// the answer. An answer with a lower revision than an earlier answer is told as
    /// [`News::Fell`], and counts for nothing.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        answer: &Result<EngineReply, NoReply>,
    ) -> Option<What> {
        let Outstanding { what, sent, floor } = self.asked.remove(&id)?;
        if answer.is_ok() {
            self.heard = Some(self.now);
        } else {
            self.counts.unanswered += 1;
        }
        if let Ok(EngineReply::Done(done)) = answer {
            if done.revision < floor {
                self.tell(News::Fell);
                return None;
            }
            self.saw(done.revision);
            self.mark(sent, done.revision);
        }
        Some(what)
    }

    fn mark(&mut self, sent: Moment, revision: Revision) {
        if self.marks.back().is_none_or(|(last, _)| sent >= last.after(MARK)) {
            self.marks.push_back((sent, revision));
            if self.marks.len() > MARKS {
                self.marks.pop_front();
            }
        }
    }

    /// The highest revision of any answer.
    pub(super) const fn revision(&self) -> Revision {
        self.revision
    }

    /// A revision that the store had not passed at this moment, if the engine has answered a
    /// request that was sent since.
    pub(super) fn revision_after(&self, moment: Moment) -> Option<Revision> {
        let at = self.marks.partition_point(|(sent, _)| *sent <= moment);
        self.marks.get(at).map(|(_, revision)| *revision)
    }

    /// The store has this revision, or a later one.
    pub(super) fn saw(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// The answers to requests of an epoch are ignored from now on.
    pub(super) fn end_epoch(&mut self) {
        self.asked.retain(|_, asked| !asked.what.is_of_epoch());
    }

    /// All answers are ignored from now on.
    pub(super) fn forget_requests(&mut self) {
        self.asked.clear();
    }

    /// The numbers of the store are those of another life.
    pub(super) fn forget_numbers(&mut self) {
        self.revision = Revision(0);
        self.marks.clear();
        self.asked.clear();
    }

    /// When the engine answered last.
    pub(super) const fn heard(&self) -> Option<Moment> {
        self.heard
    }

    /// Whether the engine has answered within this time.
    pub(super) fn has_heard(&self, within: Duration) -> bool {
        self.heard.is_some_and(|heard| self.now < heard.after(within))
    }

    /// The key of the own record.
    pub(super) fn own_key(&self) -> Bytes {
        self.keys.of(&RecordPlace::Node(self.settings.node.clone()))
    }

    /// The key of the mark of the last batch.
    pub(super) fn batch_key(&self) -> Bytes {
        self.keys.of(&RecordPlace::Batch(self.settings.node.clone()))
    }

    /// The condition that the store has this incarnation.
    pub(super) fn same_life(&self, life: Life) -> Compare {
        let key = self.keys.of(&RecordPlace::Incarnation);
        Compare { key, is: Condition::ModifiedAt(life.changed) }
    }

    /// The conditions that this epoch of the node lives, in this life of the store.
    pub(super) fn same_epoch(&self, life: Life, epoch: NodeEpoch) -> Vec<Compare> {
        let is = Condition::CreatedAt(Revision(epoch.0));
        vec![self.same_life(life), Compare { key: self.own_key(), is }]
    }

    /// The queries that tell why [`same_epoch`](Self::same_epoch) does not hold.
    pub(super) fn why_not(&self) -> [Operation; 2] {
        [self.keys.of(&RecordPlace::Incarnation), self.own_key()]
            .map(Range::of)
            .map(Operation::Range)
    }
}
