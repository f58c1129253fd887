//! The homes of a client of a cluster: the further nodes with which it has links, so that its
//! services stay reachable when a node dies.
//!
//! A node says over each link which nodes there are, and how many homes a client should have
//! (`proto::control::Homes`). A client with one server in its configuration, which stands for the
//! cluster, adds such nodes as servers, each with the settings of the path to its server. Where
//! the links to the configured server reach several nodes already, as behind a balancer, nothing is
//! added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::{ClientConfig, Endpoint, Path, ServerPaths, Trust};
use proto::control::{HOME_NODES_MAX, HomeNode, Homes};
use tokio::sync::Notify;
use tokio::time::sleep;

/// The time for which the links of a client settle before its homes change.
const SETTLE: Duration = Duration::from_millis(500);

/// The time in which a link that was lost comes back, before another home takes its place.
const LOST: Duration = Duration::from_secs(5);

/// What a client knows about its homes.
#[derive(Debug, Default)]
pub(crate) struct HomesKnown {
    state: Mutex<HomesState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct HomesState {
    /// The latest message of a node.
    offer: Homes,
    /// The node of each link to the configured server.
    at: BTreeMap<u64, String>,
    /// The server of each link to a server that was added.
    homes: BTreeMap<u64, String>,
    /// The servers that were added.
    open: Vec<ServerPaths>,
    /// Whether a link was lost since the last look.
    has_lost: bool,
}

impl HomesKnown {
    fn state(&self) -> MutexGuard<'_, HomesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node at the other end of a link of this server has sent a message.
    pub(crate) fn note(&self, server: &str, link: u64, offer: Homes) {
        let mut state = self.state();
        // A home that is removed keeps its links until their last streams end.
        let is_home =
            state.homes.contains_key(&link) || state.open.iter().any(|home| home.label() == server);
        if is_home {
            state.homes.insert(link, server.to_owned());
        } else if let Some(node) = offer.nodes.first().map(|node| node.name.clone()) {
            // The first message of a link begins with the node at its other end. A later message
            // leaves the node out if the client should choose another.
            state.at.entry(link).or_insert(node);
        }
        state.offer = offer;
        drop(state);
        self.changed.notify_one();
    }

    /// A link has ended.
    pub(crate) fn forget(&self, link: u64) {
        let mut state = self.state();
        let was_home = state.homes.remove(&link).is_some();
        // A message with room for all nodes says by itself which homes are gone.
        let is_full = state.offer.nodes.len() >= HOME_NODES_MAX;
        if state.at.remove(&link).is_some() || (was_home && is_full) {
            state.has_lost = true;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Whether a link to the configured server reaches this node, too.
    pub(crate) fn is_reached(&self, node: &str) -> bool {
        self.state().at.values().any(|at| at == node)
    }

    /// Looks at the homes again: the configuration has changed.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// The configuration with the servers that were added as homes, if it may have any. It may be
    /// that of the file, or a change of the configuration in force.
    pub(crate) fn with_open(&self, mut config: ClientConfig) -> ClientConfig {
        config.servers = self.configured(&config);
        if most(&config) > 1 {
            config.servers.extend(self.state().open.iter().cloned());
        }
        config
    }

    /// The servers of a configuration without those that were added as homes.
    pub(crate) fn configured(&self, config: &ClientConfig) -> Vec<ServerPaths> {
        let state = self.state();
        config.servers.iter().filter(|server| !state.open.contains(server)).cloned().collect()
    }

    /// These servers are in use as homes now.
    pub(crate) fn set_open(&self, homes: Vec<ServerPaths>) {
        self.state().open = homes;
    }

    /// The servers that are in use as homes.
    pub(crate) fn open(&self) -> Vec<ServerPaths> {
        self.state().open.clone()
    }
}

/// The most homes of a client: 1 where its file does not leave the choice of servers to a cluster.
fn most(config: &ClientConfig) -> usize {
    let names_one = config.finds_servers().is_none() && config.servers.len() == 1;
    if !names_one || config.policy.is_single() {
        return 1;
    }
    config.homes.map_or(usize::MAX, std::num::NonZeroUsize::get)
}

/// The nodes to have as homes, beside the nodes that the links to the configured server reach:
/// those that are homes already, then nodes of other zones.
fn choose<'a>(
    offer: &'a Homes,
    at: &BTreeSet<&str>,
    open: &[String],
    wanted: usize,
) -> Vec<&'a HomeNode> {
    // A node that is not named asks its clients to go. A message may not have room for all nodes.
    let is_full = offer.nodes.len() >= HOME_NODES_MAX;
    let stays = |name: &&&str| is_full || offer.nodes.iter().any(|node| node.name == ***name);
    let more = wanted.saturating_sub(at.iter().filter(stays).count());
    let is_free = |node: &&HomeNode| !at.contains(&*node.name) && !node.addresses.is_empty();
    let free: Vec<_> = offer.nodes.iter().filter(is_free).collect();
    let mut chosen: Vec<_> =
        free.iter().copied().filter(|node| open.contains(&node.name)).take(more).collect();
    let zone_of = |name: &&str| {
        let known = offer.nodes.iter().find(|node| node.name == **name);
        known.map(|node| &*node.zone).filter(|zone| !zone.is_empty())
    };
    let mut zones: BTreeSet<&str> = at.iter().filter_map(zone_of).collect();
    zones.extend(chosen.iter().map(|node| &*node.zone));
    while chosen.len() < more {
        let is_left = |node: &&&HomeNode| chosen.iter().all(|other| other.name != node.name);
        let mut left = free.iter().filter(is_left);
        let elsewhere = left.clone().find(|node| !zones.contains(&*node.zone));
        let Some(next) = elsewhere.or_else(|| left.next()).copied() else { break };
        zones.insert(&next.zone);
        chosen.push(next);
    }
    chosen
}

/// The homes in use that a message without room for all nodes has left out: those with a link stay.
fn unnamed(state: &HomesState, at: &BTreeSet<&str>, wanted: usize) -> Vec<ServerPaths> {
    if state.offer.nodes.len() < HOME_NODES_MAX {
        return Vec::new();
    }
    let stays = |home: &&ServerPaths| {
        let label = home.label();
        let is_named = state.offer.nodes.iter().any(|node| node.name == label);
        let has_link = || state.homes.values().any(|server| *server == label);
        !is_named && !at.contains(&*label) && has_link()
    };
    let more = wanted.saturating_sub(at.len());
    state.open.iter().filter(stays).take(more).cloned().collect()
}

/// The server that a node is, with the settings of the paths of the configured server. `None`: no
/// address of the node can be dialled with these settings.
fn server(node: &HomeNode, configured: &ServerPaths) -> Option<ServerPaths> {
    let path = |url: &String| {
        let endpoint: Endpoint = url.parse().ok()?;
        // A pin is that of one server, and a detour leads through another.
        let is_alike = |path: &&Path| {
            path.endpoint.scheme.tls == endpoint.scheme.tls
                && path.via.is_none()
                && !matches!(path.trust, Trust::Pins(_))
        };
        let like = configured.paths.iter().find(is_alike)?.clone();
        Some(Path { endpoint, sni: None, ..like })
    };
    let paths: Vec<_> = node.addresses.iter().filter_map(path).collect();
    let (name, token) = (Some(node.name.clone()), configured.token.clone());
    (!paths.is_empty()).then_some(ServerPaths { name, token, paths })
}

/// The servers to have as homes now. `None`: no node has said anything yet.
fn wanted(known: &HomesKnown, config: &ClientConfig) -> Option<Vec<ServerPaths>> {
    let own = known.configured(config);
    let [configured] = &own[..] else { return None };
    let state = known.state();
    let offer = &state.offer;
    if offer.nodes.is_empty() {
        return None;
    }
    let open: Vec<_> = state.open.iter().map(ServerPaths::label).collect();
    let file = ClientConfig { servers: own.clone(), ..config.clone() };
    let count = match (most(&file), config.homes) {
        (1, _) => return Some(Vec::new()),
        (most, Some(_)) => most,
        (_, None) => offer.wanted.into(),
    };
    let at: BTreeSet<&str> = state.at.values().map(String::as_str).collect();
    let label = configured.label();
    let mut homes = unnamed(&state, &at, count);
    let nodes = choose(offer, &at, &open, count.saturating_sub(homes.len())).into_iter();
    let nodes = nodes.filter(|node| node.name != label);
    homes.extend(nodes.filter_map(|node| server(node, configured)));
    // Each message has an order of its own, and the homes in use keep theirs.
    let place = |home: &ServerPaths| open.iter().position(|open| *open == home.label());
    homes.sort_by_key(|home| place(home).unwrap_or(usize::MAX));
    Some(homes)
}

/// Hands the servers to have as homes, beside those of the configuration in force, to `apply`,
/// until the client ends.
pub(crate) async fn follow(
    known: Arc<HomesKnown>,
    config: impl Fn() -> Arc<ClientConfig>,
    apply: impl AsyncFn(Vec<ServerPaths>),
) {
    loop {
        known.changed.notified().await;
        sleep(SETTLE).await;
        if std::mem::take(&mut known.state().has_lost) {
            sleep(LOST).await;
        }
        if let Some(homes) = wanted(&known, &config()) {
            apply(homes).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, zone: &str) -> HomeNode {
        let addresses = vec![format!("tls://{name}.example:7000")];
        HomeNode { name: name.into(), zone: zone.into(), addresses }
    }

    fn chosen(at: &[&str], open: &[&str], wanted: usize) -> Vec<String> {
        let nodes = vec![
            node("fra1", "fra"),
            node("fra2", "fra"),
            node("nyc1", "nyc"),
            HomeNode { addresses: Vec::new(), ..node("sin1", "sin") },
            node("lon1", "lon"),
        ];
        let offer = Homes { wanted: 2, nodes };
        let open: Vec<_> = open.iter().map(|name| (*name).to_owned()).collect();
        let at = at.iter().copied().collect();
        choose(&offer, &at, &open, wanted).into_iter().map(|node| node.name.clone()).collect()
    }

    #[test]
    fn the_second_home_is_in_another_zone_and_stays() {
        assert_eq!(chosen(&["fra1"], &[], 2), ["nyc1"]);
        assert_eq!(chosen(&["fra1"], &["lon1"], 2), ["lon1"]);
        assert_eq!(chosen(&["fra1"], &["gone"], 2), ["nyc1"]);
        assert_eq!(chosen(&["fra1"], &["fra1"], 2), ["nyc1"], "the home is no second one");
        assert_eq!(chosen(&["fra1"], &[], 4), ["nyc1", "lon1", "fra2"]);
        assert_eq!(chosen(&["fra1"], &[], 9).len(), 3);
    }

    #[test]
    fn links_behind_a_balancer_may_reach_enough_nodes() {
        assert!(chosen(&["fra1", "nyc1"], &["lon1"], 2).is_empty());
        assert!(chosen(&["fra1"], &["nyc1"], 1).is_empty());
        // The configured server asks its clients to go: the other home stays, and its place is
        // taken.
        assert_eq!(chosen(&["gone"], &["nyc1"], 1), ["nyc1"]);
        assert_eq!(chosen(&["gone"], &["nyc1"], 2), ["nyc1", "fra1"]);
        // The configured server is away: its place is taken.
        assert_eq!(chosen(&[], &["nyc1"], 2), ["nyc1", "fra1"]);
    }

    #[test]
    fn a_node_that_leaves_itself_out_is_still_that_of_its_link() {
        let known = HomesKnown::default();
        let nodes = vec![node("fra1", "fra"), node("nyc1", "nyc"), node("lon1", "lon")];
        known.note("configured", 7, Homes { wanted: 2, nodes: nodes.clone() });
        known.note("configured", 7, Homes { wanted: 2, nodes: nodes[1..].to_vec() });
        let state = known.state();
        assert_eq!(state.at.get(&7).map(String::as_str), Some("fra1"));
        let at = state.at.values().map(String::as_str).collect();
        // The other home stays, and the place of the node is taken.
        let open = ["nyc1".to_owned()];
        let chosen: Vec<_> = choose(&state.offer, &at, &open, 2).into_iter().collect();
        assert_eq!(chosen.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["nyc1", "lon1"]);
    }

    fn config(text: &str) -> ClientConfig {
        let text = format!(
            "servers: {text}\nname: home\ntoken: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\n"
        );
        let text = config::Text { name: "client.yaml", text: &text };
        let (env, read) = (|_: &str| None, |_: &std::path::Path| Err("no files".to_owned()));
        let sources = config::Sources { env: &env, read: &read };
        let flags = config::ClientFlags::default();
        config::load_client(Some(text), &flags, &sources).unwrap().config
    }

    fn configured(text: &str) -> ServerPaths {
        config(text).servers.remove(0)
    }

    #[test]
    fn a_home_with_a_link_stays_where_a_message_has_no_room_for_it() {
        let (known, config) = (HomesKnown::default(), config("tls://a.example"));
        let nodes = |numbers: std::ops::Range<usize>| Homes {
            wanted: 2,
            nodes: numbers.map(|n| node(&format!("n{n}"), "")).collect(),
        };
        let labels = || {
            let homes = wanted(&known, &config).unwrap();
            homes.iter().map(ServerPaths::label).collect::<Vec<_>>()
        };
        known.note("a.example", 1, nodes(0..HOME_NODES_MAX));
        known.set_open(wanted(&known, &config).unwrap());
        assert_eq!(labels(), ["n1"]);
        // Another link has a message with other nodes.
        known.note("n1", 2, nodes(20..20 + HOME_NODES_MAX));
        assert_eq!(labels(), ["n1"]);
        // A message with room for all nodes leaves out a node that the client should leave.
        known.note("n1", 2, nodes(20..25));
        assert_eq!(labels(), ["n20", "n21"]);
        known.note("n1", 2, nodes(20..20 + HOME_NODES_MAX));
        // The home is gone, and one of the nodes with room takes its place.
        known.forget(2);
        assert_eq!(labels(), ["n20"]);
    }

    #[test]
    fn a_node_is_dialled_as_the_configured_server_is() {
        let fra = node("fra1", "fra");
        let of = |text| server(&fra, &configured(text));
        let own = of("{ url: 'wss://a.example', tls: { ca: c } }").unwrap();
        assert_eq!(own.label(), "fra1");
        assert_eq!(own.paths[0].endpoint.to_string(), "tls://fra1.example:7000");
        assert_eq!(own.paths[0].trust, Trust::Ca("c".into()));
        // A client that speaks TLS to its server speaks it to each of its homes.
        assert_eq!(of("'tcp://127.0.0.1:7000'"), None);
        let plain = HomeNode { addresses: vec!["tcp://192.0.2.1:7000".into()], ..fra.clone() };
        assert_eq!(server(&plain, &configured("tls://a.example")), None);
        let pin = format!("sha256:{}=", "A".repeat(43));
        assert_eq!(of(&format!("{{ url: 'tls://a.example', tls: {{ pin: '{pin}' }} }}")), None);
    }
}
