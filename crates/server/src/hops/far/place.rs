//! What the cluster says about a resource: who has it, with which services, and over which links
//! the client is reached.

use std::sync::Arc;

use cluster::names::{Generation, Instance, Key, NodeId};
use cluster::node::{Located, Subject};
use cluster::record::{At, Holding};
use node::session::Session;
use proto::control::ServiceSpec;
use proto::greeting::Name;
use proto::{Hop, Target};

use super::ground::FarGround;
use crate::about;

/// Where a resource leads.
#[derive(Clone, Debug)]
pub(super) struct FarPlace {
    pub(super) client: Name,
    /// The number of the claim.
    pub(super) claim: Generation,
    /// What the nodes that hold the resource know the claim by.
    fence: u64,
    /// The services at the resource: several at a name, with different paths.
    pub(super) services: Vec<ServiceSpec>,
    pub(super) way: ClientWay,
}

/// Over which links the client is reached.
#[derive(Clone, Debug)]
pub(super) enum ClientWay {
    /// Its process at other nodes, by the record of this number. The sessions of the links to the
    /// nodes, the preferred node first.
    Nodes(Instance, Generation, Vec<Arc<Session>>),
    /// It has logged in at this node, while another node has the claim.
    Here(Vec<Arc<Session>>),
    /// It has no link with any node.
    Nowhere,
}

/// The answer about a resource.
#[derive(Debug)]
pub(super) enum Looked {
    At(FarPlace),
    /// Nobody has the resource, or a client of this node has it.
    Gone,
    /// The cluster does not answer.
    Away,
}

impl FarPlace {
    /// The target of streams to a service.
    pub(super) fn target(&self, service: &Name) -> Target {
        match &self.way {
            ClientWay::Nodes(instance, generation, _) => Target::Hop(Hop {
                client: self.client.clone(),
                instance: instance.0,
                generation: generation.0,
                service: service.clone(),
                claim: self.fence,
                mark: None,
                visitor: None,
            }),
            ClientWay::Here(_) | ClientWay::Nowhere => Target::Service(service.as_str().to_owned()),
        }
    }

    /// The sessions that lead to the client.
    pub(super) fn sessions(&self) -> &[Arc<Session>] {
        match &self.way {
            ClientWay::Nodes(_, _, sessions) | ClientWay::Here(sessions) => sessions,
            ClientWay::Nowhere => &[],
        }
    }

    /// Whether both were found by the same records.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let by = |place: &Self| match &place.way {
            ClientWay::Nodes(instance, generation, _) => Some((*instance, *generation)),
            ClientWay::Here(_) | ClientWay::Nowhere => None,
        };
        self.claim == other.claim && by(self).is_some() && by(self) == by(other)
    }

    /// Whether a hop leads here.
    pub(super) fn is_of(&self, hop: &Hop) -> bool {
        let ClientWay::Nodes(instance, generation, _) = &self.way else { return false };
        (instance.0, generation.0, self.fence) == (hop.instance, hop.generation, hop.claim)
    }
}

impl FarGround {
    /// Asks the cluster who has a resource and where the client is.
    pub(super) async fn look_up(&self, key: &Key) -> Looked {
        let subject = || Subject::Resource(key.clone());
        let mut found = self.places.find(subject()).await;
        if let Located::Held { generation, record, .. } = &found
            && self.is_own(key, record)
            && !self.places.has_claim(record.client.as_str(), record.fence(key))
        {
            // The record was kept while a client of this node had the resource. The client has
            // another home by now, perhaps.
            self.places.refused(subject(), *generation);
            found = self.places.find(subject()).await;
        }
        let (claim, record) = match found {
            Located::Held { generation, record, .. } => (generation, record),
            Located::Away => return Looked::Away,
            Located::Nowhere | Located::Here(_) | Located::There { .. } => return Looked::Gone,
        };
        self.read(key, claim, &record).await
    }

    /// Whether a client of this process of the node holds the resource. A record may name a former
    /// process of the node, which has died, beside homes that live.
    pub(super) fn is_own(&self, key: &Key, record: &Holding) -> bool {
        record.epoch_of(&self.node).is_some_and(|epoch| {
            self.places.epoch().is_none_or(|own| own == epoch)
                || self.places.has_claim(record.client.as_str(), record.fence(key))
        })
    }

    /// What the record of a claim says, and where its client is.
    pub(super) async fn read(&self, key: &Key, claim: Generation, record: &Holding) -> Looked {
        if self.is_own(key, record) {
            return Looked::Gone;
        }
        let fence = record.fence(key);
        let services = match about::decode(&record.about) {
            Ok(about) if about.is_whole => about.services,
            Ok(_) => match self.ask_terms(fence, record).await {
                Some(services) => services,
                None => return Looked::Away,
            },
            Err(error) => {
                let (client, node) = (&record.client, &record.node);
                tracing::warn!(
                    %client, %node, ?key, %error,
                    "the record of a service of client {client} at node {node} cannot be read: {error}"
                );
                return Looked::Gone;
            }
        };
        let Ok(client) = record.client.as_str().parse::<Name>() else { return Looked::Gone };
        let way = self.way(record).await;
        Looked::At(FarPlace { client, claim, fence, services, way })
    }

    /// Over which links a client is reached at a resource: those to the nodes that hold it. While
    /// the cluster does not answer about the client, its process is the one of the claim.
    async fn way(&self, held: &Holding) -> ClientWay {
        let client = held.client.clone();
        let (instance, generation) = match self.places.find(Subject::Client(client)).await {
            Located::Here(instance) => {
                return ClientWay::Here(self.registry.processes_of(held.client.as_str(), instance));
            }
            Located::There { generation, record, .. } => (record.instance, generation),
            Located::Nowhere => return ClientWay::Nowhere,
            Located::Held { .. } | Located::Away => (held.instance, Generation(0)),
        };
        let homes = held.holders();
        let sessions = self.sessions_of(homes.iter().map(|home| &home.node), instance);
        ClientWay::Nodes(instance, generation, sessions)
    }

    /// The sessions of the links to the nodes of a client.
    pub(super) fn sessions(&self, record: &At) -> Vec<Arc<Session>> {
        self.sessions_of(record.homes.iter().map(|home| &home.node), record.instance)
    }

    /// The sessions of the links to those of these nodes that are not this node. The nodes take
    /// turns as the first choice, so that visitors of many clients spread over the nodes. A node
    /// without a live link comes last.
    fn sessions_of<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeId>,
        instance: Instance,
    ) -> Vec<Arc<Session>> {
        let others = nodes.filter(|node| **node != self.node);
        let mut sessions: Vec<_> = others.filter_map(|node| self.nodes.session(node)).collect();
        let turn = usize::try_from(instance_turn(instance)).unwrap_or(0);
        let turns = turn.checked_rem(sessions.len()).unwrap_or(0);
        sessions.rotate_left(turns);
        sessions.sort_by_key(|session| !session.answers());
        sessions
    }
}

/// A number that differs between the processes of clients.
const fn instance_turn(Instance(number): Instance) -> u64 {
    number >> 8
}
