//! The answers of `tunnel where` and of `tunnel cluster clients`: the subjects that a name fits
//! with the nodes at which each is, and the clients of all nodes.

use anyhow::{Context, anyhow, ensure};
use cluster::keys::{PagedTable, RecordPlace};
use cluster::names::{Class, ClientName, Key, NodeId, PortProtocol, Space};
use cluster::node::{Located, Subject};
use cluster::record::{At, Home, Record as _};
use cluster_node::{LivingNodes, RecordPage, WantedPage};
use node::names::Kind;
use ops::cluster::{ClusterClient, ClusterClients, ClusterPlace, PlaceNode, WantedClients};

use super::ServerNode;
use crate::about;

/// A subject, and its text.
type AskedSubject = (String, Subject);

impl ServerNode {
    /// Where a client, the host of a service, or a port is. Asks the engine about what this node
    /// does not know.
    ///
    /// # Errors
    /// The cluster does not answer, and nothing is known.
    pub(crate) async fn locate(&self, name: &str) -> anyhow::Result<Vec<ClusterPlace>> {
        let (mut places, mut is_away) = (Vec::new(), false);
        for group in subjects(name) {
            // A name is looked for before the wildcards above it: without an answer about the name,
            // a wildcard is none either.
            for (what, subject) in group {
                let place = match self.cluster().find(subject).await {
                    Located::Here(_) => {
                        let mut nodes: Vec<_> = self
                            .homes_of(name)
                            .await
                            .unwrap_or_default()
                            .into_iter()
                            .map(|home| (home.node, Some(home.links)))
                            .collect();
                        if nodes.iter().all(|(node, _)| node != self.id()) {
                            nodes.push((self.id().clone(), None));
                        }
                        self.place(what, name.to_owned(), nodes)
                    }
                    Located::There { record, .. } => {
                        let homes = record.homes.into_iter();
                        let nodes = homes.map(|home| (home.node, Some(home.links))).collect();
                        self.place(what, name.to_owned(), nodes)
                    }
                    Located::Held { record, .. } => {
                        let what = published(&record.about).unwrap_or(what);
                        let holders = record.holders().into_iter();
                        let holders = holders.map(|holder| (holder.node, None)).collect();
                        self.place(what, record.client.to_string(), holders)
                    }
                    Located::Nowhere => continue,
                    Located::Away => {
                        is_away = true;
                        break;
                    }
                };
                places.push(place);
                break;
            }
        }
        ensure!(
            !is_away || !places.is_empty(),
            "the cluster does not answer, and this node knows nothing of {name}"
        );
        Ok(places)
    }

    /// The homes of a client, as the directory has them. `None`: it does not answer.
    pub(super) async fn homes_of(&self, client: &str) -> Option<Vec<Home>> {
        let Ok(name) = ClientName::new(client) else { return Some(Vec::new()) };
        // Of the names that begin with a name, the name itself is the first.
        let (table, begins) = (PagedTable::Homes, client.to_owned());
        let wanted = WantedPage { table, begins, after: None, limit: 1 };
        let page = self.cluster().page(wanted).await.ok()?;
        let own = RecordPlace::At(name);
        let mut found = page.records.into_iter().filter(|(place, _)| *place == own);
        let at = found.next().and_then(|(_, found)| At::decode(&found.value).ok());
        let living = self.cluster().nodes().borrow().clone();
        let homes = at.into_iter().flat_map(|at| at.homes);
        Some(homes.filter(|home| lives(&living, home)).collect())
    }

    fn place(
        &self,
        what: String,
        client: String,
        nodes: Vec<(NodeId, Option<u32>)>,
    ) -> ClusterPlace {
        let living = self.cluster().nodes().borrow().clone();
        ClusterPlace { what, client, nodes: places(self.id(), &living, nodes) }
    }

    /// A page of the clients that have links to any node. The engine is asked for nothing else, and
    /// nothing is kept.
    ///
    /// # Errors
    /// The engine does not answer, or `after` is no name of a client.
    pub(crate) async fn clients(&self, wanted: WantedClients) -> anyhow::Result<ClusterClients> {
        let WantedClients { begins, after, limit } = wanted;
        let after = if after.is_empty() {
            None
        } else {
            Some(RecordPlace::At(ClientName::new(&after).context("after")?))
        };
        let page = WantedPage { table: PagedTable::Homes, begins, after, limit };
        let page = self.cluster().page(page).await;
        let page = page.map_err(|why| anyhow!("the cluster does not answer: {why}"))?;
        let living = self.cluster().nodes().borrow().clone();
        Ok(clients_of(self.id(), &living, page))
    }
}

/// Nodes, with the links of a client at each. `own`: the node that was asked.
fn places(own: &NodeId, living: &LivingNodes, nodes: Vec<(NodeId, Option<u32>)>) -> Vec<PlaceNode> {
    let node = |(id, links): (NodeId, Option<u32>)| {
        let known = living.get(&id);
        let zone = known.and_then(|node| Some(node.record.as_ref()?.zone.clone()));
        PlaceNode {
            name: id.to_string(),
            zone: zone.filter(|zone| !zone.is_empty()),
            here: id == *own,
            alive: known.is_some(),
            links,
        }
    };
    let mut nodes: Vec<_> = nodes.into_iter().map(node).collect();
    nodes.sort_by_key(|node| !node.here);
    nodes
}

/// Whether a home is in the present epoch of its node.
fn lives(living: &LivingNodes, home: &Home) -> bool {
    living.get(&home.node).is_some_and(|node| node.epoch == home.epoch)
}

/// The clients of a page. A home in a former epoch of its node is void, and a client without
/// another home is connected nowhere.
fn clients_of(own: &NodeId, living: &LivingNodes, page: RecordPage) -> ClusterClients {
    let RecordPage { records, more } = page;
    let name = |place: &RecordPlace| match place {
        RecordPlace::At(client) => Some(client.to_string()),
        RecordPlace::Batch(_)
        | RecordPlace::Blob(_)
        | RecordPlace::Former(..)
        | RecordPlace::Resource(_)
        | RecordPlace::Incarnation
        | RecordPlace::Node(_)
        | RecordPlace::Revoked(_) => None,
    };
    let next = records.last().filter(|_| more).and_then(|(place, _)| name(place));
    let client = |(place, found): (RecordPlace, cluster::engine::KeyValue)| {
        let name = name(&place)?;
        // The reader of the tables reports a record that cannot be read.
        let homes = At::decode(&found.value).ok()?.homes.into_iter();
        let homes = homes.filter(|home| lives(living, home));
        let homes: Vec<_> = homes.map(|home| (home.node, Some(home.links))).collect();
        (!homes.is_empty()).then(|| ClusterClient { name, nodes: places(own, living, homes) })
    };
    ClusterClients { list: records.into_iter().filter_map(client).collect(), next }
}

/// The address of a service, as its record has it.
fn published(about: &str) -> Option<String> {
    about::decode(about).ok()?.services.first()?.public.first().cloned()
}

/// The subjects that a name fits, in groups of which the first that exists counts.
fn subjects(name: &str) -> Vec<Vec<AskedSubject>> {
    let mut groups = Vec::new();
    if let Ok(client) = ClientName::new(name) {
        groups.push(vec![(format!("client {name}"), Subject::Client(client))]);
    }
    if let Ok(port) = name.parse::<u16>() {
        let of = |scheme: &str, protocol| {
            let key = Key::Port(protocol, Class::Public, port);
            vec![(format!("{scheme}://:{port}"), Subject::Resource(key))]
        };
        groups.push(of("tcp", PortProtocol::Tcp));
        groups.push(of("udp", PortProtocol::Udp));
    }
    let host = name.to_ascii_lowercase();
    if !host.contains('.') && host != "*" {
        return groups;
    }
    for (kind, space) in [(Kind::Http, Space::Http), (Kind::Https, Space::Tls)] {
        let asked = |covering: std::borrow::Cow<'_, str>| {
            let key = Key::Host(space, (&*covering).into());
            (format!("{}://{covering}", kind.scheme()), Subject::Resource(key))
        };
        groups.push(node::names::candidates(&host).map(asked).collect());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_a_client_a_port_and_the_names_that_cover_a_host() {
        let said = |name: &str| -> Vec<Vec<String>> {
            let text = |group: Vec<AskedSubject>| group.into_iter().map(|(what, _)| what).collect();
            subjects(name).into_iter().map(text).collect()
        };
        assert_eq!(said("home"), [["client home"]]);
        assert_eq!(said("80"), [["client 80"], ["tcp://:80"], ["udp://:80"]]);
        let hosts = said("A.b.example");
        assert_eq!(hosts[0], ["client A.b.example"]);
        assert_eq!(
            hosts[1],
            ["http://a.b.example", "http://*.b.example", "http://*.example", "http://*"]
        );
        assert_eq!(hosts[2][0], "https://a.b.example");
        assert!(said("").is_empty());
    }
}
