//! The links to other nodes: whether they hear the engine, and what they know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Node;
use super::io::{Output, PeerKnowledge, PeerMessage, Subject};
use super::look_ups::Waiter;
use super::membership::{LEASE, RENEWAL};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{Generation, NodeEpoch, NodeId};
use crate::record::{At, Home};

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

    pub(super) fn deadline(&self) -> Option<Moment> {
        (!self.links.is_empty()).then_some(self.status_at)
    }

    /// Whether a node with a link may hear the engine: it says so, or has not said anything for two
    /// renewals, for one because this process was stopped.
    fn one_may_hear(&self, now: Moment) -> bool {
        let may_hear = |told: &Option<(bool, Moment)>| {
            told.is_none_or(|(hears, at)| hears || now.since(at) > RENEWAL * 2)
        };
        self.links.values().any(may_hear)
    }
}

impl Node {
    /// Whether the engine has answered within [`HEARD`].
    fn hears_engine(&self) -> bool {
        self.heard.is_some_and(|heard| self.now < heard.after(HEARD))
    }

    /// The lease has ended, and not because the engine is silent for all nodes.
    pub(super) fn is_cut_off_alone(&self) -> bool {
        self.membership.was_member
            && !self.is_leased()
            && (self.hears_engine() || self.peers.one_may_hear(self.now))
    }

    pub(super) fn send(&mut self, to: &NodeId, message: PeerMessage) {
        if self.peers.links.contains_key(to) {
            self.outputs.push_back(Output::Send(to.clone(), message));
        }
    }

    pub(super) fn link_up(&mut self, node: NodeId) {
        let status = PeerMessage::Status { hears_engine: self.hears_engine() };
        self.peers.links.insert(node.clone(), None);
        self.send(&node, status);
    }

    pub(super) fn link_down(&mut self, node: &NodeId) {
        self.peers.links.remove(node);
        self.answers_nothing(node);
    }

    pub(super) fn turn_peers(&mut self) {
        let hears_engine = self.hears_engine();
        if self.peers.status_at <= self.now || self.peers.told != hears_engine {
            self.peers.told = hears_engine;
            self.peers.status_at = self.now.after(RENEWAL);
            let nodes: Vec<_> = self.peers.links.keys().cloned().collect();
            for node in nodes {
                self.send(&node, PeerMessage::Status { hears_engine });
            }
        }
        let is_ready = self.is_ready();
        if self.peers.is_ready != Some(is_ready) {
            self.peers.is_ready = Some(is_ready);
            self.outputs.push_back(Output::Ready(is_ready));
        }
    }

    /// Whether visitors and clients should be sent to this node: it was a member, and the engine or
    /// another node is heard.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let is_heard = self.heard.is_some_and(|heard| self.now < heard.after(LEASE));
        let has_left = self.has_left();
        let is_near = self.is_leased() || is_heard || !self.peers.links.is_empty();
        self.membership.was_member && !has_left && is_near
    }

    /// The moments at which the node stops hearing the engine.
    pub(super) fn silence_deadline(&self) -> Option<Moment> {
        let until = |time| self.heard.map(|heard| heard.after(time));
        let silent = until(HEARD).filter(|_| self.peers.told);
        let unready = until(LEASE).filter(|until| *until > self.now);
        [silent, unready].into_iter().flatten().min()
    }

    /// Sends a question to all nodes. Returns those that will answer.
    pub(super) fn send_questions(&mut self, id: u64, subject: &Subject) -> BTreeSet<NodeId> {
        let hears =
            |(_, told): &(&NodeId, &Option<(bool, Moment)>)| told.is_none_or(|(hears, _)| hears);
        let near: Vec<_> =
            self.peers.links.iter().filter(hears).map(|(node, _)| node.clone()).collect();
        let chosen = self.random.below(near.len() as u64);
        let chosen = usize::try_from(chosen).ok().and_then(|at| near.get(at)).cloned();
        let nodes: BTreeSet<_> = self.peers.links.keys().cloned().collect();
        for node in &nodes {
            let ask_engine = Some(node) == chosen.as_ref();
            self.send(node, PeerMessage::Ask { id, subject: subject.clone(), ask_engine });
        }
        nodes
    }

    /// A message of another node.
    pub(super) fn message(&mut self, from: NodeId, message: PeerMessage) {
        match message {
            PeerMessage::Status { hears_engine } => {
                if let Some(told) = self.peers.links.get_mut(&from) {
                    *told = Some((hears_engine, self.now));
                }
            }
            PeerMessage::Ask { id, subject, ask_engine } => match self.own_knowledge(&subject) {
                Some(known) => self.answer_peer(&from, id, known),
                None if ask_engine => self.want(subject, Waiter::Peer(from, id)),
                None => self.answer_peer(&from, id, PeerKnowledge::Unknown),
            },
            PeerMessage::Answer { id, incarnation, known } => {
                let is_same = self.is_life(incarnation);
                self.answered(&from, id, if is_same { known } else { PeerKnowledge::Unknown });
            }
            PeerMessage::Superseded { client, incarnation, generation, record } => {
                match self.is_life(incarnation) {
                    false => {}
                    // The message may be late, so the record is read.
                    true if self.is_leased() => {
                        self.look_again(&RecordPlace::At(client), generation)
                    }
                    true => self.learn(&client, generation, record),
                }
            }
        }
    }

    fn is_life(&self, number: u64) -> bool {
        self.membership.life.is_some_and(|life| life.number == number)
    }

    pub(super) fn answer_peer(&mut self, to: &NodeId, id: u64, known: PeerKnowledge) {
        let incarnation = self.membership.life.map_or(0, |life| life.number);
        self.send(to, PeerMessage::Answer { id, incarnation, known });
    }

    /// What this node has itself: a client that is logged in here, a resource that it holds.
    fn own_knowledge(&self, subject: &Subject) -> Option<PeerKnowledge> {
        match subject {
            Subject::Client(client) => {
                let local = self.homes.present(client).filter(|local| self.is_sure(local))?;
                if let Some((generation, at)) = self.homes.known(client)
                    && at.instance == local.instance
                {
                    return Some(PeerKnowledge::At(*generation, at.clone()));
                }
                let epoch = self.epoch().unwrap_or(NodeEpoch(0));
                let home = Home { node: self.settings.node.clone(), epoch, links: local.links() };
                let (instance, former) = (local.instance, Vec::new());
                Some(PeerKnowledge::At(Generation(0), At { instance, homes: vec![home], former }))
            }
            Subject::Resource(key) => {
                let (generation, holding) = self.own_holding(key)?;
                Some(PeerKnowledge::Holding(generation, holding))
            }
        }
    }
}
