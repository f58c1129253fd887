//! Where a client, a name or a port is in a cluster: the answer of `tunnel where`.

use serde::{Deserialize, Serialize};

use crate::term::{Column, Drawn, Screen, Sheet, Table};

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
        for PlaceNode { name, zone, here, alive } in nodes {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_that_was_asked_is_told_from_the_others() {
        let node = |name: &str, here: bool, alive: bool| PlaceNode {
            name: name.into(),
            zone: alive.then(|| "fra".into()),
            here,
            alive,
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
