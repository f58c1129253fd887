//! All schedules of a small case: two nodes, two processes of one client, up to eight events. The
//! events are the log-ins and log-outs, each request, answer and message, which may be delivered or
//! lost, in any order. After each schedule nothing is lost any more, time passes, and the processes
//! have to have settled. States that are reached by several schedules are examined once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::Moment;
use crate::engine::{NoReply, Range, Revision};
use crate::keys::{Keyspace, RecordPlace};
use crate::names::{ClientName, Instance, NodeId};
use crate::node::{
    EngineReply, EngineRequest, Node, NodeInput, NodeSettings, Output, PeerMessage, RequestId,
    ServerWish, WatchId, Watched,
};
use crate::record::{At, Former, Record as _};
use crate::testing::{ModelStore, Reports};

/// The events of a schedule in an ordinary run: 6,000 states without log-outs and 8,000 with them.
/// `CLUSTER_EVENTS=8` is the full case: 454,000 states without log-outs.
const EVENTS: usize = 5;

/// The most states that a run examines, so that a case that has become larger ends.
const STATES: usize = 4_000_000;

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SmallStep {
    LogIn(usize, u64),
    LogOut(usize, u64),
    /// The first request of this number goes to the engine.
    Request(usize, RequestId, Fate),
    Message(usize),
    LoseMessage(usize),
    /// A node does what is due, 3 s later.
    Renewal,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    /// It is carried out, and answered.
    Answered,
    /// It is lost.
    Lost,
    /// It is carried out, and the answer is lost.
    Unanswered,
}

#[derive(Clone, Debug, Hash)]
struct Small {
    now: Moment,
    store: ModelStore,
    nodes: Vec<Node>,
    requests: Vec<BTreeMap<RequestId, EngineRequest>>,
    watches: Vec<Option<(WatchId, Range, Revision)>>,
    messages: Vec<(usize, NodeId, PeerMessage)>,
    /// The process that is logged in at each node.
    sessions: Vec<Option<u64>>,
    /// The log-ins that have happened: each process logs in at each node once at most.
    logged_in: BTreeSet<(usize, u64)>,
    /// The processes that have yielded.
    kicked: BTreeSet<u64>,
    kicks: usize,
    /// Whether processes log out, and log in again after they have yielded.
    returns: bool,
}

fn client() -> ClientName {
    ClientName::new("c").unwrap()
}

fn id(at: usize) -> NodeId {
    NodeId::new(["n0", "n1"][at]).unwrap()
}

impl Small {
    /// Two nodes that are members and have a link.
    fn new(returns: bool) -> Self {
        let node = |at: usize| {
            let record = super::plain_node(at as u64);
            let (cluster, seed) = ("small".into(), at as u64);
            let settings = NodeSettings {
                cluster,
                node: id(at),
                record,
                cache: 2,
                gather: Duration::ZERO,
                seed,
            };
            Node::new(settings, Moment::default())
        };
        let mut small = Self {
            now: Moment(Duration::from_secs(1)),
            store: ModelStore::new(),
            nodes: vec![node(0), node(1)],
            requests: vec![BTreeMap::new(); 2],
            watches: vec![None; 2],
            messages: Vec::new(),
            sessions: vec![None; 2],
            logged_in: BTreeSet::new(),
            kicked: BTreeSet::new(),
            kicks: 0,
            returns,
        };
        for at in 0..2 {
            small.give(at, NodeInput::LinkUp(id(1 - at)));
        }
        small.flow();
        assert!(small.nodes.iter().all(Node::is_member));
        small
    }

    fn give(&mut self, at: usize, input: NodeInput) {
        self.nodes[at].handle(self.now, input);
        while let Some(output) = self.nodes[at].poll_output() {
            match output {
                Output::Request(id, request) => {
                    self.requests[at].insert(id, request);
                }
                Output::Watch(id, range, from) => self.watches[at] = Some((id, range, from)),
                Output::Unwatch(_) => self.watches[at] = None,
                // Who hears the engine matters for nodes without a lease alone.
                Output::Send(_, PeerMessage::Status { .. }) => {}
                Output::Send(to, message) => self.messages.push((at, to, message)),
                Output::Kick { instance, .. } => self.kick(at, instance.0),
                Output::Claimed(..)
                | Output::Renumbered { .. }
                | Output::Lost { .. }
                | Output::Found(..)
                | Output::Port { .. }
                | Output::Revoked { .. }
                | Output::Blob(..)
                | Output::Ready(_)
                | Output::HandedOver(_)
                | Output::Report(_) => {}
            }
        }
    }

    /// A process is told to yield at a node. It has yielded once it has no home.
    fn kick(&mut self, at: usize, instance: u64) {
        if self.sessions[at] == Some(instance) {
            self.sessions[at] = None;
            self.log_out(at, instance);
        }
        if !self.sessions.contains(&Some(instance)) {
            self.kicks += 1;
            self.kicked.insert(instance);
        }
    }

    fn log_out(&mut self, at: usize, instance: u64) {
        let wish = ServerWish::LoggedOut { client: client(), instance: Instance(instance) };
        self.give(at, NodeInput::Wish(wish));
    }

    /// What may happen in this state.
    fn steps(&self) -> Vec<SmallStep> {
        let mut steps = Vec::new();
        for at in 0..2 {
            for instance in 1..3 {
                let may_come = self.returns || !self.kicked.contains(&instance);
                if may_come && !self.logged_in.contains(&(at, instance)) {
                    steps.push(SmallStep::LogIn(at, instance));
                }
                if self.returns && self.sessions[at] == Some(instance) {
                    steps.push(SmallStep::LogOut(at, instance));
                }
            }
            for request in self.requests[at].keys() {
                let fates = [Fate::Answered, Fate::Lost, Fate::Unanswered];
                steps.extend(fates.map(|fate| SmallStep::Request(at, *request, fate)));
            }
        }
        for message in 0..self.messages.len() {
            steps.extend([SmallStep::Message(message), SmallStep::LoseMessage(message)]);
        }
        // Requests that are under way would be answered before.
        if self.requests.iter().all(BTreeMap::is_empty) && self.messages.is_empty() {
            steps.push(SmallStep::Renewal);
        }
        steps
    }

    fn take(&mut self, step: SmallStep) {
        match step {
            SmallStep::LogIn(at, instance) => {
                self.logged_in.insert((at, instance));
                if let Some(former) = self.sessions[at].filter(|former| *former != instance) {
                    self.kick(at, former);
                }
                self.sessions[at] = Some(instance);
                let wish = ServerWish::LoggedIn {
                    client: client(),
                    instance: Instance(instance),
                    links: 1,
                };
                self.give(at, NodeInput::Wish(wish));
            }
            SmallStep::LogOut(at, instance) => {
                self.sessions[at] = None;
                self.log_out(at, instance);
            }
            SmallStep::Request(at, id, fate) => self.request(at, id, fate),
            SmallStep::Message(at) => {
                let (from, to, message) = self.messages.remove(at);
                let to = usize::from(to == id(1));
                self.give(to, NodeInput::Message(id(from), message));
            }
            SmallStep::LoseMessage(at) => {
                self.messages.remove(at);
            }
            SmallStep::Renewal => self.pass(Duration::from_secs(3)),
        }
    }

    fn request(&mut self, at: usize, id: RequestId, fate: Fate) {
        let Some(request) = self.requests[at].remove(&id) else { return };
        if fate == Fate::Lost {
            return self.give(at, NodeInput::Answer(id, Err(NoReply::Unknown)));
        }
        let answer = match request {
            EngineRequest::Transact(_, transaction) => {
                self.store.transact(&transaction).map(EngineReply::Done)
            }
            EngineRequest::Grant(_, time) => {
                Ok(EngineReply::Granted(self.store.grant_for(self.now, time)))
            }
            EngineRequest::KeepAlive(lease) => {
                Ok(EngineReply::Renewed(self.store.keep_alive(self.now, lease)))
            }
            EngineRequest::Revoke(lease) => return self.store.revoke(lease),
        };
        let answer = if fate == Fate::Answered { answer } else { Err(NoReply::Unknown) };
        self.give(at, NodeInput::Answer(id, answer));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.store.expire(self.now);
        for at in 0..2 {
            if self.nodes[at].deadline().is_some_and(|deadline| deadline <= self.now) {
                self.give(at, NodeInput::Timeout);
            }
        }
    }

    /// Delivers all that is under way.
    fn flow(&mut self) {
        for _ in 0..1_000 {
            let mut is_done = true;
            for at in 0..2 {
                if let Some(request) = self.requests[at].keys().next().copied() {
                    self.request(at, request, Fate::Answered);
                    is_done = false;
                }
                if let Some((id, range, next)) = self.watches[at].clone()
                    && let Reports::Changes(changes, until) = self.store.since(&range, next)
                    && !changes.is_empty()
                {
                    self.watches[at] = Some((id, range, until));
                    self.give(at, NodeInput::Watched(id, Watched::Changes(changes)));
                    is_done = false;
                }
                if self.nodes[at].deadline().is_some_and(|deadline| deadline <= self.now) {
                    self.give(at, NodeInput::Timeout);
                    is_done = false;
                }
            }
            if !self.messages.is_empty() {
                self.take(SmallStep::Message(0));
                is_done = false;
            }
            if is_done {
                return;
            }
        }
        panic!("the nodes do not come to rest");
    }

    /// Nothing is lost any more: the processes settle.
    fn settle(&mut self) {
        self.flow();
        for _ in 0..3 {
            self.pass(Duration::from_secs(2));
            self.flow();
        }
        let keys = Keyspace::new("small");
        let found = self.store.keys.get(&keys.of(&RecordPlace::At(client())));
        let record = found.map(|found| At::decode(&found.value).unwrap());
        let logged_in: BTreeSet<_> = self.sessions.iter().flatten().copied().collect();
        assert!(logged_in.len() <= 1, "I4: {:?}", self.sessions);
        // Each kick needs a log-in of another process.
        let most = self.logged_in.len().saturating_sub(1);
        assert!(self.kicks <= most, "I4: {} kicks", self.kicks);
        let both = self.kicked.len() > 1 && !self.returns;
        assert!(!both, "I4: both processes have yielded");
        let homes: Vec<_> = (0..2).filter(|at| self.sessions[*at].is_some()).map(id).collect();
        let mut recorded: Vec<_> =
            record.iter().flat_map(|at| &at.homes).map(|it| it.node.clone()).collect();
        recorded.sort();
        assert_eq!(recorded, homes, "I6: {record:?}");
        let instance = record.map(|record| record.instance.0);
        assert_eq!(instance, logged_in.first().copied(), "I4: the record names another process");
        let notes = self
            .store
            .keys
            .iter()
            .filter(|(key, _)| matches!(keys.place(key), Some(RecordPlace::Former(..))));
        let notes: Vec<_> = notes.map(|(key, note)| (key, Former::decode(&note.value))).collect();
        assert!(notes.is_empty(), "I6: notes that nobody has read: {notes:?}");
    }
}

/// Takes all steps from a state on: up to `left` events. `seen` has the states that were examined,
/// each with the most events that were taken from it.
fn explore(small: &Small, left: usize, seen: &mut BTreeMap<u64, usize>, path: &mut Vec<SmallStep>) {
    let mut hasher = DefaultHasher::new();
    small.hash(&mut hasher);
    let state = hasher.finish();
    let known = seen.get(&state).copied();
    if known.is_some_and(|known| known >= left) || seen.len() >= STATES {
        return;
    }
    seen.insert(state, left);
    if known.is_none() {
        let end = std::panic::catch_unwind(|| small.clone().settle());
        assert!(end.is_ok(), "after {path:?}");
    }
    if left == 0 {
        return;
    }
    for step in small.steps() {
        let mut next = small.clone();
        next.take(step);
        path.push(step);
        explore(&next, left - 1, seen, path);
        path.pop();
    }
}

/// All schedules of some events. `CLUSTER_EVENTS` is another number of events.
fn all(returns: bool) {
    #[expect(clippy::disallowed_methods, reason = "a test, whose length a person chooses")]
    let events = std::env::var("CLUSTER_EVENTS").ok();
    let events = events.map_or(EVENTS, |text| text.parse().unwrap());
    let mut seen = BTreeMap::new();
    explore(&Small::new(returns), events, &mut seen, &mut Vec::new());
    println!("{} states", seen.len());
    assert!(seen.len() < STATES, "the case is larger than it should be");
}

#[test]
fn of_two_processes_at_two_nodes_one_stays_after_any_schedule() {
    all(false);
}

#[test]
fn two_processes_that_come_back_settle_after_any_schedule() {
    all(true);
}
