//! Short stories with one outcome each: nodes before the engine in memory, whose requests are
//! carried out when the story says so. Time stands still but for [`Scene::pass`].

mod homes;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::Moment;
use crate::blob::{BLOB_BYTES, BlobAct, BlobExpected, BlobOutcome, BlobWish};
use crate::engine::{Change, Operation, Range, Revision, Transaction};
use crate::heirloom::Heirloom;
use crate::keys::{BlobPlace, Keyspace, RecordPlace};
use crate::names::{Class, ClientName, Generation, Instance, Key, NodeEpoch, NodeId, PortProtocol};
use crate::node::{
    AWAITED, BATCH, BLOB_BATCH, BLOBS, Claimed, EngineReply, EngineRequest, LEASE, Lane, Located,
    NEGATIVE, Node, NodeEvent, NodeInput, NodeSettings, OpenVerdict, Output, PATIENCE, PeerMessage,
    PeerOpen, RENEWAL, RequestId, ServerWish, Subject, Ticket, WatchId, Watched,
};
use crate::record::{
    At, Described, Home, Incarnation, NodeProgram, Record as _, VERSIONS, Versions,
};
use crate::testing::{ModelStore, Reports, StoreEvent};

/// A node of a story.
struct SceneNode {
    node: Node,
    requests: BTreeMap<RequestId, EngineRequest>,
    watch: Option<(WatchId, Range, Revision)>,
    /// The outputs that the story reads.
    outputs: Vec<Output>,
    /// The process of the node is stopped.
    is_held: bool,
    /// The engine does not hear the node.
    is_cut: bool,
}

/// A story.
struct Scene {
    now: Moment,
    store: ModelStore,
    keys: Keyspace,
    nodes: BTreeMap<usize, SceneNode>,
    /// The writes that the engine was asked for, each also if its condition did not hold.
    writes: usize,
}

fn settings(at: usize, record: Described) -> NodeSettings {
    let node = NodeId::new(&format!("n{at}")).unwrap();
    let seed = record.process;
    NodeSettings { cluster: "scene".into(), node, record, cache: 16, gather: Duration::ZERO, seed }
}

fn client(at: usize) -> ClientName {
    ClientName::new(&format!("c{at}")).unwrap()
}

fn log_in(client: ClientName, instance: u64) -> NodeInput {
    let instance = Instance(instance);
    NodeInput::Wish(ServerWish::LoggedIn { client, instance, links: 1 })
}

impl Scene {
    fn new() -> Self {
        Self {
            now: Moment(Duration::from_secs(1)),
            store: ModelStore::new(),
            keys: Keyspace::new("scene"),
            nodes: BTreeMap::new(),
            writes: 0,
        }
    }

    /// A process of a node joins. A former process of this node has ended without a word.
    fn join(&mut self, at: usize, process: u64) {
        self.start(at, super::plain_node(process));
    }

    fn start(&mut self, at: usize, record: Described) {
        self.start_as(at, at, record);
    }

    /// A process joins under the name of this node.
    fn start_as(&mut self, at: usize, name: usize, record: Described) {
        self.run(at, Node::new(settings(name, record), self.now));
    }

    /// Another process of the node goes on. Returns what the former process has left.
    fn hand_over(&mut self, at: usize, process: u64) -> Heirloom {
        self.give(at, NodeInput::Wish(ServerWish::HandOver));
        self.flow();
        let left = self.outputs(at).into_iter().find_map(|output| {
            let Output::HandedOver(left) = output else { return None };
            Some(left)
        });
        // As text, which the next process reads.
        let left = Heirloom::decode(&left.unwrap().unwrap().encode()).unwrap();
        let node = Node::adopt(settings(at, super::plain_node(process)), &left, self.now);
        self.run(at, node);
        left
    }

    fn run(&mut self, at: usize, node: Node) {
        let (requests, outputs) = (BTreeMap::new(), Vec::new());
        self.nodes.insert(
            at,
            SceneNode { node, requests, watch: None, outputs, is_held: false, is_cut: false },
        );
        self.give(at, NodeInput::Timeout);
        self.flow();
    }

    fn give(&mut self, at: usize, input: NodeInput) {
        let it = self.nodes.get_mut(&at).unwrap();
        it.node.handle(self.now, input);
        while let Some(output) = it.node.poll_output() {
            if let Output::Request(id, request) = output {
                it.requests.insert(id, request);
            } else if let Output::Watch(id, range, from) = output {
                it.watch = Some((id, range, from));
            } else if matches!(output, Output::Unwatch(_)) {
                it.watch = None;
            } else {
                it.outputs.push(output);
            }
        }
    }

    fn ask(&mut self, request: &EngineRequest) -> Option<EngineReply> {
        Some(match request {
            EngineRequest::Transact(lane, it) => {
                if *lane == Lane::Claims {
                    self.writes += writes(it);
                }
                EngineReply::Done(self.store.transact(it).unwrap())
            }
            EngineRequest::Grant(_, time) => {
                EngineReply::Granted(self.store.grant_for(self.now, *time))
            }
            EngineRequest::KeepAlive(lease) => {
                EngineReply::Renewed(self.store.keep_alive(self.now, *lease))
            }
            EngineRequest::Revoke(lease) => {
                self.store.revoke(*lease);
                return None;
            }
        })
    }

    /// All that is under way arrives, but for what a node that is held has asked.
    fn flow(&mut self) {
        for _ in 0..10_000 {
            let mut is_done = true;
            let places: Vec<_> = self.nodes.keys().copied().collect();
            for at in places {
                is_done &= !self.turn(at);
            }
            if is_done {
                return;
            }
        }
        panic!("the nodes do not come to rest");
    }

    /// Whether something has happened.
    fn turn(&mut self, at: usize) -> bool {
        let it = self.nodes.get_mut(&at).unwrap();
        if it.is_held {
            return false;
        }
        let mut has_happened = false;
        if !it.is_cut
            && let Some((id, request)) = it.requests.pop_first()
        {
            has_happened = true;
            if let Some(reply) = self.ask(&request) {
                self.give(at, NodeInput::Answer(id, Ok(reply)));
            }
        }
        let it = self.nodes.get_mut(&at).unwrap();
        if !it.is_cut
            && let Some((id, range, next)) = it.watch.clone()
            && let Reports::Changes(changes, until) = self.store.since(&range, next)
            && !changes.is_empty()
        {
            has_happened = true;
            it.watch = Some((id, range, until));
            self.give(at, NodeInput::Watched(id, Watched::Changes(changes)));
        }
        let node = &self.nodes[&at].node;
        if node.deadline().is_some_and(|deadline| deadline <= self.now) {
            has_happened = true;
            self.give(at, NodeInput::Timeout);
        }
        has_happened
    }

    /// Time passes, in steps of a quarter of a second.
    fn pass(&mut self, time: Duration) {
        let until = self.now.after(time);
        while self.now < until {
            self.now = self.now.after(Duration::from_millis(250)).min(until);
            self.store.expire(self.now);
            self.flow();
        }
    }

    /// The outputs of a node since the last call.
    fn outputs(&mut self, at: usize) -> Vec<Output> {
        std::mem::take(&mut self.nodes.get_mut(&at).unwrap().outputs)
    }

    /// What a node has reported since the last call.
    fn reports(&mut self, at: usize) -> Vec<NodeEvent> {
        let report = |output| {
            let Output::Report(event) = output else { return None };
            Some(event)
        };
        self.outputs(at).into_iter().filter_map(report).collect()
    }

    /// The answers of a node to the questions of its server since the last call.
    fn found(&mut self, at: usize) -> Vec<Located> {
        let found = |output| {
            let Output::Found(_, located) = output else { return None };
            Some(located)
        };
        self.outputs(at).into_iter().filter_map(found).collect()
    }

    /// The processes that a node has told to yield since the last call.
    fn kicks(&mut self, at: usize) -> Vec<Instance> {
        let kick = |output: Output| {
            let Output::Kick { instance, .. } = output else { return None };
            Some(instance)
        };
        self.outputs(at).into_iter().filter_map(kick).collect()
    }

    fn record(&self, client: &ClientName) -> Option<At> {
        let key = self.keys.of(&RecordPlace::At(client.clone()));
        self.store.keys.get(&key).map(|found| At::decode(&found.value).unwrap())
    }
}

fn writes(batch: &Transaction) -> usize {
    batch.then.iter().filter(|operation| matches!(operation, Operation::Inner(_))).count()
}

#[test]
fn after_a_restart_of_all_nodes_each_record_is_written_once() {
    let mut scene = Scene::new();
    for at in 0..3 {
        scene.join(at, at as u64);
    }
    for at in 0..300 {
        scene.give(at % 3, log_in(client(at), 1));
    }
    scene.flow();
    assert_eq!(scene.writes, 300);
    for at in 0..3 {
        scene.join(at, 10 + at as u64);
    }
    for at in 0..300 {
        scene.give(at % 2, log_in(client(at), 1));
    }
    scene.flow();
    assert_eq!(scene.writes, 600);
    let is_there = |at| scene.record(&client(at)).is_some_and(|record| record.homes.len() == 1);
    assert!((0..300).all(is_there));
}

#[test]
fn a_process_that_came_later_is_not_told_to_yield_because_it_was_recorded_first() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    // The node has so much to write that the record of the last process waits.
    let last = 2 * BATCH;
    for at in 0..=last {
        scene.give(0, log_in(client(at), 1));
    }
    for _ in 0..2 {
        scene.now = scene.now.after(Duration::from_millis(500));
        let (id, batch) = scene.nodes.get_mut(&0).unwrap().requests.pop_first().unwrap();
        let reply = scene.ask(&batch).unwrap();
        scene.give(0, NodeInput::Answer(id, Ok(reply)));
    }
    // Its record is under way for long.
    scene.nodes.get_mut(&0).unwrap().is_held = true;
    scene.give(1, log_in(client(last + 1), 1));
    scene.flow();
    // The client has restarted, and its new process is at another node.
    scene.give(1, log_in(client(last), 2));
    scene.flow();
    scene.nodes.get_mut(&0).unwrap().is_held = false;
    scene.pass(Duration::from_secs(4));
    assert_eq!((scene.kicks(0), scene.kicks(1)), (vec![Instance(1)], vec![]));
    let record = scene.record(&client(last)).unwrap();
    assert_eq!(record.instance, Instance(2));
}

#[test]
fn statements_about_a_life_of_the_store_that_is_over_do_not_count() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    let key = scene.keys.of(&RecordPlace::Incarnation);
    let incarnation = Incarnation::decode(&scene.store.keys[&key].value).unwrap().number;
    let copy = scene.store.clone();
    scene.give(0, log_in(client(0), 1));
    scene.flow();
    scene.give(0, NodeInput::LinkUp(NodeId::new("n1").unwrap()));
    // The store goes back, and the node notices by its next renewal.
    scene.store = copy;
    scene.now = scene.now.after(RENEWAL);
    scene.give(0, NodeInput::Timeout);
    while scene.nodes[&0].node.is_member() {
        let (id, request) = scene.nodes.get_mut(&0).unwrap().requests.pop_first().unwrap();
        let reply = scene.ask(&request).unwrap();
        scene.give(0, NodeInput::Answer(id, Ok(reply)));
    }
    // Another node has not noticed yet.
    let home = Home { node: NodeId::new("n1").unwrap(), epoch: NodeEpoch(99), links: 1 };
    let (instance, former) = (Instance(2), vec![Instance(1)]);
    let record = At { instance, homes: vec![home], since: Generation(0), former };
    let (client, generation) = (client(0), Generation(100));
    let message = PeerMessage::Superseded { client, incarnation, generation, record };
    scene.give(0, NodeInput::Message(NodeId::new("n1").unwrap(), message));
    scene.pass(Duration::from_secs(4));
    assert_eq!(scene.kicks(0), []);
    assert!(scene.record(&self::client(0)).is_some_and(|record| record.instance == Instance(1)));
}

#[test]
fn a_note_about_a_change_that_the_store_has_lost_is_read_once() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.give(0, log_in(client(0), 1));
    scene.flow();
    let key = scene.keys.of(&RecordPlace::Incarnation);
    let former = Incarnation::decode(&scene.store.keys[&key].value).unwrap().number;
    let home = Home { node: NodeId::new("n1").unwrap(), epoch: NodeEpoch(2), links: 1 };
    let (instance, former_ones) = (Instance(2), vec![Instance(1)]);
    let record = At { instance, homes: vec![home], since: Generation(0), former: former_ones };
    let message = PeerMessage::Superseded {
        client: client(0),
        incarnation: former,
        generation: Generation(1_000_000),
        record,
    };
    scene.writes = 0;
    scene.give(0, NodeInput::Message(NodeId::new("n1").unwrap(), message));
    scene.pass(Duration::from_secs(4));
    assert!(scene.writes < 5, "{} writes", scene.writes);
    let life = Incarnation::decode(&scene.store.keys[&key].value).unwrap().number;
    assert_ne!(life, former, "the node has noticed");
    assert!(scene.nodes[&0].node.is_member());
}

#[test]
fn a_client_that_came_back_and_left_before_the_answer_leaves_no_record() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    let log_out = || {
        let (client, instance) = (client(1), Instance(1));
        NodeInput::Wish(ServerWish::LoggedOut { client, instance })
    };
    // A batch is under way, so the next log-in waits.
    scene.give(0, log_in(client(0), 1));
    for input in [log_in(client(1), 1), log_out(), log_in(client(1), 1)] {
        scene.give(0, input);
    }
    let next = |scene: &mut Scene| {
        let (id, batch) = scene.nodes.get_mut(&0).unwrap().requests.pop_first().unwrap();
        (id, scene.ask(&batch).unwrap())
    };
    let (id, reply) = next(&mut scene);
    scene.give(0, NodeInput::Answer(id, Ok(reply)));
    let (id, reply) = next(&mut scene);
    scene.give(0, log_out());
    scene.give(0, NodeInput::Answer(id, Ok(reply)));
    scene.flow();
    assert_eq!(scene.record(&client(1)), None);
}

#[test]
fn a_node_that_wakes_without_a_lease_asks_about_a_process_whose_record_was_under_way() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    scene.give(0, NodeInput::LinkUp(NodeId::new("n1").unwrap()));
    scene.give(0, log_in(client(0), 1));
    // The record is written, and the node is stopped before the answer.
    let (_, batch) = scene.nodes.get_mut(&0).unwrap().requests.pop_first().unwrap();
    scene.ask(&batch);
    scene.nodes.get_mut(&0).unwrap().is_held = true;
    scene.give(1, log_in(client(0), 2));
    scene.pass(Duration::from_secs(15));
    let (client, instance) = (client(0), Instance(1));
    let generation = Generation(1);
    let open = PeerOpen { client, instance, generation };
    let now = scene.now;
    let verdict = scene.nodes.get_mut(&0).unwrap().node.judge(now, &open);
    assert_eq!(verdict, OpenVerdict::Ask);
}

/// What becomes of wishes about bytes of the server at a node.
fn blobs(scene: &mut Scene, at: usize, wishes: Vec<(BlobPlace, BlobAct)>) -> Vec<BlobOutcome> {
    scene.outputs(at);
    let wishes = (0..).zip(wishes).map(|(ticket, (place, act))| ServerWish::Blob {
        ticket: Ticket(ticket),
        wish: BlobWish { place, act },
    });
    scene.give(at, NodeInput::Wishes(wishes.collect()));
    scene.flow();
    let outcome = |output| {
        let Output::Blob(ticket, outcome) = output else { return None };
        Some((ticket, outcome))
    };
    let outcomes: BTreeMap<_, _> = scene.outputs(at).into_iter().filter_map(outcome).collect();
    outcomes.into_values().collect()
}

fn put(value: &'static str, expected: BlobExpected, keep: Option<Duration>) -> BlobAct {
    BlobAct::Put { value: Bytes::from_static(value.as_bytes()), expected, keep }
}

fn found(blob: &BlobOutcome) -> Option<(Revision, &[u8])> {
    let BlobOutcome::Found(Some(blob)) = blob else { return None };
    Some((blob.revision, &blob.value))
}

#[test]
fn bytes_of_the_server_are_shared_and_compared() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    let place = || BlobPlace::Client(client(0));
    let create = || (place(), put("{}", BlobExpected::Absent, None));
    let outcomes = blobs(&mut scene, 0, vec![create(), create(), (place(), BlobAct::Get)]);
    let [BlobOutcome::Written(first), BlobOutcome::Refused(there), read] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(*there, Some(*first));
    assert_eq!(found(read), Some((*first, &b"{}"[..])));

    // Another node changes what it has read; the first node has then read something old.
    let change = |at| (place(), put("2", BlobExpected::At(at), None));
    let outcomes = blobs(&mut scene, 1, vec![change(*first)]);
    let [BlobOutcome::Written(second)] = outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(blobs(&mut scene, 0, vec![change(*first)]), [BlobOutcome::Refused(Some(second))]);

    // A code is taken once.
    let code = BlobPlace::Code("hash".into());
    let give = (code.clone(), put("", BlobExpected::Any, Some(Duration::from_secs(600))));
    assert!(matches!(blobs(&mut scene, 0, vec![give])[..], [BlobOutcome::Written(_)]));
    let take = || vec![(code.clone(), BlobAct::Delete { expected: BlobExpected::Any })];
    assert_eq!(blobs(&mut scene, 1, take()), [BlobOutcome::Deleted]);
    assert_eq!(blobs(&mut scene, 0, take()), [BlobOutcome::Refused(None)]);
}

#[test]
fn bytes_with_a_time_are_gone_after_it() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    let place = || BlobPlace::Challenge("token".into());
    let give = (place(), put("answer", BlobExpected::Any, Some(Duration::from_secs(30))));
    let outcomes = blobs(&mut scene, 0, vec![give, (place(), BlobAct::Get)]);
    assert_eq!(found(&outcomes[1]).map(|(_, value)| value), Some(&b"answer"[..]));
    scene.pass(Duration::from_secs(29));
    let read = |scene: &mut Scene| blobs(scene, 0, vec![(place(), BlobAct::Get)]);
    assert!(found(&read(&mut scene)[0]).is_some());
    scene.pass(Duration::from_secs(2));
    assert_eq!(read(&mut scene), [BlobOutcome::Found(None)]);
}

#[test]
fn a_revocation_is_told_to_all_nodes() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    let place = || BlobPlace::Revoked(client(0));
    for (act, is_revoked) in [
        (put("", BlobExpected::Any, None), true),
        (BlobAct::Delete { expected: BlobExpected::Any }, false),
    ] {
        scene.outputs(1);
        blobs(&mut scene, 0, vec![(place(), act)]);
        let told = Output::Revoked { client: client(0), is_revoked };
        assert!(scene.outputs(1).contains(&told), "{is_revoked}");
    }
}

#[test]
fn bytes_of_the_server_are_bounded_and_hold_up_no_client() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    let long = Bytes::from(vec![0; BLOB_BYTES + 1]);
    let act = BlobAct::Put { value: long, expected: BlobExpected::Any, keep: None };
    let outcomes = blobs(&mut scene, 0, vec![(BlobPlace::Tickets(1), act)]);
    assert_eq!(outcomes, [BlobOutcome::TooLong]);

    let many = (0..BLOBS as u32 + 10).map(|at| {
        let act = put("key", BlobExpected::Any, None);
        ServerWish::Blob {
            ticket: Ticket(at.into()),
            wish: BlobWish { place: BlobPlace::Tickets(at), act },
        }
    });
    scene.give(0, NodeInput::Wishes(many.collect()));
    let is_away = |output: &Output| {
        matches!(output, Output::Blob(_, BlobOutcome::Away { may_be_done: false }))
    };
    assert_eq!(scene.outputs(0).iter().filter(|output| is_away(output)).count(), 10);
    scene.give(0, log_in(client(0), 1));
    let requests = scene.nodes[&0].requests.values();
    let lanes: Vec<_> = requests
        .filter_map(|request| match request {
            EngineRequest::Transact(lane, it) => Some((*lane, it.then.len())),
            EngineRequest::Grant(..) | EngineRequest::KeepAlive(_) | EngineRequest::Revoke(_) => {
                None
            }
        })
        .collect();
    assert_eq!(lanes, [(Lane::Blobs, BLOB_BATCH), (Lane::Claims, 2)]);
    scene.flow();
    let written = |output: &Output| matches!(output, Output::Blob(_, BlobOutcome::Written(_)));
    assert_eq!(scene.outputs(0).iter().filter(|output| written(output)).count(), BLOBS);
}

#[test]
fn a_node_that_has_lost_nothing_learns_that_the_store_has_gone_back() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    let key = scene.keys.of(&RecordPlace::Incarnation);
    let copy = scene.store.clone();
    // Only the first node knows of this change.
    scene.give(0, log_in(client(0), 1));
    scene.flow();
    scene.store = copy;
    let former = scene.store.keys[&key].value.clone();
    scene.pass(RENEWAL * 3);
    assert_ne!(scene.store.keys[&key].value, former);
    for at in [0, 1] {
        assert!(scene.reports(at).contains(&NodeEvent::StoreRestored), "n{at}");
        assert!(scene.nodes[&at].node.is_member(), "n{at}");
    }
}

#[test]
fn a_process_whose_name_was_taken_waits_until_the_other_has_left() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.start_as(1, 0, super::plain_node(2));
    scene.pass(RENEWAL * 2);
    let taken = NodeEvent::NameTaken { process: 2 };
    assert!(scene.reports(0).contains(&taken));
    scene.pass(LEASE * 3);
    assert!(!scene.nodes[&0].node.is_member() && scene.nodes[&1].node.is_member());
    assert!(!scene.reports(1).contains(&NodeEvent::NameTaken { process: 1 }));
    scene.give(1, NodeInput::Wish(ServerWish::Leave));
    scene.flow();
    scene.nodes.remove(&1);
    scene.pass(LEASE * 2);
    assert!(scene.nodes[&0].node.is_member());
}

#[test]
fn a_node_that_has_no_version_of_records_in_common_with_another_does_not_join() {
    let mut scene = Scene::new();
    let versions = Versions { min: VERSIONS.max + 1, max: VERSIONS.max + 1 };
    scene.start(0, Described { versions, ..super::plain_node(1) });
    scene.start(1, super::plain_node(2));
    // The report names the program and the versions, for a person.
    let its = NodeProgram { program: Some(super::plain_node(1).program), versions: Some(versions) };
    let node = NodeId::new("n0").unwrap();
    assert!(scene.reports(1).contains(&NodeEvent::NoCommonVersion { node, its }));
    assert!(scene.nodes[&0].node.is_member() && !scene.nodes[&1].node.is_member());
    scene.give(0, NodeInput::Wish(ServerWish::Leave));
    scene.flow();
    scene.nodes.remove(&0);
    scene.pass(LEASE * 2);
    assert!(scene.nodes[&1].node.is_member());
}

#[test]
fn that_a_client_is_nowhere_is_known_for_a_second() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    let find = |scene: &mut Scene| {
        let (ticket, subject) = (Ticket(1), Subject::Client(client(0)));
        scene.give(0, NodeInput::Wish(ServerWish::Find { ticket, subject }));
        scene.nodes[&0].requests.len()
    };
    assert_eq!(find(&mut scene), 1, "the engine is asked");
    scene.flow();
    assert_eq!(scene.found(0), [Located::Nowhere]);
    scene.now = scene.now.after(NEGATIVE - Duration::from_millis(1));
    assert_eq!(find(&mut scene), 0, "the answer is kept");
    assert_eq!(scene.found(0), [Located::Nowhere]);
    scene.now = scene.now.after(Duration::from_millis(1));
    assert_eq!(find(&mut scene), 1, "the engine is asked again");
}

#[test]
fn a_claim_without_an_answer_of_the_engine_is_away_and_released_later() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.nodes.get_mut(&0).unwrap().is_cut = true;
    let key = Key::Port(PortProtocol::Tcp, Class::Public, 1);
    let (ticket, about) = (Ticket(1), String::new());
    let (client, instance, expected) = (client(0), Instance(1), None);
    let place = scene.keys.of(&RecordPlace::Resource(key.clone()));
    let wish = ServerWish::Claim { ticket, key, client, instance, about, expected };
    scene.give(0, NodeInput::Wish(wish));
    let away = Output::Claimed(ticket, Claimed::Away);
    scene.pass(PATIENCE - Duration::from_millis(250));
    assert!(!scene.outputs(0).contains(&away));
    scene.pass(Duration::from_millis(250));
    assert!(scene.outputs(0).contains(&away));
    // The batch reaches the engine after all, and its answer the node.
    scene.nodes.get_mut(&0).unwrap().is_cut = false;
    assert!(!scene.store.keys.contains_key(&place));
    let before = scene.store.history.len();
    scene.flow();
    let written =
        |event: &StoreEvent| matches!(&event.change, Change::Put(found) if found.key == place);
    assert!(scene.store.history[before..].iter().any(written), "it was held");
    assert!(!scene.store.keys.contains_key(&place), "it was released");
}

/// A claim of client 0 for a port.
fn claim(ticket: u64, port: u16, about: &str) -> NodeInput {
    claim_of(0, ticket, port, about)
}

/// The claim of a client.
fn claim_of(of: usize, ticket: u64, port: u16, about: &str) -> NodeInput {
    NodeInput::Wish(ServerWish::Claim {
        ticket: Ticket(ticket),
        key: Key::Port(PortProtocol::Tcp, Class::Public, port),
        client: client(of),
        instance: Instance(1),
        about: about.into(),
        expected: None,
    })
}

/// The answers to claims.
fn claimed(scene: &mut Scene, at: usize) -> Vec<(u64, Claimed)> {
    let answer = |output| {
        let Output::Claimed(Ticket(ticket), claimed) = output else { return None };
        Some((ticket, claimed))
    };
    scene.outputs(at).into_iter().filter_map(answer).collect()
}

#[test]
fn another_process_of_a_node_goes_on_with_the_epoch_and_no_claim_moves() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    scene.give(0, log_in(client(0), 1));
    for (ticket, port) in [(1, 1), (2, 2), (3, 3)] {
        scene.give(0, claim(ticket, port, "as it was"));
    }
    scene.pass(Duration::from_secs(4));
    let held = claimed(&mut scene, 0);
    let [(1, Claimed::Held(first)), (2, Claimed::Held(second)), (3, _)] = held[..] else {
        panic!("{held:?}")
    };
    let (record, seen) = (scene.record(&client(0)), scene.nodes[&1].node.nodes().clone());
    scene.outputs(1);
    let left = scene.hand_over(0, 3);
    assert_eq!((left.claims.len(), left.clients.len()), (3, 1));
    scene.flow();
    assert!(scene.nodes[&0].node.is_member());
    let epoch = NodeId::new("n0").unwrap();
    assert_eq!(scene.nodes[&1].node.nodes()[&epoch].epoch, seen[&epoch].epoch);
    assert_eq!(scene.reports(0), [NodeEvent::GoesOn(left.epoch)]);
    // The client comes, and wants two of its ports as before and a port in another way.
    scene.writes = 0;
    scene.give(0, log_in(client(0), 1));
    scene.give(0, claim(1, 1, "as it was"));
    scene.flow();
    assert_eq!(claimed(&mut scene, 0), [(1, Claimed::Held(first))]);
    assert_eq!((scene.writes, scene.record(&client(0))), (0, record), "nothing is written");
    scene.give(0, claim(2, 2, "in another way"));
    scene.flow();
    let again = claimed(&mut scene, 0);
    let [(2, Claimed::Held(third))] = again[..] else { panic!("{again:?}") };
    assert!(third > second);
    // What it does not want is free after a while, for other clients too.
    scene.give(1, claim_of(1, 4, 3, ""));
    scene.flow();
    let taken = claimed(&mut scene, 1);
    assert!(matches!(taken[..], [(4, Claimed::Taken { .. })]), "{taken:?}");
    scene.pass(AWAITED + Duration::from_secs(1));
    assert_eq!(scene.nodes[&0].node.held().count(), 2);
    scene.give(1, claim_of(1, 5, 3, ""));
    scene.flow();
    let free = claimed(&mut scene, 1);
    assert!(matches!(free[..], [(5, Claimed::Held(_))]), "{free:?}");
    assert!(scene.record(&client(0)).is_some(), "the client has come");
}

#[test]
fn a_client_that_does_not_come_to_the_next_process_is_forgotten_after_a_while() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.give(0, log_in(client(0), 1));
    scene.pass(Duration::from_secs(4));
    scene.hand_over(0, 2);
    // Somebody looks for the client meanwhile.
    let subject = Subject::Client(client(0));
    let find = ServerWish::Find { ticket: Ticket(1), subject };
    scene.give(0, NodeInput::Wish(find));
    scene.pass(AWAITED - Duration::from_secs(1));
    assert!(scene.record(&client(0)).is_some());
    scene.pass(Duration::from_secs(3));
    assert_eq!(scene.record(&client(0)), None);
}

#[test]
fn a_client_that_another_node_has_by_now_is_not_served_by_the_next_process() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    scene.give(0, log_in(client(0), 1));
    scene.give(0, claim(1, 1, ""));
    scene.pass(Duration::from_secs(4));
    // A newer process of the client is at the other node while the node changes its process.
    scene.give(0, NodeInput::Wish(ServerWish::HandOver));
    scene.give(1, log_in(client(0), 2));
    scene.flow();
    scene.hand_over(0, 3);
    scene.flow();
    scene.give(0, log_in(client(0), 1));
    scene.pass(Duration::from_secs(4));
    assert_eq!(scene.kicks(0), [Instance(1)]);
    assert_eq!(scene.record(&client(0)).unwrap().instance, Instance(2));
}

#[test]
fn a_process_whose_successor_fails_goes_on_and_one_that_dies_is_dead_after_its_lease() {
    let mut scene = Scene::new();
    scene.join(0, 1);
    scene.join(1, 2);
    scene.give(0, claim(1, 1, ""));
    scene.flow();
    scene.give(0, NodeInput::Wish(ServerWish::HandOver));
    scene.flow();
    // The process writes and renews nothing from then on.
    assert_eq!(scene.nodes[&0].node.deadline(), None);
    scene.give(0, claim(2, 2, ""));
    scene.flow();
    assert!(scene.nodes[&0].requests.is_empty());
    scene.give(0, NodeInput::Wish(ServerWish::GoOn));
    scene.pass(LEASE * 2);
    assert!(scene.nodes[&0].node.is_member());
    assert_eq!(scene.nodes[&0].node.held().count(), 2);
    // The next process dies before it has renewed the lease.
    scene.hand_over(0, 3);
    scene.nodes.remove(&0);
    scene.pass(LEASE + Duration::from_secs(1));
    assert_eq!(scene.nodes[&1].node.nodes().len(), 1);
}
