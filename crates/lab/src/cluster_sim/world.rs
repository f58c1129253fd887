//! Nodes, clients, the engine and the network between them, in virtual time.

use std::collections::HashMap;
use std::time::Duration;

use cluster::Moment;
use cluster::engine::{Change, NoReply, Operation, Revision};
use cluster::keys::{Keyspace, RecordPlace};
use cluster::names::NodeId;
use cluster::node::{
    EngineReply, EngineRequest, GATHER, Lane, Node, NodeEvent, NodeInput, NodeSettings, Output,
    PeerMessage, RequestId, Watched,
};
use cluster::record::{Described, VERSIONS};
use testkit::netem::Rng;

use super::clients::SimClient;
use super::engine::SimEngine;
use super::events::{Events, Process, SimEvent};
use super::machine::{self, SimMachine};
use super::prices::{COMMIT, CONFIRM, ENDED, GIVEN_UP, LEASED, MEMBERS, TOLD, price, writes};
use super::store::SimStore;
use super::tally::{SimSecond, SimTally};
use super::visitor::SimVisit;

/// The answers of look-ups that a node keeps.
const CACHE: usize = 20_000;

/// The time between two looks at the backlog.
const SAMPLE: u64 = 100_000;

/// The time between two looks at the leases.
const EXPIRE: u64 = 500_000;

/// What a request to the engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// A batch with this many writes.
    Batch(u32),
    /// A batch with this many keys.
    LookUps(u32),
    /// The renewal of the record of the node.
    Beat,
    Other,
}

/// A request whose node waits for the answer.
#[derive(Clone, Copy, Debug)]
struct SentRequest {
    from: Process,
    id: RequestId,
    sort: Sort,
    sent: u64,
}

/// A request on its way to the engine, or being processed.
#[derive(Debug)]
struct AtEngine {
    from: Process,
    member: u8,
    request: EngineRequest,
    term: u32,
}

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimSizes {
    pub(super) clients: u32,
    pub(super) nodes: u16,
    /// Visitors of all nodes in a second.
    pub(super) visitors: u32,
    pub(super) seed: u64,
}

/// The cluster. Times are microseconds since the start of the run.
#[derive(Debug)]
pub(super) struct SimWorld {
    pub(super) sizes: SimSizes,
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) events: Events,
    pub(super) engine: SimEngine,
    pub(super) keys: Keyspace,
    pub(super) machines: Vec<SimMachine>,
    pub(super) clients: Vec<SimClient>,
    pub(super) visits: HashMap<u32, SimVisit>,
    asked: HashMap<u32, SentRequest>,
    at_engine: HashMap<u32, AtEngine>,
    answers: HashMap<u32, Result<EngineReply, NoReply>>,
    messages: HashMap<u32, (u16, PeerMessage)>,
    numbers: u32,
    /// The clients that are reached.
    pub(super) reached: u32,
    pub(super) tally: SimTally,
    pub(super) seconds: Vec<SimSecond>,
}

impl SimWorld {
    pub(super) fn new(sizes: SimSizes) -> Self {
        let keys = Keyspace::new("sim");
        let store = SimStore::new(keys.followed());
        let member = |node: u16| (node % u16::from(MEMBERS)) as u8;
        let machines = (0..sizes.nodes)
            .map(|node| SimMachine::new(machine::name(node), member(node)))
            .collect();
        let mut world = Self {
            sizes,
            rng: Rng::new(sizes.seed),
            now: 0,
            events: Events::default(),
            engine: SimEngine::new(store),
            keys,
            machines,
            clients: vec![SimClient::new(); sizes.clients as usize],
            visits: HashMap::new(),
            asked: HashMap::new(),
            at_engine: HashMap::new(),
            answers: HashMap::new(),
            messages: HashMap::new(),
            numbers: 0,
            reached: 0,
            tally: SimTally::default(),
            seconds: Vec::new(),
        };
        world.events.add(EXPIRE, SimEvent::Expire);
        world.events.add(SAMPLE, SimEvent::Sample);
        world
    }

    pub(super) const fn moment(&self) -> Moment {
        Moment(Duration::from_micros(self.now))
    }

    pub(super) const fn number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    pub(super) fn after(&mut self, time: u64, event: SimEvent) {
        self.events.add(self.now + time, event);
    }

    /// A time of the network between machines of one site: 0.1 to 3 ms.
    pub(super) const fn hop(&mut self) -> u64 {
        100 + self.rng.below(2_900)
    }

    pub(super) fn process(&self, node: u16) -> Process {
        Process { node, starts: self.machines[usize::from(node)].starts }
    }

    pub(super) fn is_same(&self, process: Process) -> bool {
        self.machines[usize::from(process.node)].is(process)
    }

    pub(super) fn is_alive(&self, node: u16) -> bool {
        self.machines[usize::from(node)].node.is_some()
    }

    /// The present second.
    pub(super) fn second(&mut self) -> &mut SimSecond {
        let at = (self.now / 1_000_000) as usize;
        if self.seconds.len() <= at {
            let reached = self.seconds.last().map_or(0, |second| second.reached);
            self.seconds.resize(at + 1, SimSecond { reached, ..SimSecond::default() });
        }
        &mut self.seconds[at]
    }

    /// Starts the process of a node.
    pub(super) fn start(&mut self, node: u16) {
        let seed = self.rng.bits();
        let record = Described {
            process: seed,
            versions: VERSIONS,
            peers: Vec::new(),
            clients: Vec::new(),
            zone: "z".into(),
            program: "0".into(),
            draining: false,
            links: 0,
            secrets: Vec::new(),
        };
        let now = self.moment();
        let machine = &mut self.machines[usize::from(node)];
        let id = machine.id.clone();
        let settings = NodeSettings {
            cluster: "sim".into(),
            node: id,
            record,
            cache: CACHE,
            gather: GATHER,
            seed,
        };
        machine.clear();
        machine.starts += 1;
        machine.node = Some(Node::new(settings, now));
        self.give(node, NodeInput::Timeout);
        for other in 0..self.sizes.nodes {
            if other != node && self.is_alive(other) {
                self.link(node, other);
                self.link(other, node);
            }
        }
    }

    /// A node sees whether there is a link to another node after a hop.
    pub(super) fn link(&mut self, node: u16, other: u16) {
        let (time, process) = (self.hop(), self.process(node));
        self.after(time, SimEvent::Link(process, other));
    }

    /// Gives an input to a node, and does what comes out.
    pub(super) fn give(&mut self, node: u16, input: NodeInput) {
        let now = self.moment();
        let at = usize::from(node);
        let Some(it) = &mut self.machines[at].node else { return };
        it.handle(now, input);
        while let Some(output) = self.machines[at].node.as_mut().and_then(Node::poll_output) {
            self.output(node, output);
        }
        self.set_deadline(node);
    }

    fn set_deadline(&mut self, node: u16) {
        let machine = &mut self.machines[usize::from(node)];
        let deadline = machine.node.as_ref().and_then(Node::deadline);
        let Some(Moment(deadline)) = deadline else { return };
        let at = (deadline.as_micros() as u64).max(self.now);
        if machine.due.is_none_or(|due| at < due) {
            machine.due = Some(at);
            self.events.add(at, SimEvent::Deadline(node));
        }
    }

    fn output(&mut self, node: u16, output: Output) {
        match output {
            Output::Request(id, request) => self.send(node, id, request),
            Output::Watch(id, _, from) => {
                self.machines[usize::from(node)].watch = Some((id, from));
                self.report_to(node);
            }
            Output::Unwatch(id) => {
                let machine = &mut self.machines[usize::from(node)];
                if machine.watch.is_some_and(|(watch, _)| watch == id) {
                    machine.watch = None;
                    machine.watch_member = (machine.watch_member + 1) % MEMBERS;
                }
            }
            Output::Send(to, message) => self.send_to_peer(node, &to, message),
            Output::Found(ticket, located) => self.found(ticket, located),
            Output::Kick { client, instance } => self.kicked(node, &client, instance),
            Output::Ready(is_ready) => {
                self.machines[usize::from(node)].is_ready = is_ready;
            }
            Output::Report(event) => match event {
                NodeEvent::EpochEnded(_) => self.tally.epochs_ended += 1,
                NodeEvent::StoreRestored => self.tally.restored += 1,
                NodeEvent::BadRecord { .. } => self.tally.bad_records += 1,
                NodeEvent::Joined(_)
                | NodeEvent::GoesOn(_)
                | NodeEvent::NameTaken { .. }
                | NodeEvent::NoCommonVersion { .. } => {}
            },
            // No client publishes anything.
            Output::Claimed(..)
            | Output::Renumbered { .. }
            | Output::Lost { .. }
            | Output::Port { .. }
            | Output::Revoked { .. }
            | Output::HandedOver(_)
            | Output::Blob(..) => {}
        }
    }

    fn send_to_peer(&mut self, node: u16, to: &NodeId, message: PeerMessage) {
        let Some(to) = machine::number(to) else { return };
        if self.is_alive(to) {
            let (time, process, number) = (self.hop(), self.process(to), self.number());
            self.messages.insert(number, (node, message));
            self.after(time, SimEvent::Message(process, number));
        }
    }

    fn send(&mut self, node: u16, id: RequestId, request: EngineRequest) {
        let from = self.process(node);
        let machine = &self.machines[usize::from(node)];
        let (member, took) = (machine.member, machine.took);
        let sort = sort_of(&request);
        match sort {
            Sort::Batch(writes) => {
                self.tally.batches.add(writes);
                if took > 100_000 {
                    self.tally.slow_batches.add(writes);
                }
            }
            Sort::LookUps(keys) => self.tally.look_ups.add(keys),
            Sort::Beat | Sort::Other => {}
        }
        let number = self.number();
        if !matches!(request, EngineRequest::Revoke(_)) {
            let sent = self.now;
            self.asked.insert(number, SentRequest { from, id, sort, sent });
            self.after(GIVEN_UP, SimEvent::GiveUp(number));
        }
        let term = self.engine.term;
        self.at_engine.insert(number, AtEngine { from, member, request, term });
        let time = self.hop();
        self.after(time, SimEvent::AtEngine(number));
    }

    /// A request arrives at the engine: it waits for a core.
    fn at_engine(&mut self, number: u32) {
        let Some(arrived) = self.at_engine.get_mut(&number) else { return };
        if self.engine.is_away(self.now) || self.engine.silent == Some(arrived.member) {
            self.at_engine.remove(&number);
            return;
        }
        arrived.term = self.engine.term;
        let store = &self.engine.store;
        let cost = price(&arrived.request, |range| store.count(range));
        let done = self.engine.work(self.now, cost);
        self.second().busy += cost;
        self.events.add(done, SimEvent::Processed(number));
    }

    /// The engine has processed a request.
    fn processed(&mut self, number: u32) {
        let Some(AtEngine { from, request, term, .. }) = self.at_engine.remove(&number) else {
            return;
        };
        let is_lost = term != self.engine.term;
        // A request that was under way when the leader died was carried out, or not.
        if is_lost && self.rng.below(2) == 0 {
            return;
        }
        let wait = if writes(&request) { COMMIT } else { CONFIRM };
        let store = &mut self.engine.store;
        let answer = match request {
            EngineRequest::Transact(_, transaction) => {
                self.transacted(&transaction.then);
                self.engine.store.transact(&transaction).map(EngineReply::Done)
            }
            EngineRequest::Grant(..) => Ok(EngineReply::Granted(store.grant(self.now))),
            EngineRequest::KeepAlive(lease) => {
                Ok(EngineReply::Renewed(store.keep_alive(self.now, lease)))
            }
            EngineRequest::Revoke(lease) => {
                let ended = store.revoke(lease);
                self.engine.work_alone(self.now, ENDED * ended);
                return self.stored();
            }
        };
        self.stored();
        if !is_lost && self.is_same(from) {
            self.answers.insert(number, answer);
            let time = wait + self.hop();
            self.after(time, SimEvent::Answer(number));
        }
    }

    fn transacted(&mut self, then: &[Operation]) {
        let is_write = |operation: &&Operation| matches!(operation, Operation::Inner(_));
        let written = then.iter().filter(is_write).count() as u32;
        let is_key = |operation: &Operation| matches!(operation, Operation::Range(range) if range.to.is_none());
        let keys = if then.iter().all(is_key) { then.len() as u32 } else { 0 };
        let second = self.second();
        second.writes += written;
        second.batches += u32::from(written > 0);
        second.look_ups += keys;
        second.look_up_batches += u32::from(keys > 0);
    }

    /// The store may have changed: watches report, and clients are reached or not.
    fn stored(&mut self) {
        let changes = self.engine.store.changes();
        let fresh = &changes[self.engine.told..];
        let watchers = self.machines.iter().filter(|machine| machine.watch.is_some()).count();
        let cost = TOLD * (fresh.len() * watchers) as u64;
        let mut epochs = Vec::new();
        for (_, change) in fresh {
            let (key, epoch) = match change {
                Change::Put(found) => (&found.key, Some(found.created)),
                Change::Delete { key, .. } => (key, None),
            };
            if let Some(RecordPlace::Node(id)) = self.keys.place(key)
                && let Some(node) = machine::number(&id)
            {
                epochs.push((node, epoch));
            }
        }
        self.engine.told = changes.len();
        if cost > 0 {
            self.engine.work(self.now, cost);
            self.second().busy += cost;
            for node in 0..self.sizes.nodes {
                self.report_to(node);
            }
        }
        for (node, epoch) in epochs {
            self.set_epoch(node, epoch);
        }
        for key in self.engine.store.take_touched() {
            if let Some(RecordPlace::At(client)) = self.keys.place(&key)
                && let Some(client) = super::clients::number(&client)
            {
                self.refresh(client);
            }
        }
    }

    fn set_epoch(&mut self, node: u16, epoch: Option<Revision>) {
        if self.machines[usize::from(node)].epoch == epoch {
            return;
        }
        self.machines[usize::from(node)].epoch = epoch;
        for client in 0..self.sizes.clients {
            let SimClient { home, former, is_reached, .. } = self.clients[client as usize];
            if is_reached && (home == node || former == node) {
                self.refresh(client);
            }
        }
    }

    /// The watch of a node has something to report soon.
    fn report_to(&mut self, node: u16) {
        let machine = &mut self.machines[usize::from(node)];
        if machine.watch.is_some() && !machine.is_reporting {
            machine.is_reporting = true;
            let (time, process) = (self.hop(), self.process(node));
            self.after(time, SimEvent::Report(process));
        }
    }

    fn report(&mut self, process: Process) {
        let machine = &mut self.machines[usize::from(process.node)];
        machine.is_reporting = false;
        let is_silent = self.engine.silent == Some(machine.watch_member);
        if is_silent || self.engine.is_away(self.now) {
            return;
        }
        let Some((watch, next)) = &mut machine.watch else { return };
        let changes = self.engine.store.changes();
        let from = changes.partition_point(|(at, _)| *at < *next);
        let Some((last, _)) = changes[from..].last() else { return };
        *next = Revision(last.0 + 1);
        let changes = changes[from..].iter().map(|(_, change)| change.clone()).collect();
        let input = NodeInput::Watched(*watch, Watched::Changes(changes));
        self.give(process.node, input);
    }

    fn answer(&mut self, number: u32) {
        let Some(answer) = self.answers.remove(&number) else { return };
        let Some(SentRequest { from, id, sort, sent }) = self.asked.remove(&number) else { return };
        if !self.is_same(from) {
            return;
        }
        let took = self.now - sent;
        self.tally.answers.add((took / 1_000) as u32);
        let machine = &mut self.machines[usize::from(from.node)];
        match (sort, &answer) {
            (Sort::Batch(_), _) => machine.took = took,
            (Sort::Beat, Ok(EngineReply::Done(done))) if done.held => {
                machine.beaten = done.revision;
            }
            (Sort::Beat | Sort::LookUps(_) | Sort::Other, _) => {}
        }
        self.give(from.node, NodeInput::Answer(id, answer));
    }

    fn give_up(&mut self, number: u32) {
        let Some(SentRequest { from, id, sort, .. }) = self.asked.remove(&number) else { return };
        if !self.is_same(from) {
            return;
        }
        self.tally.given_up += 1;
        let machine = &mut self.machines[usize::from(from.node)];
        machine.member = (machine.member + 1) % MEMBERS;
        if matches!(sort, Sort::Batch(_)) {
            machine.took = GIVEN_UP;
        }
        self.give(from.node, NodeInput::Answer(id, Err(NoReply::Unknown)));
    }

    fn expire(&mut self) {
        self.after(EXPIRE, SimEvent::Expire);
        if self.engine.is_away(self.now) {
            return;
        }
        for lease in self.engine.store.over(self.now) {
            let ended = self.engine.store.revoke(lease);
            let cost = LEASED + ENDED * ended;
            self.engine.work_alone(self.now, cost);
            self.second().busy += cost;
        }
        self.stored();
    }

    fn sample(&mut self) {
        self.after(SAMPLE, SimEvent::Sample);
        let (mut sum, mut most) = (0, 0);
        for node in self.machines.iter().filter_map(|machine| machine.node.as_ref()) {
            let backlog = node.backlog() as u32;
            sum += backlog;
            most = backlog.max(most);
        }
        self.tally.backlog = self.tally.backlog.max(sum);
        self.tally.node_backlog = self.tally.node_backlog.max(most);
        let reached = self.reached;
        let second = self.second();
        second.backlog = second.backlog.max(sum);
        second.reached = reached;
    }

    fn happen(&mut self, event: SimEvent) {
        match event {
            SimEvent::AtEngine(number) => self.at_engine(number),
            SimEvent::Processed(number) => self.processed(number),
            SimEvent::Answer(number) => self.answer(number),
            SimEvent::GiveUp(number) => self.give_up(number),
            SimEvent::Report(process) if self.is_same(process) => self.report(process),
            SimEvent::Deadline(node) => {
                let machine = &mut self.machines[usize::from(node)];
                if machine.due == Some(self.now) {
                    machine.due = None;
                    let moment = Moment(Duration::from_micros(self.now));
                    let deadline = machine.node.as_ref().and_then(Node::deadline);
                    if deadline.is_some_and(|deadline| deadline <= moment) {
                        self.give(node, NodeInput::Timeout);
                    } else {
                        self.set_deadline(node);
                    }
                }
            }
            SimEvent::Message(process, number) => {
                if let Some((from, message)) = self.messages.remove(&number)
                    && self.is_same(process)
                    && self.is_alive(from)
                {
                    let from = self.machines[usize::from(from)].id.clone();
                    self.give(process.node, NodeInput::Message(from, message));
                }
            }
            SimEvent::Link(process, other) if self.is_same(process) => {
                let id = self.machines[usize::from(other)].id.clone();
                let up = self.is_alive(other);
                let input = if up { NodeInput::LinkUp(id) } else { NodeInput::LinkDown(id) };
                self.give(process.node, input);
            }
            SimEvent::Report(_) | SimEvent::Link(..) => {}
            SimEvent::LogIn(client) => self.log_in(client),
            SimEvent::LoggedIn(client, process) => self.logged_in(client, process),
            SimEvent::FormerEnds(client, node) => self.former_ends(client, node),
            SimEvent::Move(client) => self.move_away(client),
            SimEvent::Visitor => self.visitor(),
            SimEvent::Seek(visit) => self.seek(visit),
            SimEvent::Opened(visit) => self.judge(visit, true),
            SimEvent::Churn => self.churn(),
            SimEvent::Expire => self.expire(),
            SimEvent::Sample => self.sample(),
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: u64) {
        let until = self.now + time;
        while let Some((at, event)) = self.events.next(until) {
            self.now = at;
            self.happen(event);
        }
        self.now = until;
    }

    /// The number of events that have happened.
    pub(super) const fn happened(&self) -> u64 {
        self.events.happened()
    }

    /// The nodes that take clients and visitors.
    pub(super) fn open(&self) -> Vec<u16> {
        let nodes = (0..).zip(&self.machines);
        let open = nodes.filter(|(_, it)| it.node.is_some() && it.is_ready && !it.drains);
        open.map(|(node, _)| node).collect()
    }
}

fn sort_of(request: &EngineRequest) -> Sort {
    let EngineRequest::Transact(lane, transaction) = request else { return Sort::Other };
    let count = transaction.then.len() as u32;
    match (lane, transaction.then.as_slice()) {
        (Lane::Claims, _) => Sort::Batch(count - 1),
        (Lane::LookUps, [Operation::Range(range), ..]) if range.to.is_none() => {
            Sort::LookUps(count)
        }
        (Lane::Renewals, [Operation::Put { .. }, Operation::Range(_), Operation::Range(_)]) => {
            Sort::Beat
        }
        (Lane::LookUps | Lane::Renewals | Lane::Blobs, _) => Sort::Other,
    }
}
