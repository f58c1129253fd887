//! The resources that clients of this node hold.
//!
//! A claim first expects that the resource is free. If it is not, the answer has the record that is
//! there: a record of a dead epoch, or the record that the server expects, is replaced by the next
//! batch, and any other record is the answer. A node whose record is replaced finds a note with its
//! next renewal (`former/`), also if no node can reach it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::Node;
use super::chain::{Job, Write, WriteOutcome};
use super::io::{Claimed, Output, Ticket};
use crate::engine::{Condition, KeyValue, Revision};
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
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    pub(super) client: ClientName,
    pub(super) instance: Instance,
    pub(super) about: String,
    /// The claim that the server expects.
    pub(super) expected: Option<Generation>,
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

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Claims {
    held: BTreeMap<Key, HeldKey>,
    /// The claims that were not answered, and when their patience ends, the earliest first.
    open: BTreeSet<Ticket>,
    patience: VecDeque<(Moment, Ticket)>,
}

impl Claims {
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.patience.front().map(|(until, _)| *until)
    }

    /// The record of a resource is in the queue again.
    pub(super) fn waits(&mut self, key: &Key) {
        if let Some(held) = self.held.get_mut(key) {
            held.waits = true;
        }
    }

    /// The resources, each with its latest number.
    pub(super) fn held(&self) -> impl Iterator<Item = (&Key, Generation)> {
        self.held.iter().map(|(key, held)| (key, held.generation))
    }
}

impl Node {
    /// The server wishes a resource.
    pub(super) fn claim(
        &mut self,
        (ticket, key): (Ticket, Key),
        (client, instance): (ClientName, Instance),
        about: String,
        expected: Option<Generation>,
    ) {
        if !self.is_leased() || self.claims.patience.len() >= CLAIMS {
            self.outputs.push_back(Output::Claimed(ticket, Claimed::Away));
            return;
        }
        self.claims.open.insert(ticket);
        self.claims.patience.push_back((self.now.after(PATIENCE), ticket));
        let (there, note, tries) = (Expected::Absent, None, 0);
        let pending =
            Pending { ticket, key, client, instance, about, expected, there, note, tries };
        self.chain.push(Job::Claim(pending));
    }

    /// Answers claims that have waited for long.
    pub(super) fn turn_claims(&mut self) {
        while let Some((until, ticket)) = self.claims.patience.front().copied() {
            if until > self.now && self.claims.open.contains(&ticket) {
                break;
            }
            self.claims.patience.pop_front();
            if self.claims.open.remove(&ticket) {
                self.outputs.push_back(Output::Claimed(ticket, Claimed::Away));
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, claimed: Claimed) {
        if self.claims.open.remove(&ticket) {
            self.outputs.push_back(Output::Claimed(ticket, claimed));
        }
    }

    fn holding(&self, client: &ClientName, instance: Instance, about: &str) -> Option<Holding> {
        Some(Holding {
            client: client.clone(),
            instance,
            node: self.settings.node.clone(),
            epoch: self.epoch()?,
            about: about.into(),
        })
    }

    pub(super) fn plan_claim(&self, pending: &Pending) -> Option<Write> {
        if !self.claims.open.contains(&pending.ticket) {
            return None;
        }
        let record = self.holding(&pending.client, pending.instance, &pending.about)?;
        let place = RecordPlace::Resource(pending.key.clone());
        Some(Write {
            key: self.keys.of(&place),
            place: Some(place),
            is: pending.there.condition(),
            value: Some(record.encode()),
            notes: pending.note.iter().cloned().collect(),
            at: None,
        })
    }

    pub(super) fn claim_done(&mut self, mut pending: Pending, outcome: WriteOutcome) {
        let there = match outcome {
            WriteOutcome::Written(revision) => return self.claimed(pending, revision.into()),
            WriteOutcome::Refused(there) => there,
        };
        pending.tries += 1;
        if pending.tries >= TRIES {
            return self.answer(pending.ticket, Claimed::Away);
        }
        let Some(found) = there else {
            (pending.there, pending.note) = (Expected::Absent, None);
            return self.chain.push_again(Job::Claim(pending));
        };
        let record = match Holding::decode(&found.value) {
            Ok(record) => record,
            Err(error) => {
                self.bad_record(&found.key, &error);
                return self.answer(pending.ticket, Claimed::Away);
            }
        };
        let generation = Generation::from(found.modified);
        // What this node holds is void in a former epoch for other nodes only.
        let is_own =
            self.claims.held.contains_key(&pending.key) && record.node == self.settings.node;
        let is_dead = !is_own && self.is_void(&record.node, record.epoch);
        if !is_dead && pending.expected != Some(generation) {
            return self.answer(pending.ticket, Claimed::Taken { by: record.owner(), generation });
        }
        let is_elsewhere = !is_dead && record.node != self.settings.node;
        pending.note = is_elsewhere.then_some((record.node, Former { epoch: record.epoch }));
        pending.there = Expected::Modified(found.modified);
        self.chain.push_again(Job::Claim(pending));
    }

    /// Whether a record of this node in this epoch is void: the epoch has ended.
    pub(super) fn is_void(&self, node: &NodeId, epoch: crate::names::NodeEpoch) -> bool {
        if *node == self.settings.node {
            self.epoch() != Some(epoch)
        } else {
            self.follow.is_dead(epoch)
        }
    }

    fn claimed(&mut self, pending: Pending, generation: Generation) {
        let Pending { ticket, key, client, instance, about, .. } = pending;
        if !self.claims.open.contains(&ticket) {
            // The server does not wait any more.
            self.chain.push(Job::Release(key, generation));
            return;
        }
        let there = Expected::Modified(generation.revision());
        let held = HeldKey {
            client,
            instance,
            about,
            generation,
            former: Vec::new(),
            there,
            waits: false,
        };
        let former = self.claims.held.insert(key.clone(), held);
        self.answer(ticket, Claimed::Held(generation));
        if let Some(HeldKey { generation, .. }) = former {
            // Whoever has passed the claim on knows; another owner has to close its entrance.
            self.outputs.push_back(Output::Lost { key, generation });
        }
    }

    /// The server does not need a resource any more.
    pub(super) fn release(&mut self, key: Key, generation: Generation) {
        let latest = self.claims.held.get(&key);
        let is_latest =
            |held: &HeldKey| held.generation == generation || held.former.contains(&generation);
        if latest.is_some_and(is_latest)
            && let Some(held) = self.claims.held.remove(&key)
        {
            self.chain.push(Job::Release(key, held.generation));
        }
    }

    pub(super) fn plan_keep(&mut self, key: &Key) -> Option<Write> {
        let held = self.claims.held.get_mut(key)?;
        held.waits = false;
        let is = held.there.condition();
        let (client, instance, about) = (held.client.clone(), held.instance, held.about.clone());
        let value = Some(self.holding(&client, instance, &about)?.encode());
        let place = RecordPlace::Resource(key.clone());
        let at = self.keys.of(&place);
        Some(Write { key: at, place: Some(place), is, value, notes: Vec::new(), at: None })
    }

    pub(super) fn keep_done(&mut self, key: Key, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Written(revision) => {
                let generation = Generation::from(revision);
                let Some(held) = self.claims.held.get_mut(&key) else {
                    // Released while it was written.
                    self.chain.push(Job::Release(key, generation));
                    return;
                };
                let former = held.generation;
                held.generation = generation;
                held.former.push(former);
                held.former.drain(..held.former.len().saturating_sub(FORMER));
                held.there = Expected::Modified(revision);
                self.outputs.push_back(Output::Renumbered { key, former, generation });
            }
            WriteOutcome::Refused(there) => self.not_kept(key, there),
        }
    }

    fn not_kept(&mut self, key: Key, there: Option<KeyValue>) {
        let Some(held) = self.claims.held.get(&key) else { return };
        let expected = match there {
            None => Expected::Absent,
            Some(found) => {
                let replaceable = match Holding::decode(&found.value) {
                    Ok(record) => {
                        let is_same = record.client == held.client
                            && record.instance == held.instance
                            && record.node == self.settings.node;
                        is_same || self.is_void(&record.node, record.epoch)
                    }
                    Err(error) => {
                        self.bad_record(&found.key, &error);
                        false
                    }
                };
                if !replaceable {
                    return self.lose(key);
                }
                Expected::Modified(found.modified)
            }
        };
        if let Some(held) = self.claims.held.get_mut(&key) {
            held.there = expected;
            held.waits = true;
            self.chain.push_again(Job::Keep(key));
        }
    }

    fn lose(&mut self, key: Key) {
        if let Some(held) = self.claims.held.remove(&key) {
            self.outputs.push_back(Output::Lost { key, generation: held.generation });
        }
    }

    /// The record of a held resource has to be written in the present epoch, or looked at.
    pub(super) fn keep(&mut self, key: &Key) {
        if let Some(held) = self.claims.held.get_mut(key)
            && !held.waits
        {
            held.waits = true;
            self.chain.push(Job::Keep(key.clone()));
        }
    }

    /// The record of a resource that this node holds.
    pub(super) fn own_holding(&self, key: &Key) -> Option<(Generation, Holding)> {
        let held = self.claims.held.get(key)?;
        Some((held.generation, self.holding(&held.client, held.instance, &held.about)?))
    }

    /// The watch reports the holder of a port.
    pub(super) fn look_at_port(&mut self, key: &Key, generation: Generation, holder: &Holding) {
        let is_newer = |held: &HeldKey| generation > held.generation;
        let is_elsewhere = holder.node != self.settings.node;
        if is_elsewhere && self.claims.held.get(key).is_some_and(is_newer) {
            self.lose(key.clone());
        }
    }

    /// The numbers of all claims are those of a former life of the store.
    pub(super) fn forget_claims(&mut self) {
        for held in self.claims.held.values_mut() {
            held.there = Expected::Absent;
        }
    }
}
