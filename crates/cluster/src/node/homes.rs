//! The clients of this node, and their records.
//!
//! A log-in is local: the node serves the client at once, and the record follows with the next
//! batch. Which of two processes is in charge is decided by the record alone, the same way at each
//! node:
//!
//! | the record | a process of this node |
//! |---|---|
//! | is absent | is in charge |
//! | names the process | adds this node as a home; the homes of one process do not fight |
//! | names the process as a former one, and homes elsewhere | yields: its links end |
//! | names another process that logged in later for sure, and homes elsewhere | yields |
//! | names another process | is newer: it replaces the record, in which the other is a former one |
//!
//! **Later for sure.** The record of a process may wait for an engine that has much to do, and a
//! process at another node may be recorded first, although it came later. The record says which
//! change of the store the node of its process had seen at the log-in. A node knows of each of its
//! own processes by which change the log-in had certainly happened: that of the first answer to a
//! request that was sent after it. Where the first number is larger, the other log-in was later.
//!
//! A process yields for as long as the record exists, wherever it logs in, so two processes do not
//! take turns. A record from before each epoch that lives is replaced without a look at it, because
//! it has no living home: after a restart of all nodes the engine writes each record once. So the
//! processes that it names as former ones are forgotten, and the last log-in is in charge. Each
//! other replacement compares the number of the record that it replaces, so of two nodes
//! one is later, and decides by what the other has written.

use std::collections::BTreeMap;

use super::desk::Desk;
use super::io::{Output, PeerKnowledge, PeerMessage};
use super::look_ups::CONFIRMED;
use super::news::News;
use super::peers::PeerLinks;
use super::standing::NodeStanding;
use super::writes::{Job, Write, WriteOutcome};
use crate::engine::{Condition, Revision};
use crate::heirloom::{Heirloom, LeftClient};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, Instance, NodeEpoch, NodeId};
use crate::record::{At, FORMERS, Former, HOMES, Home, Record as _};

/// A client that is logged in at this node.
#[derive(Clone, Debug, Hash)]
pub(super) struct LocalClient {
    pub(super) instance: Instance,
    links: u32,
    /// When the process logged in.
    logged_in: Moment,
    /// The last change of the store that the node had seen then.
    since: Generation,
    /// A change of the store by which the process had logged in, once an answer of the engine
    /// shows it.
    by: Option<Generation>,
    /// The last link has ended, and the record still names this node.
    is_leaving: bool,
    /// The client was at a former process of the node, and its links come to this process soon.
    is_awaited: bool,
    /// The latest record that the node has seen.
    known: Option<(Generation, At)>,
    /// A record with a lower number is not the latest, as a note of another node says.
    least: Generation,
    /// The record has named this process since it logged in here. So a record that names another
    /// process is later than the log-in.
    was_recorded: bool,
    /// A record that names this process was sent to the engine since it logged in, and what became
    /// of it is not known.
    may_be_recorded: bool,
    /// The record waits to be written.
    waits: bool,
    /// The record is written by the batch under way.
    is_written: bool,
    /// The epoch of this node in which it has read or written the record last.
    checked: Option<NodeEpoch>,
    /// When the record was looked up last.
    confirmed: Option<Moment>,
}

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Homes {
    clients: BTreeMap<ClientName, LocalClient>,
    /// When clients of a former process of the node are not waited for any more.
    awaited_until: Option<Moment>,
}

impl LocalClient {
    /// The latest record, unless it is known to be replaced.
    fn latest(&self) -> Option<&(Generation, At)> {
        self.known.as_ref().filter(|(generation, _)| *generation >= self.least)
    }

    /// Whether no record of the client was ever seen or heard of here.
    const fn is_unknown(&self) -> bool {
        self.known.is_none() && self.least.0 == 0 && !self.was_recorded
    }

    /// Enters a record, unless a later record is known.
    fn see(&mut self, generation: Generation, at: At) {
        if self.known.as_ref().is_none_or(|(known, _)| *known < generation) {
            self.was_recorded |= at.instance == self.instance;
            self.known = Some((generation, at));
        }
    }

    /// By which change of the store the process had logged in, as far as answers show it.
    fn learn_age(&mut self, desk: &Desk) {
        self.by = self.by.or_else(|| Some(desk.revision_after(self.logged_in)?.into()));
    }

    /// Whether another process came later than the log-in of this process, by this record. Of the
    /// processes at this node the last log-in is in charge, whatever the record says.
    fn has_to_yield(&self, at: &At, node: &NodeId) -> bool {
        let is_elsewhere = at.homes.iter().any(|home| home.node != *node);
        let is_later = self.was_recorded
            || at.former.contains(&self.instance)
            || self.by.is_some_and(|by| at.since > by);
        at.instance != self.instance && is_elsewhere && is_later
    }

    /// What has to be done, by the record that is known.
    fn step(&self, standing: &NodeStanding<'_>) -> HomeStep {
        let node = &standing.node;
        let Some(epoch) = standing.epoch else {
            // Only the next epoch writes; a process that has to yield does so at once.
            let yields = self.latest().is_some_and(|(_, at)| self.has_to_yield(at, node));
            return if yields && !self.is_leaving { HomeStep::Yield } else { HomeStep::Done };
        };
        let me = Home { node: node.clone(), epoch, links: self.links };
        let (instance, is_leaving) = (self.instance, self.is_leaving);
        let Some((_, at)) = self.latest() else {
            // What was never seen was never written, and what was replaced is not there.
            let at = At { instance, homes: vec![me], since: self.since, former: Vec::new() };
            return if is_leaving { HomeStep::Gone } else { HomeStep::Write(Some(at), Vec::new()) };
        };
        let is_other = |home: &&Home| home.node != me.node && !standing.follow.is_dead(home.epoch);
        let others: Vec<Home> = at.homes.iter().filter(is_other).cloned().collect();
        let with = |homes| At { homes, ..at.clone() };
        if is_leaving {
            return match () {
                () if at.homes.iter().all(|home| home.node != me.node) => HomeStep::Gone,
                () if others.is_empty() => HomeStep::Write(None, Vec::new()),
                () => HomeStep::Write(Some(with(others)), Vec::new()),
            };
        }
        if at.instance != instance {
            if self.has_to_yield(at, &me.node) {
                return HomeStep::Yield;
            }
            let note = |home: Home| (home.node, Former { epoch: home.epoch });
            let notes = others.into_iter().map(note).collect();
            let mut former = at.former.clone();
            former.retain(|former| *former != instance);
            former.push(at.instance);
            let (homes, former) = (vec![me], last(former, FORMERS));
            let at = At { instance, homes, since: self.since, former };
            return HomeStep::Write(Some(at), notes);
        }
        if at.homes.contains(&me) {
            return HomeStep::Done;
        }
        let homes = last(others.into_iter().chain([me]).collect(), HOMES);
        HomeStep::Write(Some(with(homes)), Vec::new())
    }
}

/// What has to be done about a client.
enum HomeStep {
    /// The record is as it should be.
    Done,
    /// The client has left, and the record does not name this node.
    Gone,
    /// Another process is in charge.
    Yield,
    /// The record has to be written, or deleted. Living nodes lose their record.
    Write(Option<At>, Vec<(NodeId, Former)>),
}

impl Homes {
    /// The client, if it is logged in at this node.
    pub(super) fn present(&self, client: &ClientName) -> Option<&LocalClient> {
        self.clients.get(client).filter(|local| !local.is_leaving)
    }

    /// The latest record of a client that logs in here.
    pub(super) fn known(&self, client: &ClientName) -> Option<&(Generation, At)> {
        self.clients.get(client)?.known.as_ref()
    }

    /// The record of a client was not written, and is in the queue again.
    pub(super) fn waits_again(&mut self, client: &ClientName) {
        if let Some(local) = self.clients.get_mut(client) {
            (local.waits, local.is_written) = (true, false);
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ClientName> {
        self.clients.keys()
    }
}

impl Homes {
    pub(super) fn logged_in(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        (client, instance): (ClientName, Instance),
        links: u32,
    ) {
        let (logged_in, since) = (desk.now, desk.revision().into());
        let new = || LocalClient {
            instance,
            links,
            logged_in,
            since,
            by: None,
            is_leaving: false,
            is_awaited: false,
            known: None,
            least: Generation(0),
            was_recorded: false,
            may_be_recorded: false,
            waits: false,
            is_written: false,
            checked: None,
            confirmed: None,
        };
        let local = self.clients.entry(client.clone()).or_insert_with(new);
        if local.instance != instance || local.is_leaving {
            (local.was_recorded, local.may_be_recorded) = (false, false);
            (local.logged_in, local.since, local.by) = (logged_in, since, None);
        }
        (local.instance, local.links) = (instance, links);
        (local.is_leaving, local.is_awaited) = (false, false);
        self.check(desk, standing, &client);
    }

    pub(super) fn logged_out(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
        instance: Instance,
    ) {
        if let Some(local) = self.clients.get_mut(client)
            && local.instance == instance
        {
            local.is_leaving = true;
            self.check(desk, standing, client);
        }
    }

    /// Does what has to be done about a client.
    pub(super) fn check(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
    ) {
        let Some(local) = self.clients.get_mut(client).filter(|it| !it.is_awaited) else { return };
        local.learn_age(desk);
        match local.step(standing) {
            HomeStep::Done => {}
            HomeStep::Gone => {
                // What the batch writes has to be taken back.
                if !local.is_written {
                    self.clients.remove(client);
                }
            }
            HomeStep::Yield => self.yield_to_newer(desk, standing, client),
            HomeStep::Write(..) => {
                if !local.waits {
                    local.waits = true;
                    desk.jobs.push_back(Job::Home(client.clone()));
                }
            }
        }
    }

    fn yield_to_newer(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
    ) {
        let Some(local) = self.clients.get_mut(client) else { return };
        local.is_leaving = true;
        let (instance, known) = (local.instance, local.known.clone());
        desk.output(Output::Kick { client: client.clone(), instance });
        // The record may still have this node as a home of the process in charge.
        self.check(desk, standing, client);
        if let Some((generation, at)) = known {
            desk.tell(News::Yielded(client.clone(), generation, at));
        }
    }

    /// What the record of a client has to become.
    pub(super) fn plan(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
    ) -> Option<Write> {
        let local = self.clients.get_mut(client)?;
        local.waits = false;
        if local.is_written {
            // A client that left and came back has two jobs. The end of the first looks again.
            return None;
        }
        local.learn_age(desk);
        let HomeStep::Write(at, notes) = local.step(standing) else {
            self.check(desk, standing, client);
            return None;
        };
        let is = match local.latest() {
            Some((generation, _)) => Condition::ModifiedAt(generation.revision()),
            None if local.is_unknown() => standing.is_absent_or_dead(),
            // There was a record that counts: whatever there is now has to be read.
            None => Condition::Absent,
        };
        (local.is_written, local.may_be_recorded) = (true, true);
        let place = RecordPlace::At(client.clone());
        let value = at.as_ref().map(At::encode);
        Some(Write { key: desk.keys.of(&place), place: Some(place), is, value, notes, at })
    }

    /// What has become of the write of a record, in the batch of this change.
    pub(super) fn done(
        &mut self,
        desk: &mut Desk,
        (standing, peers): (&NodeStanding<'_>, &PeerLinks),
        client: &ClientName,
        (write, outcome, change): (Write, WriteOutcome, Revision),
    ) {
        let Some(local) = self.clients.get_mut(client) else { return };
        (local.checked, local.is_written, local.may_be_recorded) = (standing.epoch, false, false);
        match outcome {
            WriteOutcome::Written(revision) => {
                match write.at {
                    Some(at) => local.see(revision.into(), at),
                    None => local.known = None,
                }
                self.tell_superseded(desk, (standing, peers), client, &write.notes);
            }
            WriteOutcome::Refused(None) => local.known = None,
            WriteOutcome::Refused(Some(found)) => {
                let at = At::decode(&found.value).unwrap_or_else(|error| {
                    desk.bad_record(&found.key, &error);
                    // The record of a client is rewritten by its node at any time.
                    let (homes, former) = (Vec::new(), Vec::new());
                    At { instance: local.instance, homes, since: Generation(0), former }
                });
                local.see(found.modified.into(), at);
                if local.least.revision() <= change {
                    // The engine had this record after the change that a note speaks of. So that
                    // change is gone: a copy of the store was restored.
                    local.least = local.least.min(found.modified.into());
                }
            }
        }
        self.check(desk, standing, client);
    }

    /// Tells the former homes at once; they find a note with their next renewal in any case.
    fn tell_superseded(
        &self,
        desk: &mut Desk,
        (standing, peers): (&NodeStanding<'_>, &PeerLinks),
        client: &ClientName,
        notes: &[(NodeId, Former)],
    ) {
        let Some((generation, record)) = self.known(client).cloned() else { return };
        let Some(incarnation) = standing.life() else { return };
        for (node, _) in notes {
            let (client, record) = (client.clone(), record.clone());
            let message = PeerMessage::Superseded { client, incarnation, generation, record };
            peers.send(desk, node, message);
        }
    }

    /// Another node has the record of a client: it counts if it is newer.
    pub(super) fn learn(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
        (generation, at): (Generation, At),
    ) {
        let Some(local) = self.clients.get_mut(client) else { return };
        local.see(generation, at);
        self.check(desk, standing, client);
    }

    /// A note says that this change has replaced the record of a client: the attempt to write it
    /// reads it.
    pub(super) fn look_again(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
        change: Generation,
    ) {
        if let Some(local) = self.clients.get_mut(client) {
            local.least = local.least.max(change);
            self.check(desk, standing, client);
        }
    }

    /// A client was looked up. If it is a client of this node, it is in charge, or it yields.
    pub(super) fn looked_up(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
        known: PeerKnowledge,
    ) {
        match known {
            // Another home has the client, and no record is known.
            PeerKnowledge::At(Generation(0), _) => return,
            PeerKnowledge::At(generation, at) => {
                self.learn(desk, standing, client, (generation, at));
            }
            PeerKnowledge::Absent => {
                // What replaced the record of this node is gone.
                if let Some(local) = self.clients.get_mut(client) {
                    local.least = Generation(0);
                }
            }
            PeerKnowledge::Holding(..) | PeerKnowledge::Unknown => return,
        }
        if let Some(local) = self.clients.get_mut(client) {
            local.confirmed = Some(desk.now);
            local.checked = local.checked.max(standing.epoch);
        }
    }

    /// Whether a client may be served without a look at its record. A process that was never
    /// recorded cannot have been superseded. A process that was, or whose first record was on its
    /// way when the lease ended, may be superseded while the node
    /// had no lease, so the record has to be seen in the present epoch. A node that is cut off from
    /// an engine which other nodes hear asks these. A node without an engine that anybody hears
    /// goes on.
    pub(super) fn is_sure(desk: &Desk, standing: &NodeStanding<'_>, local: &LocalClient) -> bool {
        if local.latest().is_none() && local.least > Generation(0) {
            // A note says that the record was replaced, perhaps before the answer to its write.
            return false;
        }
        if !local.was_recorded && (standing.is_leased || !local.may_be_recorded) {
            return true;
        }
        if standing.is_leased {
            return local.checked == standing.epoch;
        }
        let is_confirmed = |at: Moment| desk.now.since(at) < CONFIRMED;
        !standing.is_cut_off_alone || local.confirmed.is_some_and(is_confirmed)
    }

    /// What this node has of a client that is logged in here.
    pub(super) fn own(
        &self,
        desk: &Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
    ) -> Option<(Generation, At)> {
        let local = self.present(client).filter(|local| Self::is_sure(desk, standing, local))?;
        if let Some((generation, at)) = &local.known
            && at.instance == local.instance
        {
            return Some((*generation, at.clone()));
        }
        let epoch = standing.epoch.unwrap_or(NodeEpoch(0));
        let home = Home { node: standing.node.clone(), epoch, links: local.links };
        let (instance, former) = (local.instance, Vec::new());
        Some((Generation(0), At { instance, homes: vec![home], since: local.since, former }))
    }

    /// When something is due.
    pub(super) const fn deadline(&self) -> Option<Moment> {
        self.awaited_until
    }

    /// The records of clients that do not come to this process lose this node.
    pub(super) fn turn(&mut self, desk: &mut Desk, standing: &NodeStanding<'_>) {
        if self.awaited_until.is_none_or(|until| desk.now < until) {
            return;
        }
        self.await_no_more();
        let leaving = self.clients.iter().filter(|(_, local)| local.is_leaving);
        let leaving: Vec<_> = leaving.map(|(client, _)| client.clone()).collect();
        leaving.iter().for_each(|client| self.check(desk, standing, client));
    }

    /// Clients of a former process of the node count as gone until they log in.
    pub(super) fn await_no_more(&mut self) {
        self.awaited_until = None;
        self.clients.values_mut().for_each(|local| local.is_awaited = false);
    }

    /// The clients for the next process of this node: those whose records are certainly there.
    pub(super) fn leave_to(&self, standing: &NodeStanding<'_>, left: &mut Heirloom) {
        let has_home = |at: &At| {
            let homes = &mut at.homes.iter();
            homes.any(|home| home.node == standing.node && Some(home.epoch) == standing.epoch)
        };
        for (client, local) in &self.clients {
            if let Some((generation, at)) = local.latest().filter(|(_, at)| has_home(at)) {
                let (client, generation, at) = (client.clone(), *generation, at.clone());
                left.clients.push(LeftClient { client, generation, at });
            }
        }
    }

    /// The clients of a former process of this node are awaited until this moment.
    pub(super) fn adopt(&mut self, desk: &Desk, left: &Heirloom, until: Moment) {
        for LeftClient { client, generation, at } in left.clients.iter().cloned() {
            let local = LocalClient {
                instance: at.instance,
                links: 0,
                logged_in: desk.now,
                since: at.since,
                by: None,
                is_leaving: true,
                is_awaited: true,
                known: Some((generation, at)),
                least: Generation(0),
                was_recorded: true,
                may_be_recorded: false,
                waits: false,
                is_written: false,
                checked: Some(left.epoch),
                confirmed: None,
            };
            self.clients.insert(client, local);
        }
        self.awaited_until = (!left.clients.is_empty()).then_some(until);
    }

    /// The records are those of a former life of the store.
    pub(super) fn forget(&mut self) {
        for local in self.clients.values_mut() {
            (local.known, local.was_recorded) = (None, false);
            // Only the log-ins of one life of the store have an order.
            (local.since, local.by) = (Generation(0), None);
            // Whatever record there is in the new life has to be seen first.
            local.least = Generation(1);
        }
    }
}

/// The last `most` items.
fn last<T>(mut items: Vec<T>, most: usize) -> Vec<T> {
    items.drain(..items.len().saturating_sub(most));
    items
}
