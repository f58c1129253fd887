//! Short stories with one outcome each: nodes before the engine in memory, whose requests are
//! carried out when the story says so. Time stands still unless the story lets it pass.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Moment;
use crate::engine::{Operation, Range, Revision, Transaction};
use crate::keys::{Keyspace, RecordPlace};
use crate::names::{ClientName, Instance, NodeId};
use crate::node::{
    EngineReply, EngineRequest, Lane, Node, NodeInput, NodeSettings, Output, RequestId, ServerWish,
    WatchId, Watched,
};
use crate::record::{At, Described, Record as _};
use crate::testing::{ModelStore, Reports};

/// A node of a story.
struct SceneNode {
    node: Node,
    requests: BTreeMap<RequestId, EngineRequest>,
    watch: Option<(WatchId, Range, Revision)>,
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
    NodeSettings { cluster: "scene".into(), node, record, cache: 16, seed }
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
        let node = Node::new(settings(at, record), self.now);
        self.nodes.insert(at, SceneNode { node, requests: BTreeMap::new(), watch: None });
        self.give(at, NodeInput::Timeout);
        self.flow();
    }

    fn give(&mut self, at: usize, input: NodeInput) {
        let it = self.nodes.get_mut(&at).unwrap();
        it.node.handle(self.now, input);
        while let Some(output) = it.node.poll_output() {
            match output {
                Output::Request(id, request) => {
                    it.requests.insert(id, request);
                }
                Output::Watch(id, range, from) => it.watch = Some((id, range, from)),
                Output::Unwatch(_) => it.watch = None,
                Output::Send(..)
                | Output::Claimed(..)
                | Output::Renumbered { .. }
                | Output::Lost { .. }
                | Output::Found(..)
                | Output::Kick { .. }
                | Output::Port { .. }
                | Output::Revoked { .. }
                | Output::Ready(_)
                | Output::Report(_) => {}
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
            EngineRequest::Grant(_) => EngineReply::Granted(self.store.grant(self.now)),
            EngineRequest::KeepAlive(lease) => {
                EngineReply::Renewed(self.store.keep_alive(self.now, *lease))
            }
            EngineRequest::Revoke(lease) => {
                self.store.revoke(*lease);
                return None;
            }
        })
    }

    /// All that is under way arrives.
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
        let mut has_happened = false;
        if let Some((id, request)) = it.requests.pop_first() {
            has_happened = true;
            if let Some(reply) = self.ask(&request) {
                self.give(at, NodeInput::Answer(id, Ok(reply)));
            }
        }
        let it = self.nodes.get_mut(&at).unwrap();
        if let Some((id, range, next)) = it.watch.clone()
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
