//! The resources that clients of this node hold.
//!
//! A claim first expects that the resource is free, or was claimed before each epoch that lives. If
//! it was not, the answer has the record that is there: a record of a dead epoch, or the record
//! that the server expects, is replaced by the next batch, and any other record is the answer. A
//! node whose record is replaced finds a note with its next renewal (`former/`), also if no node
//! can reach it.
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
use crate::heirloom::{Heirloom, LeftClaim, about_number, key_text};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, Instance, Key, NodeId};
use crate::record::{Former, Holding, Record as _};

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

/// What the record of a resource has to be for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Expected {
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
    /// The living node whose record is replaced.
    note: Option<(NodeId, Former)>,
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
    /// The record waits to be written.
    waits: bool,
}

/// A resource that a former process of the node held, and that nobody has claimed since.
#[derive(Clone, Debug, Hash)]
struct Left {
    client: ClientName,
    instance: Instance,
    about: u64,
    generation: Generation,
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
        let left = self.left.get(&key).filter(|left| left.client == client);
        let there =
            left.map_or(Expected::Absent, |it| Expected::Modified(it.generation.revision()));
        let same = left.filter(|it| it.instance == instance && it.about == about_number(&about));
        if let Some(generation) = same.map(|it| it.generation) {
            // The record says all of this.
            self.left.remove(&key);
            self.hold(key, (client, instance, about), generation);
            return desk.output(Output::Claimed(ticket, Claimed::Held(generation)));
        }
        self.patience.push_back((desk.now.after(PATIENCE), ticket));
        desk.jobs.push_back(Job::Claim(ticket, key.clone()));
        let (note, tries) = (None, 0);
        let pending = PendingClaim { key, client, instance, about, expected, there, note, tries };
        self.open.insert(ticket, pending);
    }

    /// Answers claims that have waited for long, and releases what was left for long.
    pub(super) fn turn(&mut self, desk: &mut Desk) {
        if self.left_until <= desk.now {
            let left = std::mem::take(&mut self.left).into_iter();
            desk.jobs.extend(left.map(|(key, left)| Job::Release(key, left.generation)));
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
        let record = holding(standing, &pending.client, pending.instance, &pending.about)?;
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
            notes: pending.note.iter().cloned().collect(),
            at: None,
        })
    }

    /// What has become of the write of a claim.
    pub(super) fn claim_done(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        (ticket, key): (Ticket, Key),
        outcome: WriteOutcome,
    ) {
        let there = match outcome {
            WriteOutcome::Written(change) => return self.claimed(desk, ticket, key, change.into()),
            WriteOutcome::Refused(there) => there,
        };
        let Some(pending) = self.open.get_mut(&ticket) else { return };
        pending.tries += 1;
        if pending.tries >= TRIES {
            return self.answer(desk, ticket, Claimed::Away);
        }
        let Some(found) = there else {
            (pending.there, pending.note) = (Expected::Absent, None);
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
        let is_own = self.held.contains_key(&key) && record.node == *desk.node();
        let is_dead = !is_own && standing.is_void(&record.node, record.epoch);
        if !is_dead && pending.expected != Some(generation) {
            let taken = Claimed::Taken { by: record.owner(), generation };
            return self.answer(desk, ticket, taken);
        }
        let is_elsewhere = !is_dead && record.node != *desk.node();
        pending.note = is_elsewhere.then_some((record.node, Former { epoch: record.epoch }));
        pending.there = Expected::Modified(found.modified);
        desk.jobs.push_front(Job::Claim(ticket, key));
    }

    fn claimed(&mut self, desk: &mut Desk, ticket: Ticket, key: Key, generation: Generation) {
        let Some(pending) = self.open.get(&ticket).cloned() else {
            // The server does not wait any more.
            return desk.jobs.push_back(Job::Release(key, generation));
        };
        self.left.remove(&key);
        let of = (pending.client, pending.instance, pending.about);
        let former = self.hold(key.clone(), of, generation);
        self.answer(desk, ticket, Claimed::Held(generation));
        if let Some(HeldKey { generation, .. }) = former {
            // Whoever has passed the claim on knows; another owner has to close its entrance.
            desk.output(Output::Lost { key, generation });
        }
    }

    /// Holds a resource by the claim of this number. Returns what was held before.
    fn hold(
        &mut self,
        key: Key,
        (client, instance, about): (ClientName, Instance, String),
        generation: Generation,
    ) -> Option<HeldKey> {
        let (former, there) = (Vec::new(), Expected::Modified(generation.revision()));
        let held = HeldKey { client, instance, about, generation, former, there, waits: false };
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
                about: about_number(&held.about),
            });
        }
        for (key, of) in &self.left {
            let Left { client, instance, about, generation } = of.clone();
            let key = key_text(&desk.keys, key);
            left.claims.push(LeftClaim { key, client, instance, generation, about });
        }
    }

    /// The claims of a former process of this node wait for their clients until this moment.
    pub(super) fn adopt(&mut self, left: &Heirloom, until: Moment) {
        self.left_until = until;
        for (key, of) in left.resources() {
            let LeftClaim { client, instance, generation, about, .. } = of.clone();
            self.left.insert(key, Left { client, instance, about, generation });
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
            desk.jobs.push_back(Job::Release(key, held.generation));
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
        let value = Some(holding(standing, &held.client, held.instance, &held.about)?.encode());
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
        outcome: WriteOutcome,
    ) {
        match outcome {
            WriteOutcome::Written(revision) => {
                let generation = Generation::from(revision);
                let Some(held) = self.held.get_mut(&key) else {
                    // Released while it was written.
                    return desk.jobs.push_back(Job::Release(key, generation));
                };
                let former = held.generation;
                held.generation = generation;
                held.former.push(former);
                held.former.drain(..held.former.len().saturating_sub(FORMER));
                held.there = Expected::Modified(revision);
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
        let Some(held) = self.held.get_mut(&key) else { return };
        let expected = match there {
            None => Expected::Absent,
            Some(found) => {
                let replaceable = match Holding::decode(&found.value) {
                    Ok(record) => {
                        let is_same = record.client == held.client
                            && record.instance == held.instance
                            && record.node == *desk.node();
                        is_same || standing.is_void(&record.node, record.epoch)
                    }
                    Err(error) => {
                        desk.bad_record(&found.key, &error);
                        false
                    }
                };
                if !replaceable {
                    return self.lose(desk, key);
                }
                Expected::Modified(found.modified)
            }
        };
        (held.there, held.waits) = (expected, true);
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
        let record = holding(standing, &held.client, held.instance, &held.about)?;
        Some((held.generation, record))
    }

    /// The tables have a new holder of a port.
    pub(super) fn look_at_port(
        &mut self,
        desk: &mut Desk,
        key: &Key,
        generation: Generation,
        holder: &Holding,
    ) {
        let is_newer = |held: &HeldKey| generation > held.generation;
        let is_elsewhere = holder.node != *desk.node();
        if is_elsewhere && self.held.get(key).is_some_and(is_newer) {
            self.lose(desk, key.clone());
        }
    }

    /// The numbers of all claims are those of a former life of the store.
    pub(super) fn forget(&mut self) {
        for held in self.held.values_mut() {
            held.there = Expected::Absent;
        }
    }
}

/// The record of a resource in the present epoch of this node.
fn holding(
    standing: &NodeStanding<'_>,
    client: &ClientName,
    instance: Instance,
    about: &str,
) -> Option<Holding> {
    let (node, epoch) = (standing.node.clone(), standing.epoch?);
    Some(Holding { client: client.clone(), instance, node, epoch, about: about.into() })
}
