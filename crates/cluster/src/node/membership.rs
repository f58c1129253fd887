//! The membership of the node: one lease, one record, one epoch.
//!
//! ```text
//!          Grant            read            create           3 s: renew the lease,
//!   Out ────────► Entering ─────► Entering ───────► Member ◄─┐  write the record
//!    ▲               │ any failure                    │  └───┘
//!    ├──── 1 s ──────┘                                │ the lease or the record is gone,
//!    └────────────────────────────────────────────────┘ or the store has another incarnation
//! ```
//!
//! The time of a lease is counted from the moment at which its renewal was *sent*: the engine has
//! started to count later. A node whose time is up is isolated and writes nothing, but its epoch
//! may go on: a new leader of the engine gives each lease its full time again.
//!
//! The node writes its record with each renewal. The write fails if the record is not that of its
//! epoch, or if the store has another incarnation; it makes the watch of the node report something;
//! and it reads which records the node has lost.
//!
//! A store that was restored from a copy is noticed by whoever has lost something: an answer has a
//! lower revision than an earlier answer, the last batch of the node is not there, or its lease has
//! ended before its time. That node replaces the incarnation, by which all other nodes notice.

use std::time::Duration;

use super::claims::CLAIMS;
use super::io::{EngineReply, EngineRequest, Lane, NodeEvent, Output};
use super::{Node, What};
use crate::engine::{
    Compare, Condition, Done, KeyValue, Lease, NoReply, Operation, Performed, Range, Revision,
    Transaction,
};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::NodeEpoch;
use crate::record::{BatchMark, Described, Former, Incarnation, Record as _};

/// The time that a lease lives without a renewal. The engine needs 2 s for an election, and a
/// renewal that failed is repeated twice before a lease ends.
pub const LEASE: Duration = Duration::from_secs(10);

/// The time between renewals.
pub const RENEWAL: Duration = Duration::from_secs(3);

/// The time until a renewal that failed is repeated.
const AGAIN: Duration = Duration::from_millis(250);

/// The time until the next attempt to join.
const JOIN_AGAIN: Duration = Duration::from_secs(1);

/// The most lost records that one renewal reads: 100 KB.
const FORMERS_READ: u32 = 500;

/// The life of the store that the node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Life {
    pub(super) number: u64,
    pub(super) changed: Revision,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Member {
    pub(super) epoch: NodeEpoch,
    pub(super) lease: Lease,
    /// When the last successful renewal was sent.
    pub(super) renewed: Moment,
    renew_at: Moment,
    is_renewing: bool,
    beat_at: Moment,
    is_beating: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum Joining {
    /// The node joins at this moment.
    Out(Moment),
    /// A lease is asked for.
    Granting,
    /// The node has a lease, whose request was sent at this moment, and creates its record.
    Entering(Lease, Moment),
    Member(Member),
    /// The node has ended.
    Left,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Membership {
    pub(super) stage: Joining,
    pub(super) life: Option<Life>,
    /// The store has gone back: the present incarnation has to be replaced.
    fell: bool,
    /// The node was a member before.
    pub(super) was_member: bool,
    /// The node was a member in this life of the store. Another process that has its name by now
    /// has joined later.
    has_joined: bool,
}

impl Membership {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            stage: Joining::Out(now),
            life: None,
            fell: false,
            was_member: false,
            has_joined: false,
        }
    }

    pub(super) const fn member(&self) -> Option<&Member> {
        match &self.stage {
            Joining::Member(member) => Some(member),
            Joining::Out(_) | Joining::Granting | Joining::Entering(..) | Joining::Left => None,
        }
    }

    const fn member_mut(&mut self) -> Option<&mut Member> {
        match &mut self.stage {
            Joining::Member(member) => Some(member),
            Joining::Out(_) | Joining::Granting | Joining::Entering(..) | Joining::Left => None,
        }
    }

    /// The next moment at which something is due.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Joining::Out(at) => Some(*at),
            Joining::Granting | Joining::Entering(..) | Joining::Left => None,
            Joining::Member(member) => {
                let renewal = (!member.is_renewing).then_some(member.renew_at);
                let beat = (!member.is_beating).then_some(member.beat_at);
                [renewal, beat].into_iter().flatten().min()
            }
        }
    }
}

impl Member {
    /// The moment at which the lease may have ended.
    pub(super) const fn until(&self) -> Moment {
        self.renewed.after(LEASE)
    }
}

/// The conditions of each write: the store is the one that the node knows.
pub(super) fn is(key: bytes::Bytes, is: Condition) -> Compare {
    Compare { key, is }
}

impl Node {
    /// The epoch of the node; `None` while it is no member.
    pub(super) fn epoch(&self) -> Option<NodeEpoch> {
        self.membership.member().map(|member| member.epoch)
    }

    /// Whether the lease is certainly alive.
    pub(super) fn is_leased(&self) -> bool {
        self.membership.member().is_some_and(|member| self.now < member.until())
    }

    /// The condition that the store has the incarnation that the node knows.
    pub(super) fn same_life(&self) -> Option<Compare> {
        let life = self.membership.life?;
        Some(is(self.keys.of(&RecordPlace::Incarnation), Condition::ModifiedAt(life.changed)))
    }

    fn own_key(&self) -> bytes::Bytes {
        self.keys.of(&RecordPlace::Node(self.settings.node.clone()))
    }

    /// The conditions that this epoch of the node lives, in this life of the store.
    pub(super) fn same_epoch(&self) -> Option<Vec<Compare>> {
        let created = Condition::CreatedAt(Revision(self.epoch()?.0));
        Some(vec![self.same_life()?, is(self.own_key(), created)])
    }

    /// The queries that tell why [`same_epoch`](Self::same_epoch) does not hold.
    pub(super) fn why_not(&self) -> [Operation; 2] {
        [self.keys.of(&RecordPlace::Incarnation), self.own_key()]
            .map(Range::of)
            .map(Operation::Range)
    }

    /// Does what is due.
    pub(super) fn turn_membership(&mut self) {
        match &mut self.membership.stage {
            Joining::Out(at) if *at <= self.now => {
                self.membership.stage = Joining::Granting;
                let what = What::Grant { sent: self.now };
                self.request(what, EngineRequest::Grant(LEASE));
            }
            Joining::Out(_) | Joining::Granting | Joining::Entering(..) | Joining::Left => {}
            Joining::Member(member) => {
                let (lease, now) = (member.lease, self.now);
                let renews = !member.is_renewing && member.renew_at <= now;
                let beats = !member.is_beating && member.beat_at <= now;
                member.is_renewing |= renews;
                member.is_beating |= beats;
                if renews {
                    self.request(What::KeepAlive { sent: now }, EngineRequest::KeepAlive(lease));
                }
                if beats {
                    self.beat(lease);
                }
            }
        }
    }

    fn beat(&mut self, lease: Lease) {
        let Some(compare) = self.same_epoch() else { return };
        let (key, value) = (self.own_key(), self.settings.record.encode());
        let mut lost = self.keys.formers_of(&self.settings.node);
        lost.limit = FORMERS_READ;
        let batch = self.keys.of(&RecordPlace::Batch(self.settings.node.clone()));
        let then = vec![
            Operation::Put { key, value, lease: Some(lease) },
            Operation::Range(lost),
            Operation::Range(Range::of(batch)),
        ];
        let transaction = Transaction { compare, then, otherwise: self.why_not().into() };
        let (number, changed) = self.chain.last();
        self.request(
            What::Beat { number, changed },
            EngineRequest::Transact(Lane::Renewals, transaction),
        );
    }

    /// The lease was granted, or not.
    pub(super) fn granted(&mut self, sent: Moment, reply: Result<EngineReply, NoReply>) {
        let Ok(EngineReply::Granted(lease)) = reply else { return self.join_later(JOIN_AGAIN) };
        self.membership.stage = Joining::Entering(lease, sent);
        let queries = [Range::of(self.keys.of(&RecordPlace::Incarnation)), self.keys.nodes()];
        let then = queries.map(Operation::Range).into();
        self.step(What::Survey, Transaction { then, ..Transaction::default() });
    }

    fn step(&mut self, what: What, transaction: Transaction) {
        self.request(what, EngineRequest::Transact(Lane::Renewals, transaction));
    }

    /// An attempt to join has failed.
    fn join_later(&mut self, pause: Duration) {
        if let Joining::Entering(lease, _) = self.membership.stage {
            self.request(What::Nothing, EngineRequest::Revoke(lease));
        }
        let pause = self.random.about(pause);
        self.membership.stage = Joining::Out(self.now.after(pause));
        self.forget_requests(What::is_of_epoch);
    }

    /// The nodes and the incarnation are known: creates what is missing, one step at a time.
    pub(super) fn surveyed(&mut self, done: &Done) {
        let [Performed::Range { keys: life, .. }, Performed::Range { keys: nodes, .. }] =
            done.answers.as_slice()
        else {
            return self.join_later(JOIN_AGAIN);
        };
        let Some((life, number)) = self.known_life(life.first()) else { return };
        if self.membership.life.is_some_and(|known| known.number != number) && !self.membership.fell
        {
            // Another node has noticed first that the store was replaced.
            self.start_anew();
        }
        self.membership.fell = false;
        self.membership.life = Some(Life { number, changed: life });
        let own = self.own_key();
        for node in nodes.iter().filter(|node| node.key != own) {
            let Some(RecordPlace::Node(name)) = self.keys.place(&node.key) else { continue };
            let read = Described::decode(&node.value);
            let common = read.ok().and_then(|it| it.versions.common(self.settings.record.versions));
            if common.is_none() {
                self.report(NodeEvent::NoCommonVersion(name));
                return self.join_later(LEASE);
            }
        }
        let Joining::Entering(lease, _) = self.membership.stage else { return };
        let Some(same_life) = self.same_life() else { return };
        if let Some(former) = nodes.iter().find(|node| node.key == own) {
            let process = Described::decode(&former.value).ok().map(|record| record.process);
            if let Some(process) = process.filter(|process| {
                self.membership.has_joined && *process != self.settings.record.process
            }) {
                self.report(NodeEvent::NameTaken { process });
                return self.join_later(LEASE);
            }
            // An epoch is the change that creates the key, so the key is deleted first.
            let compare = vec![same_life, is(own.clone(), Condition::CreatedAt(former.created))];
            let then = vec![Operation::Delete { key: own }];
            let evict = Transaction { compare, then, ..Transaction::default() };
            return self.step(What::Prepare, evict);
        }
        let put = |key, value| Operation::Put { key, value, lease: Some(lease) };
        let compare = vec![same_life, is(own.clone(), Condition::Absent)];
        let batch = self.keys.of(&RecordPlace::Batch(self.settings.node.clone()));
        let then = vec![
            put(own, self.settings.record.encode()),
            put(batch, BatchMark { number: 0 }.encode()),
        ];
        let enter = Transaction { compare, then, ..Transaction::default() };
        self.step(What::Enter, enter);
    }

    /// The incarnation of the store. Asks for a new one, and returns `None`, if the store has none
    /// or one that is void.
    fn known_life(&mut self, found: Option<&KeyValue>) -> Option<(Revision, u64)> {
        let key = self.keys.of(&RecordPlace::Incarnation);
        let known = self.membership.life.map(|life| life.number).filter(|_| self.membership.fell);
        let condition = match found {
            None => Condition::Absent,
            Some(found) => {
                match Incarnation::decode(&found.value) {
                    Ok(Incarnation { number }) if known != Some(number) => {
                        return Some((found.modified, number));
                    }
                    Ok(_) => {}
                    Err(error) => self.bad_record(&found.key, &error),
                }
                Condition::ModifiedAt(found.modified)
            }
        };
        let value = Incarnation { number: self.random.bits() }.encode();
        let then = vec![Operation::Put { key: key.clone(), value, lease: None }];
        let plant =
            Transaction { compare: vec![is(key, condition)], then, ..Transaction::default() };
        self.step(What::Prepare, plant);
        None
    }

    /// A step before the creation of the record is done, or another node was quicker.
    pub(super) fn prepared(&mut self) {
        let Joining::Entering(lease, sent) = self.membership.stage else { return };
        self.granted(sent, Ok(EngineReply::Granted(lease)));
    }

    /// The record is created, or not.
    pub(super) fn entered(&mut self, done: &Done) {
        let Joining::Entering(lease, sent) = self.membership.stage else { return };
        if !done.held {
            return self.prepared();
        }
        let epoch = NodeEpoch(done.revision.0);
        self.membership.stage = Joining::Member(Member {
            epoch,
            lease,
            renewed: sent,
            renew_at: sent.after(RENEWAL),
            is_renewing: false,
            beat_at: sent.after(RENEWAL),
            is_beating: false,
        });
        self.membership.was_member = true;
        self.membership.has_joined = true;
        self.chain.begin(done.revision);
        self.report(NodeEvent::Joined(epoch));
        self.follow_all();
        self.write_all();
    }

    /// A step to join has failed.
    pub(super) fn not_joined(&mut self) {
        self.join_later(JOIN_AGAIN);
    }

    /// The lease was renewed, or not.
    pub(super) fn renewed(&mut self, sent: Moment, reply: Result<EngineReply, NoReply>) {
        let now = self.now;
        let Some(member) = self.membership.member_mut() else { return };
        member.is_renewing = false;
        match reply {
            Ok(EngineReply::Renewed(true)) => {
                member.renewed = member.renewed.max(sent);
                member.renew_at = sent.after(RENEWAL);
            }
            // The engine counts from a later moment, so a lease ends before its time only together
            // with the store.
            Ok(EngineReply::Renewed(false)) if now < member.until() => self.fall(),
            Ok(EngineReply::Renewed(false)) => self.lose_epoch(),
            Ok(EngineReply::Done(_) | EngineReply::Granted(_)) | Err(_) => {
                member.renew_at = now.after(AGAIN)
            }
        }
    }

    /// The record was written, or not. The last batch before the request had this number, and was
    /// written by this change.
    pub(super) fn beaten(&mut self, last: (u64, Revision), done: Result<&Done, NoReply>) {
        let now = self.now;
        let Some(member) = self.membership.member_mut() else { return };
        member.is_beating = false;
        let Ok(done) = done else {
            member.beat_at = now.after(AGAIN);
            return;
        };
        member.beat_at = now.after(RENEWAL);
        match done.answers.as_slice() {
            [
                Performed::Put,
                Performed::Range { keys, more },
                Performed::Range { keys: batch, .. },
            ] if done.held => {
                if *more {
                    member.beat_at = now.after(AGAIN);
                }
                if !has_batch(batch.first(), last) {
                    return self.fall();
                }
                self.lost_some(keys);
            }
            [life, own] if !done.held => self.fenced(life, own),
            _ => {}
        }
    }

    /// Which of the conditions of an epoch does not hold, by the answers to
    /// [`why_not`](Self::why_not).
    pub(super) fn fenced(&mut self, life: &Performed, own: &Performed) {
        let first = |answer: &Performed| match answer {
            Performed::Range { keys, .. } => keys.first().cloned(),
            Performed::Put | Performed::Delete(_) | Performed::Inner { .. } => None,
        };
        let changed = first(life).map(|life| life.modified);
        if self.membership.life.is_some_and(|known| changed != Some(known.changed)) {
            return self.fall();
        }
        let created = first(own).map(|own| NodeEpoch(own.created.0));
        if created != self.epoch() {
            self.lose_epoch();
        }
    }

    /// The epoch has ended: everything is written again in the next epoch.
    pub(super) fn lose_epoch(&mut self) {
        let Some(member) = self.membership.member() else { return };
        let event = NodeEvent::EpochEnded(member.epoch);
        self.report(event);
        self.membership.stage = Joining::Out(self.now);
        self.forget_requests(What::is_of_epoch);
        self.take_back_batch();
    }

    /// The numbers of the store have gone back, or its incarnation has changed.
    pub(super) fn fall(&mut self) {
        if matches!(self.membership.stage, Joining::Left) {
            return;
        }
        self.membership.fell = true;
        self.take_back_batch();
        self.start_anew();
        let pause = self.random.about(AGAIN);
        self.membership.stage = Joining::Out(self.now.after(pause));
        self.forget_requests(What::is_of_epoch);
    }

    /// Forgets all numbers of the former life of the store.
    fn start_anew(&mut self) {
        self.report(NodeEvent::StoreRestored);
        self.revision = Revision(0);
        self.membership.has_joined = false;
        self.asked.clear();
        self.forget_tables();
        self.forget_found();
        self.forget_claims();
        self.forget_homes();
        self.forget_old_writes();
        self.sweep.forget();
    }

    /// Notes of other nodes say that they have replaced records of this node.
    fn lost_some(&mut self, notes: &[KeyValue]) {
        let epoch = self.epoch();
        if self.chain.backlog() > CLAIMS {
            // The notes are read again with the next renewal.
            return;
        }
        for note in notes {
            let Some(RecordPlace::Former(_, place)) = self.keys.place(&note.key) else { continue };
            let is_of_epoch = Former::decode(&note.value).is_ok_and(|it| Some(it.epoch) == epoch);
            if is_of_epoch {
                self.look_again(&place, note.modified.into());
            }
            self.chain.delete(note.key.clone(), note.modified);
        }
    }

    /// The node ends.
    pub(super) fn leave(&mut self) {
        let lease = match &self.membership.stage {
            Joining::Entering(lease, _) | Joining::Member(Member { lease, .. }) => Some(*lease),
            Joining::Out(_) | Joining::Granting | Joining::Left => None,
        };
        if let Some(lease) = lease {
            self.request(What::Nothing, EngineRequest::Revoke(lease));
        }
        self.membership.stage = Joining::Left;
        self.asked.clear();
        self.end_watch();
    }

    fn report(&mut self, event: NodeEvent) {
        self.outputs.push_back(Output::Report(event));
    }

    /// Reports a value that is no record.
    pub(super) fn bad_record(&mut self, key: &[u8], error: &crate::record::BadRecord) {
        let key = String::from_utf8_lossy(key).into_owned();
        self.report(NodeEvent::BadRecord { key, reason: error.to_string() });
    }
}

/// Whether the store has the last batch of this epoch, or a later batch.
fn has_batch(found: Option<&KeyValue>, (number, changed): (u64, Revision)) -> bool {
    let Some(found) = found else { return false };
    let there = BatchMark::decode(&found.value).map(|batch| batch.number);
    there.is_ok_and(|there| there > number || (there == number && found.modified == changed))
}
