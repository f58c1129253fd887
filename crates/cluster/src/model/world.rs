//! Nodes, the engine and the network between them, with faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::check::Truth;
use super::people::{ModelVisit, Person, ServerHold, ServerSession, Use};
use crate::Moment;
use crate::engine::{NoReply, Range, Revision};
use crate::keys::Keyspace;
use crate::names::{ClientName, Key, NodeId};
use crate::node::random::Random;
use crate::node::{
    EngineReply, EngineRequest, Node, NodeInput, NodeSettings, Output, PeerMessage, RequestId,
    ServerWish, Ticket, WatchId, Watched,
};
use crate::testing::{ModelStore, Reports};

/// The time after which a driver takes an answer for lost.
const GIVEN_UP: Duration = Duration::from_secs(1);

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What happens at a moment.
#[derive(Clone, Debug)]
pub(super) enum WorldEvent {
    /// A request arrives at the engine.
    AtEngine(From, RequestId, EngineRequest),
    /// An answer arrives at a node, or the driver gives up.
    Answer(From, RequestId, Result<EngineReply, NoReply>),
    /// The watch of a node reports.
    Report(From, WatchId),
    /// A message arrives at a node.
    Message(usize, From, PeerMessage),
    /// The end of leases.
    Expire,
    /// A person does something.
    Act(usize),
    /// A visitor's stream arrives at the owner.
    Open(From, u64),
    /// Something that a paused node has missed.
    Give(From, NodeInput),
    /// A paused node goes on.
    Resume(From),
    /// The cut of this number ends.
    Heal(u64),
}

/// A node and the start of its process: what is meant for a former process is lost.
pub(super) type From = (usize, u64);

/// A machine of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) id: NodeId,
    /// `None` after a crash.
    pub(super) node: Option<Node>,
    pub(super) starts: u64,
    /// What waits for the end of a pause.
    paused: Option<Vec<WorldEvent>>,
    links: BTreeSet<usize>,
    asked: BTreeMap<RequestId, EngineRequest>,
    watch: Option<(WatchId, Range, Revision)>,
    is_reporting: bool,
    pub(super) sessions: BTreeMap<ClientName, ServerSession>,
    pub(super) held: BTreeMap<Key, ServerHold>,
    /// Claims of the past, for releases that come late.
    pub(super) former: Vec<(Key, crate::names::Generation)>,
    pub(super) uses: BTreeMap<Ticket, Use>,
    pub(super) is_ready: bool,
}

/// A path that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    ToEngine(usize),
    FromEngine(usize),
    /// The watch alone: a stopped member of the engine.
    Watch(usize),
    Peers(usize, usize),
    /// All requests of all nodes.
    Engine,
}

#[derive(Clone, Debug)]
pub(super) struct ModelWorld {
    pub(super) random: Random,
    pub(super) now: Moment,
    pub(super) store: ModelStore,
    pub(super) snapshot: Option<ModelStore>,
    events: BTreeMap<(Moment, u64), WorldEvent>,
    numbers: u64,
    pub(super) hosts: Vec<Machine>,
    pub(super) people: Vec<Person>,
    pub(super) visits: BTreeMap<u64, ModelVisit>,
    cuts: BTreeMap<u64, Cut>,
    /// Whether requests and answers get lost, late or doubled.
    pub(super) is_lossy: bool,
    /// Nobody new comes, and nobody who was kicked comes back.
    pub(super) is_quiet: bool,
    pub(super) truth: Truth,
    pub(super) keys: Keyspace,
    pub(super) steps: u64,
    /// Whether inputs and outputs of nodes are printed.
    pub(super) is_traced: bool,
}

impl ModelWorld {
    pub(super) fn new(seed: u64, hosts: usize) -> Self {
        let mut world = Self {
            random: Random(seed),
            now: Moment(Duration::from_secs(1)),
            store: ModelStore::new(),
            snapshot: None,
            events: BTreeMap::new(),
            numbers: 0,
            hosts: Vec::new(),
            people: Vec::new(),
            visits: BTreeMap::new(),
            cuts: BTreeMap::new(),
            is_lossy: false,
            is_quiet: false,
            truth: Truth::default(),
            keys: Keyspace::new("model"),
            steps: 0,
            is_traced: false,
        };
        for at in 0..hosts {
            world.hosts.push(Machine {
                id: NodeId::new(&format!("n{at}")).unwrap(),
                node: None,
                starts: 0,
                paused: None,
                links: BTreeSet::new(),
                asked: BTreeMap::new(),
                watch: None,
                is_reporting: false,
                sessions: BTreeMap::new(),
                held: BTreeMap::new(),
                former: Vec::new(),
                uses: BTreeMap::new(),
                is_ready: false,
            });
            world.start(at);
        }
        world.after(millis(500), WorldEvent::Expire);
        world
    }

    pub(super) const fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn after(&mut self, time: Duration, event: WorldEvent) {
        let key = (self.now.after(time), self.number());
        self.events.insert(key, event);
    }

    /// A time of the network: 0.1 to 3 ms.
    pub(super) const fn hop(&mut self) -> Duration {
        Duration::from_micros(100 + self.random.below(2_900))
    }

    pub(super) fn from(&self, at: usize) -> From {
        (at, self.hosts[at].starts)
    }

    /// The node of a process, unless the process has ended.
    pub(super) fn is_same(&self, (at, starts): From) -> bool {
        self.hosts[at].starts == starts && self.hosts[at].node.is_some()
    }

    pub(super) fn is_paused(&self, at: usize) -> bool {
        self.hosts[at].paused.is_some()
    }

    /// Starts the process of a node.
    pub(super) fn start(&mut self, at: usize) {
        let seed = self.random.bits();
        let record = super::plain_node(seed);
        let host = &mut self.hosts[at];
        host.starts += 1;
        let node = host.id.clone();
        let settings = NodeSettings {
            cluster: "model".into(),
            node,
            record,
            cache: 3,
            gather: crate::node::GATHER,
            seed,
        };
        host.node = Some(Node::new(settings, self.now));
        self.give(at, NodeInput::Timeout);
        self.relink();
    }

    /// Ends the process of a node at once.
    pub(super) fn crash(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        (host.node, host.paused, host.watch, host.is_ready) = (None, None, None, false);
        host.asked.clear();
        host.held.clear();
        host.former.clear();
        host.uses.clear();
        host.links.clear();
        host.is_reporting = false;
        host.sessions.clear();
        self.truth.crashed(at);
        self.lose_sessions_of(at);
        self.relink();
    }

    pub(super) fn pause(&mut self, at: usize, time: Duration) {
        if self.hosts[at].node.is_some() && self.hosts[at].paused.is_none() {
            self.hosts[at].paused = Some(Vec::new());
            let from = self.from(at);
            self.after(time, WorldEvent::Resume(from));
        }
    }

    pub(super) fn cut(&mut self, cut: Cut, time: Duration) {
        let number = self.number();
        self.cuts.insert(number, cut);
        self.after(time, WorldEvent::Heal(number));
        self.relink();
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.cuts.clear();
        self.is_lossy = false;
        for at in 0..self.hosts.len() {
            if self.hosts[at].node.is_none() {
                self.start(at);
            }
            let from = self.from(at);
            self.resume(from);
        }
        self.relink();
    }

    fn is_cut(&self, cut: Cut) -> bool {
        self.cuts.values().any(|it| *it == cut)
    }

    /// Whether there is a link between two nodes.
    pub(super) fn is_linked(&self, one: usize, other: usize) -> bool {
        let pair = Cut::Peers(one.min(other), one.max(other));
        let lives = |at: usize| self.hosts[at].node.is_some();
        one != other && lives(one) && lives(other) && !self.is_cut(pair)
    }

    fn relink(&mut self) {
        for at in 0..self.hosts.len() {
            for other in 0..self.hosts.len() {
                let (is, was) = (self.is_linked(at, other), self.hosts[at].links.contains(&other));
                let id = self.hosts[other].id.clone();
                if is && !was {
                    self.hosts[at].links.insert(other);
                    self.give(at, NodeInput::LinkUp(id));
                } else if was && !is {
                    self.hosts[at].links.remove(&other);
                    self.give(at, NodeInput::LinkDown(id));
                }
            }
        }
    }

    /// The store is replaced by the copy.
    pub(super) fn restore(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        self.store = snapshot;
        // A restored member gives all leases their full time.
        self.store.promote(self.now);
        self.truth.restored(self.now, &self.store, &self.keys);
        for at in 0..self.hosts.len() {
            if let Some((watch, ..)) = self.hosts[at].watch.take() {
                self.give(at, NodeInput::Watched(watch, Watched::Broken));
            }
        }
    }

    fn resume(&mut self, from: From) {
        if !self.is_same(from) {
            return;
        }
        let waiting = self.hosts[from.0].paused.take();
        for event in waiting.into_iter().flatten() {
            self.after(Duration::ZERO, event);
        }
    }

    /// A wish of the server of a node.
    pub(super) fn wish(&mut self, at: usize, wish: ServerWish) {
        self.give(at, NodeInput::Wish(wish));
    }

    /// Gives an input to a node, and does what comes out.
    pub(super) fn give(&mut self, at: usize, input: NodeInput) {
        let (now, from) = (self.now, self.from(at));
        let host = &mut self.hosts[at];
        let Some(node) = &mut host.node else { return };
        if let Some(waiting) = &mut host.paused {
            return waiting.push(WorldEvent::Give(from, input));
        }
        if self.is_traced {
            println!("{:?} n{at} <- {input:?}", now.0);
        }
        node.handle(now, input);
        while let Some(output) = self.hosts[at].node.as_mut().and_then(Node::poll_output) {
            self.output(at, output);
        }
    }

    fn output(&mut self, at: usize, output: Output) {
        if self.is_traced {
            println!("{:?} n{at} -> {output:?}", self.now.0);
        }
        match output {
            Output::Request(id, request) => self.send(at, id, request),
            Output::Watch(id, range, from) => {
                self.hosts[at].watch = Some((id, range, from));
                self.report_to(at);
            }
            Output::Unwatch(id) => {
                if self.hosts[at].watch.as_ref().is_some_and(|(watch, ..)| *watch == id) {
                    self.hosts[at].watch = None;
                    // The driver chooses another member of the engine.
                    self.cuts.retain(|_, cut| *cut != Cut::Watch(at));
                }
            }
            Output::Send(to, message) => {
                let Some(to) = self.hosts.iter().position(|host| host.id == to) else { return };
                if self.is_linked(at, to) {
                    let (time, from) = (self.hop(), self.from(to));
                    self.after(time, WorldEvent::Message(at, from, message));
                }
            }
            Output::Claimed(ticket, claimed) => self.claimed(at, ticket, claimed),
            Output::Found(ticket, found) => self.found(at, ticket, found),
            Output::Renumbered { key, former, generation } => {
                self.renumbered(at, key, former, generation);
            }
            Output::Lost { key, generation } => self.lost(at, &key, generation),
            Output::Kick { client, instance } => self.kicked(at, &client, instance),
            Output::Ready(is_ready) => self.hosts[at].is_ready = is_ready,
            Output::Port { .. }
            | Output::Revoked { .. }
            | Output::HandedOver(_)
            | Output::Blob(..) => {}
            Output::Report(event) => {
                if event == crate::node::NodeEvent::StoreRestored {
                    // Releases reach the node in order, so none names a claim of the former life.
                    self.hosts[at].former.clear();
                }
                self.truth.reported(&event);
            }
        }
    }

    fn send(&mut self, at: usize, id: RequestId, request: EngineRequest) {
        let from = self.from(at);
        let is_awaited = !matches!(request, EngineRequest::Revoke(_));
        if is_awaited {
            self.hosts[at].asked.insert(id, request.clone());
            self.after(GIVEN_UP, WorldEvent::Answer(from, id, Err(NoReply::Unknown)));
        }
        if self.is_cut(Cut::ToEngine(at)) || self.is_cut(Cut::Engine) {
            return;
        }
        let (dice, time) = (self.random.below(100), self.hop());
        if self.is_lossy && dice < 3 {
            return;
        }
        if self.is_lossy && dice < 6 {
            // A copy that arrives long after.
            let late = millis(self.random.below(20_000));
            self.after(late, WorldEvent::AtEngine(from, id, request.clone()));
        }
        self.after(time, WorldEvent::AtEngine(from, id, request));
    }

    /// The watch of a node has something to report soon.
    fn report_to(&mut self, at: usize) {
        if let Some((watch, ..)) = self.hosts[at].watch
            && !self.hosts[at].is_reporting
        {
            self.hosts[at].is_reporting = true;
            let (time, from) = (self.hop(), self.from(at));
            self.after(time, WorldEvent::Report(from, watch));
        }
    }

    /// The store may have changed.
    fn stored(&mut self, by: Option<From>) {
        let by = by.map(|(at, _)| at);
        self.truth.learn(self.now, &self.store, &self.keys, by.map(|at| &self.hosts[at].id));
        for at in 0..self.hosts.len() {
            self.report_to(at);
        }
    }

    fn at_engine(&mut self, from: From, id: RequestId, request: &EngineRequest) {
        let before = self.store.revision;
        self.store.expire(self.now);
        let answer = match request {
            EngineRequest::Transact(_, transaction) => {
                self.store.transact(transaction).map(EngineReply::Done)
            }
            EngineRequest::Grant(_, time) => {
                Ok(EngineReply::Granted(self.store.grant_for(self.now, *time)))
            }
            EngineRequest::KeepAlive(lease) => {
                Ok(EngineReply::Renewed(self.store.keep_alive(self.now, *lease)))
            }
            EngineRequest::Revoke(lease) => {
                self.store.revoke(*lease);
                return self.stored(None);
            }
        };
        if self.store.revision != before {
            self.stored(Some(from));
        }
        let is_lost = self.is_lossy && self.random.below(100) < 3;
        if !is_lost && !self.is_cut(Cut::FromEngine(from.0)) {
            let time = self.hop();
            self.after(time, WorldEvent::Answer(from, id, answer));
        }
    }

    fn report(&mut self, from: From, watch: WatchId) {
        let at = from.0;
        self.hosts[at].is_reporting = false;
        let silent = [Cut::Watch(at), Cut::Engine, Cut::FromEngine(at)];
        if silent.into_iter().any(|cut| self.is_cut(cut)) {
            return;
        }
        let Some((id, range, next)) = &mut self.hosts[at].watch else { return };
        if *id != watch {
            return;
        }
        let what = match self.store.since(range, *next) {
            Reports::Compacted => {
                self.hosts[at].watch = None;
                Watched::Compacted
            }
            Reports::Changes(changes, _) if changes.is_empty() => return,
            Reports::Changes(changes, until) => {
                *next = until;
                Watched::Changes(changes)
            }
        };
        self.give(at, NodeInput::Watched(watch, what));
    }

    /// The next event or deadline.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        let due = |(at, host): (usize, &Machine)| {
            let deadline = host.node.as_ref()?.deadline()?;
            host.paused.is_none().then_some((deadline, at))
        };
        let deadline = self.hosts.iter().enumerate().filter_map(due).min();
        let first = self.events.first_key_value().map(|((at, _), _)| *at);
        if let Some((moment, at)) = deadline
            && first.is_none_or(|first| moment <= first)
        {
            self.now = self.now.max(moment);
            return self.give(at, NodeInput::Timeout);
        }
        let Some(((moment, _), event)) = self.events.pop_first() else { return };
        self.now = self.now.max(moment);
        self.happen(event);
    }

    fn happen(&mut self, event: WorldEvent) {
        let to = match &event {
            WorldEvent::Answer(from, ..)
            | WorldEvent::Report(from, _)
            | WorldEvent::Message(_, from, _)
            | WorldEvent::Open(from, _)
            | WorldEvent::Give(from, _) => Some(*from),
            WorldEvent::AtEngine(..)
            | WorldEvent::Expire
            | WorldEvent::Act(_)
            | WorldEvent::Resume(_)
            | WorldEvent::Heal(_) => None,
        };
        if let Some(to) = to {
            if !self.is_same(to) {
                return;
            }
            if let Some(waiting) = &mut self.hosts[to.0].paused {
                return waiting.push(event);
            }
        }
        match event {
            WorldEvent::AtEngine(from, id, request) => self.at_engine(from, id, &request),
            WorldEvent::Answer((at, _), id, answer) => {
                if let Some(request) = self.hosts[at].asked.remove(&id) {
                    self.truth.answered(at, &request, &answer);
                    self.give(at, NodeInput::Answer(id, answer));
                }
            }
            WorldEvent::Report(from, watch) => self.report(from, watch),
            WorldEvent::Message(by, (at, _), message) => {
                let by = self.hosts[by].id.clone();
                self.give(at, NodeInput::Message(by, message));
            }
            WorldEvent::Expire => {
                let before = self.store.revision;
                self.store.expire(self.now);
                if self.store.revision != before {
                    self.stored(None);
                }
                self.after(millis(500), WorldEvent::Expire);
            }
            WorldEvent::Act(person) => self.act(person),
            WorldEvent::Open((at, _), visit) => self.opened(at, visit),
            WorldEvent::Give((at, _), input) => self.give(at, input),
            WorldEvent::Resume(from) => self.resume(from),
            WorldEvent::Heal(number) => {
                self.cuts.remove(&number);
                self.relink();
            }
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now.after(time);
        let number = self.number();
        // An event at the end, so that time passes in any case.
        self.events.insert((until, number), WorldEvent::Heal(number));
        while self.now < until {
            self.step();
        }
    }
}
