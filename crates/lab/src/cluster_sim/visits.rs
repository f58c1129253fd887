//! Visitors: each comes to a node, which finds the client and opens a stream to its owner.

use cluster::engine::Revision;
use cluster::names::Generation;
use cluster::node::{Located, NodeInput, OpenVerdict, PeerOpen, ServerWish, Subject, Ticket};
use cluster::record::At;

use super::clients::{self, SimClient};
use super::events::{Process, SimEvent};
use super::machine;
use super::visitor::SimVisit;
use super::world::SimWorld;

/// The pause until a visitor that finds nobody tries again, and the most tries: 5 s.
const AGAIN: u64 = 250_000;
const TRIES: u8 = 20;

/// The most nodes that refuse a stream in one try. The rules allow one hop and one correction.
const REFUSALS: u8 = 3;

/// The age up to which a former process may be served: a lease and a renewal, in milliseconds.
const BOUND: u32 = 13_000;

impl SimWorld {
    /// A visitor comes to a node. One half of the visitors want one of the first 1 % of the
    /// clients.
    pub(super) fn visitor(&mut self) {
        let between = 1_000_000 / u64::from(self.sizes.visitors);
        let time = self.rng.below(2 * between + 1);
        self.after(time, SimEvent::Visitor);
        let open = self.open();
        let chosen = self.rng.below(open.len() as u64) as usize;
        let Some(ingress) = open.get(chosen).copied() else { return };
        let all = u64::from(self.sizes.clients);
        let of = if self.rng.below(2) == 0 { all } else { all / 100 };
        let client = self.rng.below(of) as u32;
        let (number, ingress, came) = (self.number(), self.process(ingress), self.now);
        let visit = SimVisit { client, ingress, came, tries: 0, refusals: 0, open: None };
        self.visits.insert(number, visit);
        self.tally.visitors += 1;
        self.second().visitors += 1;
        self.seek(number);
    }

    /// The visitors' connections end with their node.
    pub(super) fn end_visits(&mut self, node: u16) {
        self.visits.retain(|_, visit| visit.ingress.node != node);
    }

    /// The node of a visitor is asked where the client is.
    pub(super) fn seek(&mut self, number: u32) {
        let Some(visit) = self.visits.get(&number) else { return };
        let ingress = visit.ingress;
        let subject = Subject::Client(clients::name(visit.client));
        let ticket = Ticket(u64::from(number) * 2);
        self.give(ingress.node, NodeInput::Wish(ServerWish::Find { ticket, subject }));
    }

    /// A node has found a client, or not. An odd ticket is that of an owner that looks at the
    /// record of its own client.
    pub(super) fn found(&mut self, Ticket(ticket): Ticket, located: Located) {
        let number = (ticket / 2) as u32;
        if ticket % 2 == 1 {
            return self.judge(number, false);
        }
        let Some(visit) = self.visits.get(&number).cloned() else { return };
        match located {
            Located::Here(instance) => {
                self.served(number, visit.ingress, clients::process(instance))
            }
            Located::There { generation, record, .. } => self.open_at(number, generation, record),
            Located::Nowhere | Located::Away | Located::Held { .. } => self.wait(number),
        }
    }

    fn open_at(&mut self, number: u32, generation: Generation, record: At) {
        let Some(visit) = self.visits.get_mut(&number) else { return };
        let (ingress, client) = (visit.ingress.node, clients::name(visit.client));
        let homes = record.homes.iter().filter_map(|home| machine::number(&home.node));
        let homes: Vec<_> =
            homes.filter(|node| self.machines[usize::from(*node)].node.is_some()).collect();
        let chosen = self.rng.below(homes.len() as u64) as usize;
        let Some(owner) = homes.get(chosen).copied() else {
            self.tally.unlinked += 1;
            let subject = Subject::Client(client);
            let refused = ServerWish::Refused { subject, generation, moved: None };
            self.give(ingress, NodeInput::Wish(refused));
            return self.wait(number);
        };
        let process = self.process(owner);
        let open = PeerOpen { client, instance: record.instance, generation };
        if let Some(visit) = self.visits.get_mut(&number) {
            visit.open = Some((process, open));
        }
        self.tally.opens += 1;
        let time = self.hop();
        self.after(time, SimEvent::Opened(number));
    }

    /// The visitor waits, and its node tries again.
    fn wait(&mut self, number: u32) {
        let Some(visit) = self.visits.get_mut(&number) else { return };
        visit.tries += 1;
        visit.refusals = 0;
        if visit.tries < TRIES {
            return self.after(AGAIN, SimEvent::Seek(number));
        }
        self.visits.remove(&number);
        self.tally.failed += 1;
        self.second().failed += 1;
    }

    /// The owner decides about a stream.
    pub(super) fn judge(&mut self, number: u32, may_ask: bool) {
        let Some(visit) = self.visits.get_mut(&number) else { return };
        let Some((owner, open)) = visit.open.clone() else { return };
        let (ingress, client) = (visit.ingress, visit.client);
        if !self.is_same(owner) {
            return self.refused(number, &open, None);
        }
        let now = self.moment();
        let process = clients::process(open.instance);
        let Some(node) = &mut self.machines[usize::from(owner.node)].node else { return };
        let moved = match node.judge(now, &open) {
            OpenVerdict::Serve
                if self.clients[client as usize].has_session(owner.node, process) =>
            {
                return self.served(number, owner, process);
            }
            OpenVerdict::Ask if may_ask => {
                let ticket = Ticket(u64::from(number) * 2 + 1);
                let subject = Subject::Client(open.client);
                let find = ServerWish::Find { ticket, subject };
                return self.give(owner.node, NodeInput::Wish(find));
            }
            OpenVerdict::Serve | OpenVerdict::Ask | OpenVerdict::Gone => None,
            OpenVerdict::Moved(generation, at) => Some((generation, at)),
        };
        if self.is_same(ingress) {
            self.refused(number, &open, moved);
        }
    }

    fn refused(&mut self, number: u32, open: &PeerOpen, moved: Option<(Generation, At)>) {
        let Some(visit) = self.visits.get_mut(&number) else { return };
        visit.refusals += 1;
        let (refusals, ingress) = (visit.refusals, visit.ingress);
        self.tally.refused += 1;
        self.tally.moved += u64::from(moved.is_some());
        if self.is_same(ingress) {
            let subject = Subject::Client(open.client.clone());
            let refused = ServerWish::Refused { subject, generation: open.generation, moved };
            self.give(ingress.node, NodeInput::Wish(refused));
        }
        if refusals < REFUSALS {
            let time = self.hop();
            return self.after(time, SimEvent::Seek(number));
        }
        self.wait(number);
    }

    /// A visitor is served by a session of a process.
    fn served(&mut self, number: u32, owner: Process, process: u32) {
        let Some(visit) = self.visits.remove(&number) else { return };
        let it: SimClient = self.clients[visit.client as usize];
        if !it.has_session(owner.node, process) {
            self.tally.wrong += 1;
            return;
        }
        self.tally.served += 1;
        if visit.tries > 0 {
            self.tally.held += 1;
        }
        self.tally.waits.add(((self.now - visit.came) / 1_000) as u32);
        if process != it.process && it.recorded_by != Revision(0) {
            let age = ((self.now - it.recorded_at) / 1_000) as u32;
            let beaten = self.machines[usize::from(owner.node)].beaten;
            self.tally.former += 1;
            self.tally.former_age = self.tally.former_age.max(age);
            self.tally.wrong += u64::from(age > BOUND || beaten >= it.recorded_by);
        }
    }
}
