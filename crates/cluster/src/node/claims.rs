//! The resources that clients of this node hold.
//!
//! A claim first expects that the resource is free, or was claimed before each epoch that lives. If
//! it was not, the answer has the record that is there: a record of a dead epoch, or the record
//! that the server expects, is replaced by the next batch, and any other record is the answer. A
//! node whose record is replaced finds a note with its next renewal (`former/`), also if no node
//! can reach it.
//!
//! **Homes.** A process of a client may register a resource at several nodes. Each of them enters
//! itself in the record, beside the nodes that are there, and the resource is free when the last of
//! them has released it or is dead. A node does not learn of a change of the record that leaves it
//! there: its next write is refused, and finds the number. What the record says of the services is
//! that of the last registration.
//!
//! What a former process of the node held for a client waits for the client ([`Left`]): the client
//! has its claims as before, without a write, and what it does not claim is released after a while.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::desk::Desk;
use super::io::{Claimed, Output, Ticket};
use super::standing::NodeStanding;
use super::writes::{Job, Write, WriteOutcome};
use crate::engine::{Condition, KeyValue, Revision};
use crate::heirloom::{Heirloom, LeftClaim, key_text};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, Instance, Key, NodeId};
use crate::record::{self, Former, HOMES, Holder, Holding, Record as _};

/// The time after which a claim without an answer is answered with [`Claimed::Away`]: five times
/// the dead-line of a request.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The most claims that wait for an answer. A node has 10,000 clients, each with some services.
pub const CLAIMS: usize = 65_536;

/// The most batches for one claim. Each further batch means that another node was quicker.
const TRIES: u32 = 8;

/// The most former numbers of a claim that are kept. The server handles all outputs before the next
/// epoch begins.
const FORMER: usize = 4;

/// The fence of what a former process has left and a claim is about to replace. No claim has it.
const OVER: u64 = 0;

/// The number of a record that has to be looked at before it is released.
pub(super) const UNKNOWN: Generation = Generation(0);

/// What the record of a resource has to be for a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Expected {
    #[default]
    Absent,
    Modified(Revision),
}

impl Expected {
    const fn condition(self) -> Condition {
        match self {
            Self::Absent => Condition::Absent,
            Self::Modified(revision) => Condition::ModifiedAt(revision),
        }
    }
}

/// A claim that was not answered yet.
#[derive(Clone, Debug, Hash)]
struct PendingClaim {
    key: Key,
    client: ClientName,
    instance: Instance,
    about: String,
    /// The claim that the server expects.
    expected: Option<Generation>,
    there: Expected,
    /// The other homes of the process in the record that is there.
    with: Vec<Holder>,
    /// The living nodes whose record is replaced.
    notes: Vec<(NodeId, Former)>,
    tries: u32,
}

/// A resource that the node holds.
#[derive(Clone, Debug, Hash)]
struct HeldKey {
    client: ClientName,
    instance: Instance,
    about: String,
    /// The present number of the claim.
    generation: Generation,
    /// Its last numbers before. The server may release the claim by one of these, before it has
    /// handled [`Output::Renumbered`].
    former: Vec<Generation>,
    there: Expected,
    /// The other homes of the process in the record of this number.
    with: Vec<Holder>,
    /// The record waits to be written.
    waits: bool,
}

/// A resource that a former process of the node held, and that nobody has claimed since.
#[derive(Clone, Debug, Hash)]
struct Left {
    client: ClientName,
    instance: Instance,
    /// [`record::fence`] of the record, or [`OVER`].
    fence: u64,
    generation: Generation,
    /// The other homes of the process in the record.
    also: Vec<Holder>,
}

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Claims {
    held: BTreeMap<Key, HeldKey>,
    left: BTreeMap<Key, Left>,
    /// When what is left is released.
    left_until: Moment,
    /// The claims that were not answered, and when their patience ends, the earliest first.
    open: BTreeMap<Ticket, PendingClaim>,
    patience: VecDeque<(Moment, Ticket)>,
}

impl Claims {
    pub(super) fn deadline(&self) -> Option<Moment> {
        let patience = self.patience.front().map(|(until, _)| *until);
        let left = (!self.left.is_empty()).then_some(self.left_until);
        [patience, left].into_iter().flatten().min()
    }

    /// The record of a resource is in the queue again.
    pub(super) fn waits_again(&mut self, key: &Key) {
        if let Some(held) = self.held.get_mut(key) {
            held.waits = true;
        }
    }

    /// The resources, each with its latest number.
    pub(super) fn held(&self) -> impl Iterator<Item = (&Key, Generation)> {
        self.held.iter().map(|(key, held)| (key, held.generation))
    }
}

impl Claims {
    /// The server wishes a resource.
    pub(super) fn claim(
        &mut self,
        desk: &mut Desk,
        is_leased: bool,
        (ticket, key): (Ticket, Key),
        (client, instance): (ClientName, Instance),
        about: String,
        expected: Option<Generation>,
    ) {
        if !is_leased || self.patience.len() >= CLAIMS {
            return desk.output(Output::Claimed(ticket, Claimed::Away));
        }
        let left = self.left.get_mut(&key).filter(|left| left.client == client);
        let (mut there, mut with) = (Expected::Absent, Vec::new());
        if let Some(left) = left {
            let is_same = left.instance == instance;
            if is_same && left.fence == record::fence(&key, instance, &about) {
                // The record says all of this.
                let (generation, with) = (left.generation, std::mem::take(&mut left.also));
                self.left.remove(&key);
                self.hold(key, (client, instance, about), (generation, with));
                return desk.output(Output::Claimed(ticket, Claimed::Held(generation)));
            }
            // A later claim finds the record of this claim, or nothing.
            left.fence = OVER;
            // A process with a home elsewhere is asked for the resource in the usual way.
            if is_same || left.also.is_empty() {
                there = Expected::Modified(left.generation.revision());
                with.clone_from(&left.also);
            }
        }
        self.patience.push_back((desk.now.after(PATIENCE), ticket));
        desk.jobs.push_back(Job::Claim(ticket, key.clone()));
        let (notes, tries) = (Vec::new(), 0);
        let pending =
            PendingClaim { key, client, instance, about, expected, there, with, notes, tries };
        self.open.insert(ticket, pending);
    }

    /// Answers claims that have waited for long, and releases what was left for long.
    pub(super) fn turn(&mut self, desk: &mut Desk) {
        if self.left_until <= desk.now {
            let left = std::mem::take(&mut self.left).into_iter();
            desk.jobs.extend(left.map(|(key, left)| {
                // What the record says for the other homes is not known here.
                let number = if left.also.is_empty() { left.generation } else { UNKNOWN };
                Job::Release(key, number, None)
            }));
        }
        while let Some((until, ticket)) = self.patience.front().copied() {
            if until > desk.now && self.open.contains_key(&ticket) {
                break;
            }
            self.patience.pop_front();
            self.answer(desk, ticket, Claimed::Away);
        }
    }

    fn answer(&mut self, desk: &mut Desk, ticket: Ticket, claimed: Claimed) {
        if self.open.remove(&ticket).is_some() {
            desk.output(Output::Claimed(ticket, claimed));
        }
    }

    /// What a claim has to write.
    pub(super) fn plan_claim(
        &self,
        desk: &Desk,
        standing: &NodeStanding<'_>,
        ticket: Ticket,
    ) -> Option<Write> {
        let pending = self.open.get(&ticket)?;
        let by = (&pending.client, pending.instance);
        let record = holding(standing, by, &pending.about, &pending.with)?;
        let is = match pending.there {
            // The record of a resource that this node holds may be from a former epoch.
            Expected::Absent if !self.held.contains_key(&pending.key) => {
                standing.is_absent_or_dead()
            }
            there @ (Expected::Absent | Expected::Modified(_)) => there.condition(),
        };
        let place = RecordPlace::Resource(pending.key.clone());
        Some(Write {
            key: desk.keys.of(&place),
            place: Some(place),
            is,
            value: Some(record.encode()),
            notes: pending.notes.clone(),
            at: None,
        })
    }

    /// What has become of the write of a claim.
    pub(super) fn claim_done(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        (ticket, key): (Ticket, Key),
        (write, outcome): (&Write, WriteOutcome),
    ) {
        let there = match outcome {
            WriteOutcome::Written(change) => {
                let rest = rest_in(standing, write);
                return self.claimed(desk, ticket, key, (change.into(), rest));
            }
            WriteOutcome::Refused(there) => there,
        };
        let Some(pending) = self.open.get_mut(&ticket).filter(|it| it.tries + 1 < TRIES) else {
            self.answer(desk, ticket, Claimed::Away);
            // The claim may have been written before another home changed the record.
            return self.release_done(desk, standing, key, WriteOutcome::Refused(there));
        };
        pending.tries += 1;
        let Some(found) = there else {
            (pending.there, pending.with, pending.notes) = Default::default();
            return desk.jobs.push_front(Job::Claim(ticket, key));
        };
        let record = match Holding::decode(&found.value) {
            Ok(record) => record,
            Err(error) => {
                desk.bad_record(&found.key, &error);
                return self.answer(desk, ticket, Claimed::Away);
            }
        };
        let generation = Generation::from(found.modified);
        // What this node holds is void in a former epoch for other nodes only.
        let is_own = self.held.contains_key(&key) && record.epoch_of(desk.node()).is_some();
        let is_dead = !is_own && standing.is_free(&record);
        let is_same = record.is_of(&pending.client, pending.instance);
        let others = standing.others(&record);
        let joins = is_same && !is_own && others.len() < HOMES;
        // Nobody but a former process of this node has the resource for this client.
        let is_left = !is_own
            && others.is_empty()
            && record.client == pending.client
            && self.left.get(&key).is_some_and(|left| left.client == pending.client);
        if !is_dead && !joins && !is_left && pending.expected != Some(generation) {
            let mut by = record.owner();
            let own = record.epoch_of(desk.node()).filter(|_| is_own);
            let own = own.map(|epoch| Holder { node: desk.node().clone(), epoch });
            // A home that lives answers for the process.
            if let Some(Holder { node, epoch }) = own.or_else(|| others.first().cloned()) {
                (by.node, by.epoch) = (node, epoch);
            }
            return self.answer(desk, ticket, Claimed::Taken { by, generation });
        }
        let (lose, stay) = if is_same { split(others, HOMES - 1) } else { (others, Vec::new()) };
        let note = |it: Holder| (it.node, Former { epoch: it.epoch });
        (pending.with, pending.notes) = (stay, lose.into_iter().map(note).collect());
        pending.there = Expected::Modified(found.modified);
        desk.jobs.push_front(Job::Claim(ticket, key));
    }

    /// A claim was written, by the change of this number, beside the homes `rest`.
    fn claimed(
        &mut self,
        desk: &mut Desk,
        ticket: Ticket,
        key: Key,
        (generation, rest): (Generation, Option<Box<Holding>>),
    ) {
        self.left.remove(&key);
        let Some(pending) = self.open.get(&ticket).cloned() else {
            // The server does not wait any more.
            return desk.jobs.push_back(Job::Release(key, generation, rest));
        };
        let of = (pending.client, pending.instance, pending.about);
        let former = self.hold(key.clone(), of, (generation, pending.with));
        self.answer(desk, ticket, Claimed::Held(generation));
        // The tables may have had the new record first.
        let former = former.map(|former| former.generation).filter(|it| *it != generation);
        if let Some(generation) = former {
            // Whoever has passed the claim on knows; another owner has to close its entrance.
            desk.output(Output::Lost { key, generation });
        }
    }

    /// Holds a resource by the claim of this number, beside the homes `with`. Returns what was held
    /// before.
    fn hold(
        &mut self,
        key: Key,
        (client, instance, about): (ClientName, Instance, String),
        (generation, with): (Generation, Vec<Holder>),
    ) -> Option<HeldKey> {
        let (former, there) = (Vec::new(), Expected::Modified(generation.revision()));
        let held =
            HeldKey { client, instance, about, generation, former, there, with, waits: false };
        self.held.insert(key, held)
    }

    /// The claims for the next process of this node. Claims without an answer have none.
    pub(super) fn leave_to(&mut self, desk: &mut Desk, left: &mut Heirloom) {
        let open: Vec<_> = self.open.keys().copied().collect();
        open.into_iter().for_each(|ticket| self.answer(desk, ticket, Claimed::Away));
        let is_written = |held: &HeldKey| {
            !held.waits && held.there == Expected::Modified(held.generation.revision())
        };
        for (key, held) in self.held.iter().filter(|(_, held)| is_written(held)) {
            left.claims.push(LeftClaim {
                key: key_text(&desk.keys, key),
                client: held.client.clone(),
                instance: held.instance,
                generation: held.generation,
                fence: record::fence(key, held.instance, &held.about),
                also: held.with.clone(),
            });
        }
        for (key, of) in &self.left {
            let Left { client, instance, fence, generation, also } = of.clone();
            let key = key_text(&desk.keys, key);
            left.claims.push(LeftClaim { key, client, instance, generation, fence, also });
        }
    }

    /// The claims of a former process of this node wait for their clients until this moment.
    pub(super) fn adopt(&mut self, left: &Heirloom, until: Moment) {
        self.left_until = until;
        for (key, of) in left.resources() {
            let LeftClaim { client, instance, generation, fence, also, .. } = of.clone();
            self.left.insert(key, Left { client, instance, fence, generation, also });
        }
    }

    /// The epoch has ended, and the records of the former process with it.
    pub(super) fn forget_left(&mut self) {
        self.left.clear();
    }

    /// The server does not need a resource any more.
    pub(super) fn release(&mut self, desk: &mut Desk, key: Key, generation: Generation) {
        let latest = self.held.get(&key);
        let is_latest =
            |held: &HeldKey| held.generation == generation || held.former.contains(&generation);
        if latest.is_some_and(is_latest)
            && let Some(held) = self.held.remove(&key)
        {
            let rest = held.rest().map(Box::new);
            desk.jobs.push_back(Job::Release(key, held.generation, rest));
        }
    }

    /// What a released resource has to write: the other homes keep it.
    pub(super) fn plan_release(
        &self,
        desk: &Desk,
        standing: &NodeStanding<'_>,
        (key, generation): (&Key, Generation),
        rest: Option<&Holding>,
    ) -> Option<Write> {
        let place = RecordPlace::Resource(key.clone());
        let (key, modified) = (desk.keys.of(&place), generation.revision());
        if generation == UNKNOWN {
            // The refusal has the record.
            return Some(Write { is: Condition::Absent, ..Write::delete(key, modified) });
        }
        let others = rest.map(|rest| (rest, standing.others(rest)));
        let rest = others.and_then(|(rest, others)| rest_of(rest, others));
        let value = rest.map(|rest| rest.encode());
        Some(Write { value, ..Write::delete(key, modified) })
    }

    /// What has become of the last write of a resource that nobody waits for. Another home of the
    /// process may have changed the record, in which this node still is then.
    pub(super) fn release_done(
        &self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        key: Key,
        outcome: WriteOutcome,
    ) {
        let WriteOutcome::Refused(Some(found)) = outcome else { return };
        // A claim of this node after the release has found the record as well.
        if self.held.contains_key(&key) || self.left.contains_key(&key) {
            return;
        }
        let Ok(record) = Holding::decode(&found.value) else { return };
        let own = record.epoch_of(desk.node());
        if own.is_some() && own == standing.epoch {
            let generation = found.modified.into();
            desk.jobs.push_front(Job::Release(key, generation, Some(Box::new(record))));
        }
    }

    /// What a held resource has to write.
    pub(super) fn plan_keep(
        &mut self,
        desk: &Desk,
        standing: &NodeStanding<'_>,
        key: &Key,
    ) -> Option<Write> {
        let held = self.held.get_mut(key)?;
        held.waits = false;
        let is = held.there.condition();
        let by = (&held.client, held.instance);
        let record = holding(standing, by, &held.about, &held.with)?;
        let value = Some(record.encode());
        let place = RecordPlace::Resource(key.clone());
        let at = desk.keys.of(&place);
        Some(Write { key: at, place: Some(place), is, value, notes: Vec::new(), at: None })
    }

    /// What has become of the write of a held resource.
    pub(super) fn keep_done(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        key: Key,
        (write, outcome): (&Write, WriteOutcome),
    ) {
        match outcome {
            WriteOutcome::Written(revision) => {
                let generation = Generation::from(revision);
                let Some(held) = self.held.get_mut(&key) else {
                    // Released while it was written.
                    let rest = rest_in(standing, write);
                    return desk.jobs.push_back(Job::Release(key, generation, rest));
                };
                let former = held.renumber(generation);
                desk.output(Output::Renumbered { key, former, generation });
            }
            WriteOutcome::Refused(there) => self.not_kept(desk, standing, key, there),
        }
    }

    fn not_kept(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        key: Key,
        there: Option<KeyValue>,
    ) {
        let Some(held) = self.held.get_mut(&key) else {
            // It was released meanwhile, and another home has changed the record.
            return self.release_done(desk, standing, key, WriteOutcome::Refused(there));
        };
        let Some(found) = there else {
            (held.there, held.with, held.waits) = (Expected::Absent, Vec::new(), true);
            return desk.jobs.push_front(Job::Keep(key));
        };
        let record = match Holding::decode(&found.value) {
            Ok(record) => record,
            Err(error) => {
                desk.bad_record(&found.key, &error);
                return self.lose(desk, key);
            }
        };
        let is_same = record.is_of(&held.client, held.instance);
        let others = if is_same { standing.others(&record) } else { Vec::new() };
        if others.len() >= HOMES || !is_same && !standing.is_free(&record) {
            return self.lose(desk, key);
        }
        if is_same && record.epoch_of(&standing.node) == standing.epoch {
            // Another home has changed the record, in which this node is as it should be.
            let generation = Generation::from(found.modified);
            let former = held.adopt(generation, (&record, others));
            return desk.output(Output::Renumbered { key, former, generation });
        }
        if !others.is_empty() {
            // The other home may have had a later registration.
            held.about = record.about;
        }
        (held.there, held.with, held.waits) = (Expected::Modified(found.modified), others, true);
        desk.jobs.push_front(Job::Keep(key));
    }

    fn lose(&mut self, desk: &mut Desk, key: Key) {
        if let Some(held) = self.held.remove(&key) {
            desk.output(Output::Lost { key, generation: held.generation });
        }
    }

    /// The record of a held resource has to be written in the present epoch, or looked at.
    pub(super) fn keep(&mut self, desk: &mut Desk, key: &Key) {
        // Another node has the resource by now, or is about to be told so.
        self.left.remove(key);
        if let Some(held) = self.held.get_mut(key)
            && !held.waits
        {
            held.waits = true;
            desk.jobs.push_back(Job::Keep(key.clone()));
        }
    }

    /// The record of a resource that this node holds.
    pub(super) fn own_holding(
        &self,
        standing: &NodeStanding<'_>,
        key: &Key,
    ) -> Option<(Generation, Holding)> {
        let held = self.held.get(key)?;
        let by = (&held.client, held.instance);
        let record = holding(standing, by, &held.about, &held.with)?;
        Some((held.generation, record))
    }

    /// The tables have a new holder of a port.
    pub(super) fn look_at_port(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        key: &Key,
        generation: Generation,
        holder: &Holding,
    ) {
        let Some(held) = self.held.get_mut(key).filter(|held| generation > held.generation) else {
            return;
        };
        let own = holder.epoch_of(desk.node());
        if !holder.is_of(&held.client, held.instance) {
            if own.is_none() {
                self.lose(desk, key.clone());
            }
        } else if own.is_none() {
            self.keep(desk, key);
        } else if own == standing.epoch && !held.waits && standing.others(holder) != held.with {
            let former = held.adopt(generation, (holder, standing.others(holder)));
            desk.output(Output::Renumbered { key: key.clone(), former, generation });
        }
    }

    /// The numbers of all claims are those of a former life of the store.
    pub(super) fn forget(&mut self) {
        for held in self.held.values_mut() {
            (held.there, held.with) = (Expected::Absent, Vec::new());
        }
    }
}

impl HeldKey {
    /// The record has this number now. Returns the former number.
    fn renumber(&mut self, generation: Generation) -> Generation {
        let former = std::mem::replace(&mut self.generation, generation);
        self.former.push(former);
        self.former.drain(..self.former.len().saturating_sub(FORMER));
        self.there = Expected::Modified(generation.revision());
        former
    }

    /// Another home has written the record of this number, in which this node is. Returns the
    /// former number.
    fn adopt(
        &mut self,
        generation: Generation,
        (record, others): (&Holding, Vec<Holder>),
    ) -> Generation {
        self.about.clone_from(&record.about);
        self.with = others;
        self.renumber(generation)
    }

    /// The record without this node; `None`: no other home is in it.
    fn rest(&self) -> Option<Holding> {
        let (first, also) = self.with.split_first()?;
        Some(Holding {
            client: self.client.clone(),
            instance: self.instance,
            node: first.node.clone(),
            epoch: first.epoch,
            about: self.about.clone(),
            also: also.to_vec(),
        })
    }
}

/// A record with these holders alone; `None`: there is none.
fn rest_of(record: &Holding, holders: Vec<Holder>) -> Option<Holding> {
    let mut holders = holders.into_iter();
    let Holder { node, epoch } = holders.next()?;
    Some(Holding { node, epoch, also: holders.collect(), ..record.clone() })
}

/// The other living homes in the record that was written; `None`: there is none.
fn rest_in(standing: &NodeStanding<'_>, write: &Write) -> Option<Box<Holding>> {
    let record = Holding::decode(write.value.as_ref()?).ok()?;
    let others = standing.others(&record);
    rest_of(&record, others).map(Box::new)
}

/// The first items, and the last `most`.
fn split(mut items: Vec<Holder>, most: usize) -> (Vec<Holder>, Vec<Holder>) {
    let last = items.split_off(items.len().saturating_sub(most));
    (items, last)
}

/// The record of a resource in the present epoch of this node, after the other homes `with`.
fn holding(
    standing: &NodeStanding<'_>,
    (client, instance): (&ClientName, Instance),
    about: &str,
    with: &[Holder],
) -> Option<Holding> {
    let own = Holder { node: standing.node.clone(), epoch: standing.epoch? };
    let mut holders = with.iter().cloned().chain([own]);
    let Holder { node, epoch } = holders.next()?;
    let (client, about, also) = (client.clone(), about.to_owned(), holders.collect());
    Some(Holding { client, instance, node, epoch, about, also })
}
