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
//! started to count later. A process that goes on with the epoch of a former process of its node
//! counts from its own first renewal. A node whose time is up is isolated and writes nothing, but
//! its epoch may go on: a new leader of the engine gives each lease its full time again.
//!
//! The node writes its record with each renewal. The write fails if the record is not that of its
//! epoch, or if the store has another incarnation; it makes the watch of the node report something;
//! and it reads which records the node has lost.
//!
//! A store that was restored from a copy is noticed by whoever has lost something: an answer has a
//! lower revision than an earlier answer, the last batch of the node is not there, or its lease has
//! ended before its time. That node replaces the incarnation, by which all other nodes notice.

use std::time::Duration;

use super::desk::{Desk, Life, What};
use super::io::{EngineReply, EngineRequest, Lane, NodeEvent};
use super::news::News;
use super::writes::Job;
use crate::engine::{
    Compare, Condition, Done, KeyValue, Lease, NoReply, Operation, Performed, Range, Revision,
    Transaction,
};
use crate::heirloom::LeftEpoch;
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::NodeEpoch;
use crate::record::{BatchMark, Described, Former, Incarnation, NodeProgram, Record as _};

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

#[derive(Clone, Debug, Hash)]
struct Member {
    epoch: NodeEpoch,
    lease: Lease,
    /// The moment at which the lease may have ended.
    until: Moment,
    renew_at: Moment,
    is_renewing: bool,
    beat_at: Moment,
    is_beating: bool,
}

#[derive(Clone, Debug, Hash)]
enum Joining {
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
    stage: Joining,
    life: Option<Life>,
    /// The store has gone back: the present incarnation has to be replaced.
    fell: bool,
    /// The node was a member before.
    was_member: bool,
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

    const fn member(&self) -> Option<&Member> {
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

    /// The next moment at which something is due, the end of the lease included.
    pub(super) fn deadline(&self, now: Moment) -> Option<Moment> {
        match &self.stage {
            Joining::Out(at) => Some(*at),
            Joining::Granting | Joining::Entering(..) | Joining::Left => None,
            Joining::Member(member) => {
                let renewal = (!member.is_renewing).then_some(member.renew_at);
                let beat = (!member.is_beating).then_some(member.beat_at);
                let until = Some(member.until).filter(|until| now < *until);
                [renewal, beat, until].into_iter().flatten().min()
            }
        }
    }
}

impl Membership {
    /// The epoch of the node; `None` while it is no member.
    pub(super) fn epoch(&self) -> Option<NodeEpoch> {
        self.member().map(|member| member.epoch)
    }

    /// The lease of the epoch.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.member().map(|member| member.lease)
    }

    /// Whether the lease is certainly alive.
    pub(super) fn is_leased(&self, now: Moment) -> bool {
        self.member().is_some_and(|member| now < member.until)
    }

    /// The life of the store; `None` from the moment at which it was known to be over until the
    /// next is known. What other nodes know of the former life does not count meanwhile.
    pub(super) fn life(&self) -> Option<Life> {
        self.life.filter(|_| !self.fell)
    }

    /// Whether the node was a member before.
    pub(super) const fn was_member(&self) -> bool {
        self.was_member
    }

    /// Whether the node has ended.
    pub(super) const fn has_left(&self) -> bool {
        matches!(self.stage, Joining::Left)
    }

    /// Does what is due. `last`: the number of the last batch, and the change that wrote it.
    pub(super) fn turn(&mut self, desk: &mut Desk, last: (u64, Revision)) {
        let now = desk.now;
        match &mut self.stage {
            Joining::Out(at) if *at <= now => {
                self.stage = Joining::Granting;
                desk.request(
                    What::Grant { sent: now },
                    EngineRequest::Grant(Lane::Renewals, LEASE),
                );
            }
            Joining::Out(_) | Joining::Granting | Joining::Entering(..) | Joining::Left => {}
            Joining::Member(member) => {
                let lease = member.lease;
                let renews = !member.is_renewing && member.renew_at <= now;
                let beats = !member.is_beating && member.beat_at <= now;
                member.is_renewing |= renews;
                member.is_beating |= beats;
                if renews {
                    desk.request(What::KeepAlive { sent: now }, EngineRequest::KeepAlive(lease));
                }
                if beats {
                    self.beat(desk, lease, last);
                }
            }
        }
    }

    fn beat(&self, desk: &mut Desk, lease: Lease, (number, changed): (u64, Revision)) {
        let (Some(life), Some(epoch)) = (self.life, self.epoch()) else { return };
        let (key, value) = (desk.own_key(), desk.settings.record.encode());
        let mut lost = desk.keys.formers_of(desk.node());
        lost.limit = FORMERS_READ;
        let then = vec![
            Operation::Put { key, value, lease: Some(lease) },
            Operation::Range(lost),
            Operation::Range(Range::of(desk.batch_key())),
        ];
        let (compare, otherwise) = (desk.same_epoch(life, epoch), desk.why_not().into());
        let beat = Transaction { compare, then, otherwise };
        desk.transact(What::Beat { number, changed }, Lane::Renewals, beat);
    }

    /// The lease was granted, or not.
    pub(super) fn granted(
        &mut self,
        desk: &mut Desk,
        sent: Moment,
        reply: Result<EngineReply, NoReply>,
    ) {
        let Ok(EngineReply::Granted(lease)) = reply else {
            return self.join_later(desk, JOIN_AGAIN);
        };
        self.survey(desk, lease, sent);
    }

    /// Asks what there is before the record of the node is created.
    fn survey(&mut self, desk: &mut Desk, lease: Lease, sent: Moment) {
        self.stage = Joining::Entering(lease, sent);
        let queries = [Range::of(desk.keys.of(&RecordPlace::Incarnation)), desk.keys.nodes()];
        let then = queries.map(Operation::Range).into();
        desk.transact(What::Survey, Lane::Renewals, Transaction { then, ..Transaction::default() });
    }

    /// An attempt to join has failed.
    fn join_later(&mut self, desk: &mut Desk, pause: Duration) {
        if let Joining::Entering(lease, _) = self.stage {
            desk.request(What::Nothing, EngineRequest::Revoke(lease));
        }
        let pause = desk.random.about(pause);
        self.stage = Joining::Out(desk.now.after(pause));
        desk.end_epoch();
    }

    /// The nodes and the incarnation are known: creates what is missing, one step at a time.
    pub(super) fn surveyed(&mut self, desk: &mut Desk, done: &Done) {
        let [Performed::Range { keys: life, .. }, Performed::Range { keys: nodes, .. }] =
            done.answers.as_slice()
        else {
            return self.join_later(desk, JOIN_AGAIN);
        };
        let Some((life, number)) = self.known_life(desk, life.first()) else { return };
        if self.life.is_some_and(|known| known.number != number) && !self.fell {
            // Another node has noticed first that the store was replaced.
            self.start_anew(desk);
        }
        self.fell = false;
        let life = Life { number, changed: life };
        self.life = Some(life);
        let own = desk.own_key();
        for node in nodes.iter().filter(|node| node.key != own) {
            let Some(RecordPlace::Node(name)) = desk.keys.place(&node.key) else { continue };
            let read = Described::decode(&node.value);
            let common = read.ok().and_then(|it| it.versions.common(desk.settings.record.versions));
            if common.is_none() {
                let its = NodeProgram::of(&node.value);
                desk.report(NodeEvent::NoCommonVersion { node: name, its });
                return self.join_later(desk, LEASE);
            }
        }
        let Joining::Entering(lease, _) = self.stage else { return };
        let same_life = desk.same_life(life);
        if let Some(former) = nodes.iter().find(|node| node.key == own) {
            let process = Described::decode(&former.value).ok().map(|record| record.process);
            let is_other =
                |process: &u64| self.has_joined && *process != desk.settings.record.process;
            if let Some(process) = process.filter(is_other) {
                desk.report(NodeEvent::NameTaken { process });
                return self.join_later(desk, LEASE);
            }
            // An epoch is the change that creates the key, so the key is deleted first.
            let created = Condition::CreatedAt(former.created);
            let compare = vec![same_life, Compare { key: own.clone(), is: created }];
            let then = vec![Operation::Delete { key: own }];
            let evict = Transaction { compare, then, ..Transaction::default() };
            return desk.transact(What::Prepare, Lane::Renewals, evict);
        }
        let put = |key, value| Operation::Put { key, value, lease: Some(lease) };
        let compare = vec![same_life, Compare { key: own.clone(), is: Condition::Absent }];
        let then = vec![
            put(own, desk.settings.record.encode()),
            put(desk.batch_key(), BatchMark { number: 0 }.encode()),
        ];
        let enter = Transaction { compare, then, ..Transaction::default() };
        desk.transact(What::Enter, Lane::Renewals, enter);
    }

    /// The incarnation of the store. Asks for a new one, and returns `None`, if the store has none
    /// or one that is void.
    fn known_life(&self, desk: &mut Desk, found: Option<&KeyValue>) -> Option<(Revision, u64)> {
        let key = desk.keys.of(&RecordPlace::Incarnation);
        let known = self.life.map(|life| life.number).filter(|_| self.fell);
        let is = match found {
            None => Condition::Absent,
            Some(found) => {
                match Incarnation::decode(&found.value) {
                    Ok(Incarnation { number }) if known != Some(number) => {
                        return Some((found.modified, number));
                    }
                    Ok(_) => {}
                    Err(error) => desk.bad_record(&found.key, &error),
                }
                Condition::ModifiedAt(found.modified)
            }
        };
        let value = Incarnation { number: desk.random.bits() }.encode();
        let then = vec![Operation::Put { key: key.clone(), value, lease: None }];
        let plant =
            Transaction { compare: vec![Compare { key, is }], then, ..Transaction::default() };
        desk.transact(What::Prepare, Lane::Renewals, plant);
        None
    }

    /// A step before the creation of the record is done, or another node was quicker.
    pub(super) fn prepared(&mut self, desk: &mut Desk) {
        if let Joining::Entering(lease, sent) = self.stage {
            self.survey(desk, lease, sent);
        }
    }

    /// The record is created, or not.
    pub(super) fn entered(&mut self, desk: &mut Desk, done: &Done) {
        let Joining::Entering(lease, sent) = self.stage else { return };
        if !done.held {
            return self.prepared(desk);
        }
        let epoch = NodeEpoch(done.revision.0);
        self.stage = Joining::Member(Member {
            epoch,
            lease,
            until: sent.after(LEASE),
            renew_at: sent.after(RENEWAL),
            is_renewing: false,
            beat_at: sent.after(RENEWAL),
            is_beating: false,
        });
        (self.was_member, self.has_joined) = (true, true);
        desk.report(NodeEvent::Joined(epoch));
        desk.tell(News::Joined(done.revision));
    }

    /// A step to join has failed.
    pub(super) fn not_joined(&mut self, desk: &mut Desk) {
        self.join_later(desk, JOIN_AGAIN);
    }

    /// The lease was renewed, or not.
    pub(super) fn renewed(
        &mut self,
        desk: &mut Desk,
        sent: Moment,
        reply: Result<EngineReply, NoReply>,
    ) {
        let now = desk.now;
        let Some(member) = self.member_mut() else { return };
        member.is_renewing = false;
        match reply {
            Ok(EngineReply::Renewed(true)) => {
                member.until = member.until.max(sent.after(LEASE));
                member.renew_at = sent.after(RENEWAL);
                self.has_joined = true;
            }
            // The engine counts from a later moment, so a lease ends before its time only together
            // with the store.
            Ok(EngineReply::Renewed(false)) if now < member.until => desk.tell(News::Fell),
            Ok(EngineReply::Renewed(false)) => self.lose_epoch(desk),
            Ok(EngineReply::Done(_) | EngineReply::Granted(_)) | Err(_) => {
                member.renew_at = now.after(AGAIN);
            }
        }
    }

    /// The record was written, or not. The last batch before the request had this number, and was
    /// written by this change. `has_room`: notes are not left for the next renewal.
    pub(super) fn beaten(
        &mut self,
        desk: &mut Desk,
        last: (u64, Revision),
        has_room: bool,
        done: Result<&Done, NoReply>,
    ) {
        let now = desk.now;
        let Some(member) = self.member_mut() else { return };
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
                    return desk.tell(News::Fell);
                }
                if has_room {
                    self.lost_some(desk, keys);
                }
            }
            _ if !done.held => {
                self.fenced(desk, done);
            }
            _ => {}
        }
    }

    /// Which of the conditions of an epoch does not hold, by the answers to [`Desk::why_not`], with
    /// which the answer begins. Returns whether all of them hold now.
    pub(super) fn fenced(&mut self, desk: &mut Desk, done: &Done) -> bool {
        let [life, own, ..] = done.answers.as_slice() else { return true };
        let first = |answer: &Performed| match answer {
            Performed::Range { keys, .. } => keys.first().cloned(),
            Performed::Put | Performed::Delete(_) | Performed::Inner { .. } => None,
        };
        let changed = first(life).map(|life| life.modified);
        if self.life.is_some_and(|known| changed != Some(known.changed)) {
            desk.tell(News::Fell);
            return false;
        }
        let created = first(own).map(|own| NodeEpoch(own.created.0));
        let is_same = created == self.epoch();
        if !is_same {
            self.lose_epoch(desk);
        }
        is_same
    }

    /// The epoch has ended: everything is written again in the next epoch.
    fn lose_epoch(&mut self, desk: &mut Desk) {
        let Some(member) = self.member() else { return };
        desk.report(NodeEvent::EpochEnded(member.epoch));
        self.stage = Joining::Out(desk.now);
        desk.end_epoch();
        desk.tell(News::EpochOver);
    }

    /// The numbers of the store have gone back, or its incarnation has changed.
    pub(super) fn fall(&mut self, desk: &mut Desk) {
        if self.has_left() {
            return;
        }
        self.fell = true;
        desk.tell(News::EpochOver);
        self.start_anew(desk);
        let pause = desk.random.about(AGAIN);
        self.stage = Joining::Out(desk.now.after(pause));
    }

    /// All numbers of the former life of the store are void.
    fn start_anew(&mut self, desk: &mut Desk) {
        desk.report(NodeEvent::StoreRestored);
        desk.forget_numbers();
        self.has_joined = false;
        desk.tell(News::Anew);
    }

    /// Notes of other nodes say that they have replaced records of this node.
    fn lost_some(&self, desk: &mut Desk, notes: &[KeyValue]) {
        for note in notes {
            let Some(RecordPlace::Former(_, place)) = desk.keys.place(&note.key) else { continue };
            let is_of_epoch =
                Former::decode(&note.value).is_ok_and(|it| Some(it.epoch) == self.epoch());
            let delete = Job::Delete(note.key.clone(), note.modified);
            if is_of_epoch {
                desk.tell(News::Lost { place: *place, change: note.modified.into(), delete });
            } else {
                desk.jobs.push_back(delete);
            }
        }
    }

    /// The epoch goes on that a former process of this node has left. Its lease may have ended, so
    /// it counts from the first renewal on, which is due now.
    pub(super) fn adopt(&mut self, desk: &mut Desk, left: LeftEpoch) {
        let (now, (number, changed)) = (desk.now, left.life);
        self.life = Some(Life { number, changed });
        self.was_member = true;
        self.stage = Joining::Member(Member {
            epoch: left.epoch,
            lease: left.lease,
            until: now,
            renew_at: now,
            is_renewing: false,
            beat_at: now,
            is_beating: false,
        });
        desk.report(NodeEvent::GoesOn(left.epoch));
    }

    /// The epoch, for the next process of this node. `None`: the node is no member.
    pub(super) fn left(&self, desk: &Desk, batch: (u64, Revision)) -> Option<LeftEpoch> {
        let (member, life) = (self.member()?, self.life()?);
        let (lease, epoch, life) = (member.lease, member.epoch, (life.number, life.changed));
        Some(LeftEpoch { lease, epoch, life, batch, revision: desk.revision() })
    }

    /// The node ends.
    pub(super) fn leave(&mut self, desk: &mut Desk) {
        let lease = match &self.stage {
            Joining::Entering(lease, _) | Joining::Member(Member { lease, .. }) => Some(*lease),
            Joining::Out(_) | Joining::Granting | Joining::Left => None,
        };
        if let Some(lease) = lease {
            desk.request(What::Nothing, EngineRequest::Revoke(lease));
        }
        self.stage = Joining::Left;
        desk.forget_requests();
    }
}

/// Whether the store has the last batch of this epoch, or a later batch.
fn has_batch(found: Option<&KeyValue>, (number, changed): (u64, Revision)) -> bool {
    let Some(found) = found else { return false };
    let there = BatchMark::decode(&found.value).map(|batch| batch.number);
    there.is_ok_and(|there| there > number || (there == number && found.modified == changed))
}
