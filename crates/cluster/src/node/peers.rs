//! The links to other nodes: whether they hear the engine, and what they know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::desk::Desk;
use super::io::{Output, PeerKnowledge, PeerMessage, Subject};
use super::membership::{LEASE, RENEWAL};
use crate::moment::Moment;
use crate::names::NodeId;

/// The time after its last answer for which the engine counts as heard. All nodes must know of an
/// outage of the engine before the first lease ends, which is 7 s after the outage at the earliest.
pub const HEARD: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Hash)]
pub(super) struct PeerLinks {
    /// The nodes with a link, whether they hear the engine, and when they have said so.
    links: BTreeMap<NodeId, Option<(bool, Moment)>>,
    status_at: Moment,
    /// What was told last.
    told: bool,
    is_ready: Option<bool>,
}

impl PeerLinks {
    pub(super) const fn new() -> Self {
        let status_at = Moment(Duration::ZERO);
        Self { links: BTreeMap::new(), status_at, told: false, is_ready: None }
    }

    /// The moments at which the others are told, and at which the engine counts as silent.
    pub(super) fn deadline(&self, desk: &Desk) -> Option<Moment> {
        let status = (!self.links.is_empty()).then_some(self.status_at);
        let until = |time| desk.heard().map(|heard| heard.after(time));
        let silent = until(HEARD).filter(|_| self.told);
        let unready = until(LEASE).filter(|until| *until > desk.now);
        [status, silent, unready].into_iter().flatten().min()
    }

    /// Whether somebody may hear the engine: this node does, or a node with a link says so, or has
    /// not said anything for two renewals, for one because this process was stopped.
    pub(super) fn one_may_hear(&self, desk: &Desk) -> bool {
        let may_hear = |told: &Option<(bool, Moment)>| {
            told.is_none_or(|(hears, at)| hears || desk.now.since(at) > RENEWAL * 2)
        };
        desk.has_heard(HEARD) || self.links.values().any(may_hear)
    }

    /// The number of links to other nodes.
    pub(super) fn count(&self) -> usize {
        self.links.len()
    }

    /// Sends a message, if there is a link.
    pub(super) fn send(&self, desk: &mut Desk, to: &NodeId, message: PeerMessage) {
        if self.links.contains_key(to) {
            desk.output(Output::Send(to.clone(), message));
        }
    }

    pub(super) fn link_up(&mut self, desk: &mut Desk, node: NodeId) {
        self.links.insert(node.clone(), None);
        let hears_engine = desk.has_heard(HEARD);
        self.send(desk, &node, PeerMessage::Status { hears_engine });
    }

    pub(super) fn link_down(&mut self, node: &NodeId) {
        self.links.remove(node);
    }

    /// A node says whether it hears the engine.
    pub(super) fn says(&mut self, desk: &Desk, node: &NodeId, hears_engine: bool) {
        if let Some(told) = self.links.get_mut(node) {
            *told = Some((hears_engine, desk.now));
        }
    }

    /// Tells the others whether this node hears the engine, and the server whether it is ready.
    pub(super) fn turn(&mut self, desk: &mut Desk, is_ready: bool) {
        let hears_engine = desk.has_heard(HEARD);
        if self.status_at <= desk.now || self.told != hears_engine {
            self.told = hears_engine;
            self.status_at = desk.now.after(RENEWAL);
            for node in self.links.keys() {
                self.send(desk, node, PeerMessage::Status { hears_engine });
            }
        }
        if self.is_ready != Some(is_ready) {
            self.is_ready = Some(is_ready);
            desk.output(Output::Ready(is_ready));
        }
    }

    /// Sends a question to all nodes; one of those that may hear the engine is to ask it. Returns
    /// the nodes that will answer.
    pub(super) fn ask(&self, desk: &mut Desk, id: u64, subject: &Subject) -> BTreeSet<NodeId> {
        let hears =
            |(_, told): &(&NodeId, &Option<(bool, Moment)>)| told.is_none_or(|(hears, _)| hears);
        let near: Vec<_> = self.links.iter().filter(hears).map(|(node, _)| node).collect();
        let chosen = desk.random.below(near.len() as u64);
        let chosen = usize::try_from(chosen).ok().and_then(|at| near.get(at)).copied();
        for node in self.links.keys() {
            let ask_engine = Some(node) == chosen;
            self.send(desk, node, PeerMessage::Ask { id, subject: subject.clone(), ask_engine });
        }
        self.links.keys().cloned().collect()
    }

    /// Answers the question of a node. `life`: the life of the store.
    pub(super) fn answer(
        &self,
        desk: &mut Desk,
        life: Option<u64>,
        (to, id): (&NodeId, u64),
        known: PeerKnowledge,
    ) {
        let incarnation = life.unwrap_or(0);
        self.send(desk, to, PeerMessage::Answer { id, incarnation, known });
    }
}
