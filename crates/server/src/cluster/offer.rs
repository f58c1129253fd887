//! What a node of a cluster tells clients of the nodes: with how many a client should have links,
//! and where it finds each.

use std::sync::Arc;

use cluster::names::{self, NodeId};
use cluster::record::HOMES;
use cluster_node::{Cluster, LivingNode, LivingNodes};
use proto::control::{ControlMessage, HOME_NODES_MAX, HomeNode, Homes};

/// The number of homes of a client, where there are as many nodes.
const WANTED: u8 = 2;

/// The nodes for the `nth` client: this node, and the others in an order that differs between
/// clients, of which a message has no room for all. `None`: this node does not know the nodes yet.
fn offer(own: &NodeId, nodes: &LivingNodes, nth: u64) -> Option<Homes> {
    let mut nodes = all(own, nodes, nth)?;
    nodes.truncate(HOME_NODES_MAX);
    let wanted = if nodes.len() > 1 { WANTED } else { 1 };
    Some(Homes { wanted, nodes })
}

/// All nodes of which clients may hear, this node first, in the order of the `nth` client. A node
/// that asks its clients to go is not among the others.
fn all(own: &NodeId, nodes: &LivingNodes, nth: u64) -> Option<Vec<HomeNode>> {
    let is_other = |(id, living): &(&NodeId, &LivingNode)| {
        *id != own && !living.record.as_ref().is_some_and(|record| record.draining)
    };
    let first = nodes.get_key_value(own).map(node)?;
    let mut others: Vec<_> = nodes.iter().filter(is_other).map(node).collect();
    rotate(&mut others, nth);
    Some(std::iter::once(first).chain(others).collect())
}

/// What all messages of this node are made of: where it is the same, clients need no other message.
pub(super) fn told(own: &NodeId, nodes: &LivingNodes) -> Option<Vec<HomeNode>> {
    all(own, nodes, 0)
}

/// The number of a client, by which the order of nodes differs between clients. It is the same over
/// each link of the client and at each node. The turns of nodes
/// ([`downhill`](super::downhill)) have other bits of the hash.
pub(super) fn turn_of(client: &str) -> u64 {
    names::hashed(client.bytes()) >> 16
}

/// The nodes for the `nth` client that should leave this node: nodes that it may choose, in an
/// order that differs between clients, and its other homes. `None`: there is no node for it to
/// choose.
pub(super) fn beside(
    emptier: &[NodeId],
    homes: &[NodeId],
    nodes: &LivingNodes,
    nth: u64,
) -> Option<Homes> {
    let known = |id: &NodeId| nodes.get_key_value(id).map(node);
    let new = emptier.iter().filter(|id| !homes.contains(id)).filter_map(known);
    let mut new: Vec<_> = new.filter(|node| !node.addresses.is_empty()).collect();
    if new.is_empty() {
        return None;
    }
    rotate(&mut new, nth);
    new.truncate(HOME_NODES_MAX - HOMES);
    new.extend(homes.iter().take(HOMES).filter_map(known));
    Some(Homes { wanted: WANTED, nodes: new })
}

fn node((id, living): (&NodeId, &LivingNode)) -> HomeNode {
    let record = living.record.as_ref();
    HomeNode {
        name: id.to_string(),
        zone: record.map(|it| it.zone.clone()).unwrap_or_default(),
        addresses: record.map(|it| it.clients.clone()).unwrap_or_default(),
    }
}

/// Begins with another node for each client.
fn rotate(nodes: &mut [HomeNode], nth: u64) {
    let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
    let turns = nth.checked_rem(count).and_then(|turns| usize::try_from(turns).ok());
    nodes.rotate_left(turns.unwrap_or_default());
}

/// The message for a client. `None`: a later message says which nodes there are.
pub(crate) fn message(own: &NodeId, cluster: &Cluster, client: &str) -> Option<ControlMessage> {
    let nodes = Arc::clone(&cluster.nodes().borrow());
    offer(own, &nodes, turn_of(client)).map(ControlMessage::Homes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cluster::names::NodeEpoch;
    use cluster::record::{Described, VERSIONS};

    use super::*;

    fn living(zone: &str, draining: bool) -> LivingNode {
        let record = Described {
            process: 1,
            versions: VERSIONS,
            peers: Vec::new(),
            clients: vec![format!("tls://{zone}.example:7000")],
            zone: zone.to_owned(),
            program: "0".into(),
            draining,
            links: 0,
            secrets: Vec::new(),
        };
        LivingNode { epoch: NodeEpoch(1), record: Some(record) }
    }

    #[test]
    fn a_client_hears_of_its_node_first_and_of_no_node_that_drains() {
        let id = |name| NodeId::new(name).unwrap();
        let all: BTreeMap<_, _> = [("a", false), ("b", false), ("c", true), ("d", false)]
            .map(|(name, draining)| (id(name), living(name, draining)))
            .into();
        let nodes = Arc::new(all);
        let names = |nth| {
            let offer = offer(&id("b"), &nodes, nth).unwrap();
            assert_eq!((offer.wanted, &*offer.nodes[0].addresses[0]), (2, "tls://b.example:7000"));
            offer.nodes.into_iter().map(|node| node.name).collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["b", "a", "d"]);
        assert_eq!(names(1), ["b", "d", "a"]);
        assert_eq!(names(2), names(0));
        let alone = Arc::new(BTreeMap::from([(id("b"), living("b", false))]));
        assert_eq!(offer(&id("b"), &alone, 7).unwrap().wanted, 1);
        assert_eq!(offer(&id("x"), &alone, 7), None, "the table is behind");
    }

    #[test]
    fn clients_spread_over_the_other_nodes() {
        let id = |name: &str| NodeId::new(name).unwrap();
        let all: BTreeMap<_, _> =
            ["a", "b", "c", "d"].map(|name| (id(name), living(name, false))).into();
        let nodes = Arc::new(all);
        let mut first: BTreeMap<String, u32> = BTreeMap::new();
        for n in 0..300 {
            let offer = offer(&id("a"), &nodes, turn_of(&format!("client-{n}"))).unwrap();
            *first.entry(offer.nodes[1].name.clone()).or_default() += 1;
        }
        assert!(first.len() == 3 && first.values().all(|count| *count > 70), "{first:?}");
    }

    #[test]
    fn a_node_for_which_a_message_has_no_room_is_news_as_well() {
        let id = |n: usize| NodeId::new(&format!("node-{n:02}")).unwrap();
        let nodes = |count: usize| -> LivingNodes {
            Arc::new((0..count).map(|n| (id(n), living("z", false))).collect())
        };
        let (few, many) = (nodes(HOME_NODES_MAX + 1), nodes(HOME_NODES_MAX + 2));
        assert_eq!(offer(&id(0), &few, 0), offer(&id(0), &many, 0));
        assert_ne!(told(&id(0), &few), told(&id(0), &many));
        // Another client has the last node in its message.
        let last = offer(&id(0), &many, HOME_NODES_MAX as u64).unwrap().nodes;
        assert_eq!(last[1].name, id(HOME_NODES_MAX + 1).to_string());
    }

    #[test]
    fn a_client_that_should_go_hears_of_emptier_nodes_and_of_its_other_homes() {
        let id = |name: &str| NodeId::new(name).unwrap();
        let all: BTreeMap<_, _> =
            ["a", "b", "c", "d"].map(|name| (id(name), living(name, false))).into();
        let nodes = Arc::new(all);
        let names = |emptier: &[&str], homes: &[&str], nth| {
            let ids = |names: &[&str]| names.iter().map(|name| id(name)).collect::<Vec<_>>();
            let offer = beside(&ids(emptier), &ids(homes), &nodes, nth)?;
            Some(offer.nodes.into_iter().map(|node| node.name).collect::<Vec<_>>())
        };
        let named = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(names(&["c", "d"], &["b"], 0), named(&["c", "d", "b"]));
        assert_eq!(names(&["c", "d"], &["b"], 1), named(&["d", "c", "b"]));
        assert_eq!(names(&["c", "d"], &["c"], 0), named(&["d", "c"]));
        assert_eq!(names(&["c"], &["c"], 0), None);
        assert_eq!(names(&["x"], &[], 0), None, "the node has gone");
    }
}
