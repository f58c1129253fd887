//! The cluster for people: where a client, a name or a port is, and the clients of all nodes.

use std::collections::BTreeMap;

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

/// The most values that a step of a change of the secret names.
pub const UNOPENED_MAX: usize = 8;

/// What a step of a change of the secret has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RekeyStep {
    /// The values that were read.
    pub read: u32,
    /// The values that were sealed anew.
    pub sealed: u32,
    /// The values that another node has written or removed meanwhile.
    pub changed: u32,
    /// The values that no secret of the node opens.
    pub unopened: u32,
    /// The first of these, at most 8: `cert/app.example.com`.
    pub names: Vec<String>,
    /// The `after` of the next step; absent after the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The secrets of the nodes that lived during the step, compared with that of the node that was
    /// asked. A node whose secret has changed meanwhile has the worse of the two.
    pub nodes: Vec<RekeyNode>,
}

/// The secret of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RekeyNode {
    /// The name of the node.
    pub name: String,
    /// The secret by which it seals.
    pub seals: SealsWith,
}

/// The secret by which a node seals, the worst case last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealsWith {
    /// The first secret of the node that was asked, which is the only secret of the node.
    New,
    /// The first secret of the node that was asked. The node opens what another has sealed too.
    NewOfTwo,
    /// The node has no secret, or does not say.
    #[default]
    Unknown,
    /// Another secret. The node opens what the first secret of the node that was asked has sealed.
    Former,
    /// Another secret, and the node cannot open what the node that was asked seals.
    Unreadable,
}

/// The nodes of two moments of a run, each with the worse of its states. A node that has changed
/// its secret meanwhile, or has left, may have sealed a value that was read before.
#[must_use]
pub fn worst_of(earlier: Vec<RekeyNode>, later: Vec<RekeyNode>) -> Vec<RekeyNode> {
    let mut worst = BTreeMap::new();
    for RekeyNode { name, seals } in earlier.into_iter().chain(later) {
        let known = worst.entry(name).or_insert(seals);
        *known = seals.max(*known);
    }
    worst.into_iter().map(|(name, seals)| RekeyNode { name, seals }).collect()
}

impl RekeyStep {
    /// Adds a later step.
    pub fn add(&mut self, later: Self) {
        let Self { read, sealed, changed, unopened, names, next, nodes } = later;
        self.read = self.read.saturating_add(read);
        self.sealed = self.sealed.saturating_add(sealed);
        self.changed = self.changed.saturating_add(changed);
        self.unopened = self.unopened.saturating_add(unopened);
        self.names.extend(names);
        self.names.truncate(UNOPENED_MAX);
        self.next = next;
        self.nodes = worst_of(std::mem::take(&mut self.nodes), nodes);
    }

    /// Why a former secret is needed still, after the last step; empty: it is not.
    pub fn needs_former(&self) -> Vec<String> {
        let of = |wanted: SealsWith| {
            let names = self.nodes.iter().filter(move |node| node.seals == wanted);
            names.map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let mut why = Vec::new();
        for (nodes, text) in [
            (
                of(SealsWith::Former),
                "they seal with another secret, or did in this run: make the new one their first",
            ),
            (of(SealsWith::Unreadable), "they do not have the new secret"),
            (of(SealsWith::Unknown), "they have no secret, or do not say which"),
        ] {
            if !nodes.is_empty() {
                why.push(format!("nodes {nodes}: {text}"));
            }
        }
        if self.unopened > 0 {
            let (count, names) = (self.unopened, self.names.join(", "));
            why.push(format!("values that no secret of this node opens: {count} ({names})"));
        }
        why
    }
}

/// The result of all steps as text.
pub fn render_rekey(all: &RekeyStep, screen: Screen) -> Drawn {
    let RekeyStep { read, sealed, changed, .. } = all;
    let mut sheet = Sheet::new(screen);
    let meanwhile = if *changed == 0 {
        String::new()
    } else {
        format!(", {changed} changed by other nodes meanwhile")
    };
    sheet.line(format_args!(
        "{}, {sealed} sealed anew{meanwhile}",
        count((*read).into(), "sealed value")
    ));
    let why = all.needs_former();
    if why.is_empty() {
        sheet.line("nothing is sealed with a former secret: it can be removed from all nodes");
    } else {
        sheet.line("the former secret is still needed, so keep it and repeat this command:");
        why.iter().for_each(|why| sheet.line(format_args!("  {why}")));
    }
    sheet.finish()
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
    fn a_former_secret_can_be_removed_when_no_node_and_no_value_needs_it() {
        let node = |name: &str, seals| RekeyNode { name: name.into(), seals };
        let mut all = RekeyStep::default();
        let nodes = vec![node("a", SealsWith::NewOfTwo), node("b", SealsWith::New)];
        let step = RekeyStep { read: 512, sealed: 500, next: Some("cert/a".into()), ..all.clone() };
        all.add(step);
        all.add(RekeyStep {
            read: 8,
            sealed: 1,
            changed: 2,
            nodes: nodes.clone(),
            ..RekeyStep::default()
        });
        let text = render_rekey(&all, Screen::PLAIN).to_string();
        let expected = "\
520 sealed values, 501 sealed anew, 2 changed by other nodes meanwhile
nothing is sealed with a former secret: it can be removed from all nodes
";
        assert_eq!(text, expected);

        let others = [SealsWith::Former, SealsWith::Former, SealsWith::Unknown];
        let others = others.into_iter().zip(["c", "d", "e"]).map(|(seals, name)| node(name, seals));
        let step = RekeyStep {
            read: 1,
            unopened: 1,
            names: vec!["cert/x.example".into()],
            nodes: nodes.into_iter().chain(others).collect(),
            ..RekeyStep::default()
        };
        let expected = "\
1 sealed value, 0 sealed anew
the former secret is still needed, so keep it and repeat this command:
  nodes c, d: they seal with another secret, or did in this run: make the new one their first
  nodes e: they have no secret, or do not say which
  values that no secret of this node opens: 1 (cert/x.example)
";
        assert_eq!(render_rekey(&step, Screen::PLAIN).to_string(), expected);
    }

    #[test]
    fn a_step_in_which_a_node_sealed_with_the_former_secret_counts_to_the_end_of_the_run() {
        let node = |name: &str, seals| RekeyNode { name: name.into(), seals };
        let step = |nodes, next: Option<&str>| RekeyStep {
            nodes,
            next: next.map(str::to_owned),
            ..RekeyStep::default()
        };
        let mut all = RekeyStep::default();
        let (former, new) = (SealsWith::Former, SealsWith::NewOfTwo);
        let unknown = SealsWith::Unknown;
        all.add(step(vec![node("a", new), node("b", former), node("c", former)], Some("cert/a")));
        // Node b was restarted with the new secret, node c has left, and node d has come.
        all.add(step(vec![node("a", new), node("b", new), node("d", unknown)], Some("cert/b")));
        all.add(step(vec![node("a", new), node("b", new), node("d", new)], None));
        let worst = [node("a", new), node("b", former), node("c", former), node("d", unknown)];
        assert_eq!((all.next.as_deref(), &all.nodes[..]), (None, &worst[..]));
        assert_eq!(
            all.needs_former(),
            [
                "nodes b, c: they seal with another secret, or did in this run: make the new one \
                 their first",
                "nodes d: they have no secret, or do not say which",
            ]
        );
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
