//! What a node of a cluster tells clients of the nodes: with how many a client should have links,
//! and where it finds each.

use std::sync::Arc;

use cluster::names::NodeId;
use cluster::record::HOMES;
use cluster_node::{Cluster, LivingNode, LivingNodes};
use proto::control::{ControlMessage, HOME_NODES_MAX, HomeNode, Homes};

/// The number of homes of a client, where there are as many nodes.
const WANTED: u8 = 2;

/// The nodes for the `nth` client: this node, and the others in an order that differs between
/// clients. A node that asks its clients to go is not among the others. `None`: this node does not
/// know the nodes yet.
pub(super) fn offer(own: &NodeId, nodes: &LivingNodes, nth: u64) -> Option<Homes> {
    let is_other = |(id, living): &(&NodeId, &LivingNode)| {
        *id != own && !living.record.as_ref().is_some_and(|record| record.draining)
    };
    let first = nodes.get_key_value(own).map(node)?;
    let mut others: Vec<_> = nodes.iter().filter(is_other).map(node).collect();
    rotate(&mut others, nth);
    others.truncate(HOME_NODES_MAX - 1);
    let wanted = if others.is_empty() { 1 } else { WANTED };
    Some(Homes { wanted, nodes: std::iter::once(first).chain(others).collect() })
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

/// The message for the client of the link with this number. `None`: a later message says which
/// nodes there are.
pub(crate) fn message(own: &NodeId, cluster: &Cluster, serial: u64) -> Option<ControlMessage> {
    let nodes = Arc::clone(&cluster.nodes().borrow());
    offer(own, &nodes, serial).map(ControlMessage::Homes)
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
