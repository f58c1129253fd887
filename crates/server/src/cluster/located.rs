//! The answer of `tunnel where`: the subjects that a name fits, and the nodes at which each is.

use anyhow::ensure;
use cluster::names::{Class, ClientName, Key, NodeId, PortProtocol, Space};
use cluster::node::{Located, Subject};
use node::names::Kind;
use ops::cluster::{ClusterPlace, PlaceNode};

use super::ServerNode;
use crate::about;

/// A subject, and its text.
type NamedSubject = (String, Subject);

impl ServerNode {
    /// Where a client, the host of a service, or a port is. Asks the engine about what this node
    /// does not know.
    ///
    /// # Errors
    /// The cluster does not answer, and nothing is known.
    pub(crate) async fn locate(&self, name: &str) -> anyhow::Result<Vec<ClusterPlace>> {
        let (mut places, mut is_away) = (Vec::new(), false);
        for group in subjects(name) {
            // A name is looked for before the wildcards above it.
            for (what, subject) in group {
                let place = match self.cluster().find(subject).await {
                    Located::Here(_) => self.place(what, name.to_owned(), &[self.id().clone()]),
                    Located::There { record, .. } => {
                        let nodes: Vec<_> =
                            record.homes.into_iter().map(|home| home.node).collect();
                        self.place(what, name.to_owned(), &nodes)
                    }
                    Located::Held { record, .. } => {
                        let what = published(&record.about).unwrap_or(what);
                        let holders: Vec<_> =
                            record.holders().into_iter().map(|holder| holder.node).collect();
                        self.place(what, record.client.to_string(), &holders)
                    }
                    Located::Nowhere => continue,
                    Located::Away => {
                        is_away = true;
                        continue;
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

    fn place(&self, what: String, client: String, nodes: &[NodeId]) -> ClusterPlace {
        let living = self.cluster().nodes().borrow().clone();
        let node = |id: &NodeId| {
            let known = living.get(id);
            let zone = known.and_then(|node| Some(node.record.as_ref()?.zone.clone()));
            PlaceNode {
                name: id.to_string(),
                zone: zone.filter(|zone| !zone.is_empty()),
                here: id == self.id(),
                alive: known.is_some(),
            }
        };
        let mut nodes: Vec<_> = nodes.iter().map(node).collect();
        nodes.sort_by_key(|node| !node.here);
        ClusterPlace { what, client, nodes }
    }
}

/// The address of a service, as its record has it.
fn published(about: &str) -> Option<String> {
    about::decode(about).ok()?.services.first()?.public.first().cloned()
}

/// The subjects that a name fits, in groups of which the first that exists counts.
fn subjects(name: &str) -> Vec<Vec<NamedSubject>> {
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
            let text = |group: Vec<NamedSubject>| group.into_iter().map(|(what, _)| what).collect();
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
