//! The cluster for people: where a client, a name or a port is, and the clients of all nodes.

use serde::{Deserialize, Serialize};

use crate::term::{Column, Drawn, Screen, Sheet, Table, count};

/// The most clients of a page, and the number without a `limit`.
pub const PAGE_CLIENTS: u32 = 200;

/// A client, or an address of a service, that the cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterPlace {
    /// The subject: `client home`, `http://app.example.com`, `tcp://:10000`.
    pub what: String,
    /// The client that has it.
    pub client: String,
    /// The nodes at which it is, the node that was asked first.
    pub nodes: Vec<PlaceNode>,
}

/// A node at which a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceNode {
    /// Its name.
    pub name: String,
    /// Its failure domain; absent without one, and where this node does not see the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether this is the node that was asked.
    pub here: bool,
    /// Whether the node that was asked sees it alive.
    pub alive: bool,
    /// The links that the client has there; absent for an address of a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
}

/// Which clients of a cluster are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedClients {
    /// What their names begin with.
    pub begins: String,
    /// The last client of the page before; empty: the page is the first.
    pub after: String,
    /// The most clients, [`PAGE_CLIENTS`] at most.
    pub limit: u32,
}

/// A page of the connected clients of a cluster, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterClients {
    /// The clients.
    pub list: Vec<ClusterClient>,
    /// The `after` of the next page; absent after the last page. A page with a next page may have
    /// fewer clients than were wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A client with a link to a node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterClient {
    /// Its name.
    pub name: String,
    /// The nodes at which it is, the node that was asked first.
    pub nodes: Vec<PlaceNode>,
}

impl ClusterClient {
    /// The names of its nodes.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }
}

/// The places as text.
pub fn render_places(places: &[ClusterPlace], screen: Screen) -> Drawn {
    let columns = vec![
        Column::new("what").text(),
        Column::new("client").text(),
        Column::new("node").text(),
        Column::new("zone").worth(40),
        Column::new("state").text(),
    ];
    let mut table = Table::new(columns);
    for ClusterPlace { what, client, nodes } in places {
        for PlaceNode { name, zone, here, alive, links: _ } in nodes {
            let state = match (here, alive) {
                (true, _) => "this node",
                (false, true) => "up",
                (false, false) => "not seen",
            };
            let zone = zone.clone().unwrap_or_else(|| "-".to_owned());
            table.row([what.clone(), client.clone(), name.clone(), zone, state.to_owned()]);
        }
    }
    let mut sheet = Sheet::new(screen);
    sheet.table(&table);
    sheet.finish()
}

/// A page of clients as text.
pub fn render_cluster_clients(clients: &ClusterClients, screen: Screen) -> Drawn {
    let ClusterClients { list, next } = clients;
    let mut sheet = Sheet::new(screen);
    if list.is_empty() {
        sheet.line("no client is connected");
    } else {
        let all = count(u64::try_from(list.len()).unwrap_or(u64::MAX), "client");
        sheet.line(format_args!("{all} of the cluster"));
        sheet.gap();
        sheet.table(&clients_table(list));
    }
    if let Some(next) = next {
        sheet.gap();
        sheet.line(format_args!("there may be more: --after {}", quoted(next)));
    }
    sheet.finish()
}

/// A text as one word of a command line.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    let is_word = text.chars().all(is_plain) && !text.is_empty();
    if is_word { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Clients with their nodes, a line for each node of a client.
pub(crate) fn clients_table(list: &[ClusterClient]) -> Table {
    let columns = vec![
        Column::new("client").text(),
        Column::new("node").text(),
        Column::new("zone").worth(40),
        Column::new("links"),
    ];
    let mut table = Table::new(columns);
    for ClusterClient { name, nodes } in list {
        for PlaceNode { name: node, zone, here: _, alive: _, links } in nodes {
            let zone = zone.clone().unwrap_or_else(|| "-".to_owned());
            let links = links.map_or_else(|| "-".to_owned(), |links| links.to_string());
            table.row([name.clone(), node.clone(), zone, links]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_clients_names_their_nodes_and_the_next_page() {
        let node = |name: &str, links| PlaceNode {
            name: name.into(),
            zone: Some("fra".into()),
            here: false,
            alive: true,
            links: Some(links),
        };
        let list = vec![
            ClusterClient { name: "home".into(), nodes: vec![node("fra1", 2), node("nyc1", 1)] },
            ClusterClient { name: "it's".into(), nodes: vec![node("fra1", 1)] },
        ];
        let page = ClusterClients { list, next: Some("it's".into()) };
        let expected = r"2 clients of the cluster

client  node  zone  links
home    fra1  fra   2
home    nyc1  fra   1
it's    fra1  fra   1

there may be more: --after 'it'\''s'
";
        assert_eq!(render_cluster_clients(&page, Screen::PLAIN).to_string(), expected);
        let none = render_cluster_clients(&ClusterClients::default(), Screen::PLAIN).to_string();
        assert_eq!(none, "no client is connected\n");
    }

    #[test]
    fn the_node_that_was_asked_is_told_from_the_others() {
        let node = |name: &str, here: bool, alive: bool| PlaceNode {
            name: name.into(),
            zone: alive.then(|| "fra".into()),
            here,
            alive,
            links: Some(1),
        };
        let places = [ClusterPlace {
            what: "client home".into(),
            client: "home".into(),
            nodes: vec![node("fra1", true, true), node("nyc1", false, false)],
        }];
        let text = render_places(&places, Screen::PLAIN);
        let expected = "\
what         client  node  zone  state
client home  home    fra1  fra   this node
client home  home    nyc1  -     not seen
";
        assert_eq!(text.to_string(), expected);
    }
}
