//! Clients go downhill: a node that has clearly more links than the others lets clients go to
//! emptier nodes, in portions ([`cluster::balance`] has the numbers).
//!
//! ```text
//!   each minute: a portion of clients
//!     │  the nodes that a client may choose: its other homes, and the nodes below the mean
//!     ├────────────────► client: chooses a home in the place of this node
//!     │ 20 s
//!     └─ links that are still here ─► client: a successor of the link, at any node
//! ```
//!
//! A home that a client has added by itself moves by the first step alone. A link to the server
//! that the file of the client names, which may be a name of all nodes, moves by the second. The
//! other homes of the client stay: the nodes take turns, so that no two nodes ask one client in the
//! same minute. A client is asked once an hour at most, wherever its links lead then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::balance::{Downhill, LOOK, excess, is_below};
use cluster::names::{self, NodeId};
use cluster_node::LivingNodes;
use link::Link;
use node::session::{Session, Worker};
use proto::control::ControlMessage;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::{ServerNode, offer};
use crate::registry::Registry;

/// The time in which a client chooses another home, before its links are asked for successors.
const LEAVES: Duration = Duration::from_secs(20);

/// The least time between two questions to a client.
const AGAIN: Duration = Duration::from_secs(3_600);

/// The most clients that are remembered: 10 MB. Further clients are not asked.
const ASKED: usize = 100_000;

/// The clients that were asked to go, and when.
#[derive(Debug, Default)]
pub(super) struct AskedClients(HashMap<String, Instant>);

impl AskedClients {
    /// Whether a client may be asked now.
    fn may_ask(&self, client: &str) -> bool {
        self.0.get(client).is_none_or(|at| at.elapsed() >= AGAIN)
    }

    /// When a client was asked last.
    fn asked(&self, client: &str) -> Option<Instant> {
        self.0.get(client).copied()
    }

    /// A client is asked. False: there is no room.
    fn note(&mut self, client: &str) -> bool {
        if self.0.len() >= ASKED {
            self.0.retain(|_, at| at.elapsed() < AGAIN);
        }
        let has_room = self.0.len() < ASKED;
        if has_room {
            self.0.insert(client.to_owned(), Instant::now());
        }
        has_room
    }
}

/// The links of the nodes that take clients.
pub(super) struct NodeLoads {
    pub(super) own: u32,
    pub(super) others: BTreeMap<NodeId, u32>,
    pub(super) living: LivingNodes,
}

impl NodeLoads {
    /// What the records of the nodes say. `None`: this node does not take clients itself, or does
    /// not know the load of a node.
    fn of(node: &ServerNode, registry: &Registry) -> Option<Self> {
        let is_member = node.cluster().membership().borrow().is_leased;
        if !is_member || registry.is_leaving() || node.has_handed_over() {
            return None;
        }
        let living = Arc::clone(&node.cluster().nodes().borrow());
        let (mut own, mut others) = (None, BTreeMap::new());
        for (id, it) in living.iter() {
            let record = it.record.as_ref()?;
            if id == node.id() {
                own = Some(record.links);
            } else if !record.draining {
                others.insert(id.clone(), record.links);
            }
        }
        Some(Self { own: own?, others, living })
    }

    fn other_links(&self) -> Vec<u32> {
        self.others.values().copied().collect()
    }

    /// The nodes that may get clients: those below the mean.
    fn emptier(&self) -> Vec<NodeId> {
        let is_emptier = |(id, links): &(&NodeId, &u32)| {
            let rest = self.others.iter().filter(|(other, _)| other != id);
            let all: Vec<_> = rest.map(|(_, links)| *links).chain([self.own]).collect();
            is_below(**links, &all)
        };
        self.others.iter().filter(is_emptier).map(|(id, _)| id.clone()).collect()
    }
}

/// Lets clients go when this node has clearly more links than the others, until the node ends.
pub(crate) async fn follow(node: Arc<ServerNode>, registry: Arc<Registry>) {
    let (mut state, mut asked) = (Downhill::default(), AskedClients::default());
    let mut looks = interval_at(Instant::now() + LOOK, LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Some(mut loads) = NodeLoads::of(&node, &registry) else { continue };
        // The record of the node counts these links until their last streams end.
        loads.own = loads.own.saturating_sub(leaving(&registry).await);
        let portion = state.look(loads.own, &loads.other_links());
        if portion > 0 {
            let minute = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let minute = minute.unwrap_or_default().as_secs() / LOOK.as_secs();
            let count =
                let_go(&node, &registry, &loads, (portion, minute, LEAVES), &mut asked).await;
            if count > 0 {
                tracing::info!(
                    "{count} clients are asked to go to emptier nodes: this node has {} links",
                    loads.own
                );
            }
        }
    }
}

/// Asks clients with about this number of links to go, and waits until they have gone or were asked
/// for successors of their links. Returns the number of these clients.
pub(super) async fn let_go(
    node: &ServerNode,
    registry: &Registry,
    loads: &NodeLoads,
    (portion, minute, leaves): (u32, u64, Duration),
    asked: &mut AskedClients,
) -> usize {
    let emptier = loads.emptier();
    if emptier.is_empty() {
        return 0;
    }
    let size = |links: u32| usize::try_from(links).unwrap_or(usize::MAX);
    let (mut left, mut room) = (size(portion), size(excess(loads.own, &loads.other_links())));
    let (mut offers, mut serials) = (BTreeMap::new(), BTreeSet::new());
    let mut count = 0;
    for (client, links) in in_order(links_of_clients(registry).await, asked) {
        if left == 0 {
            break;
        }
        let is_due = has_turn(&client, node.id(), &loads.living, minute);
        // A client with many links would leave this node below the mean.
        if !is_due || !asked.may_ask(&client) || links.len() > room {
            continue;
        }
        // Without an answer of the directory the client might lose its other home. Others would
        // wait for an answer in vain as well.
        let Some(homes) = node.homes_of(&client).await else { break };
        let mut homes: Vec<_> = homes.into_iter().map(|home| home.node).collect();
        if !homes.contains(node.id()) {
            // Its record is not written yet.
            continue;
        }
        if !asked.note(&client) {
            break;
        }
        // A home that asks its clients to go is none that stays.
        homes.retain(|home| loads.others.contains_key(home));
        if emptier.iter().all(|id| homes.contains(id)) {
            // The client has nowhere to go: it is at each of these nodes already.
            continue;
        }
        let nth = offer::turn_of(&client);
        if let Some(offer) = offer::beside(&emptier, &homes, &loads.living, nth) {
            let message = ControlMessage::Homes(offer);
            offers.extend(links.iter().map(|serial| (*serial, message.clone())));
        }
        left = left.saturating_sub(links.len());
        room = room.saturating_sub(links.len());
        count += 1;
        serials.extend(links);
    }
    tell(registry, offers).await;
    sleep(leaves).await;
    retire(registry, serials).await;
    count
}

/// Clients in the order in which they are asked: those that were not asked for the longest time
/// first, because others may be unable to go.
fn in_order(clients: BTreeMap<String, Vec<u64>>, asked: &AskedClients) -> Vec<(String, Vec<u64>)> {
    let mut clients: Vec<_> = clients.into_iter().collect();
    clients.sort_by_key(|(client, _)| asked.asked(client));
    clients
}

/// The links of clients that are in use, by the names of the clients.
async fn links_of_clients(registry: &Registry) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for handle in registry.handles() {
        let links = handle.call(|worker: &Rc<Worker>| {
            let links = worker.state.all_links().into_iter();
            let is_used = |(session, link): &(Arc<Session>, Link)| {
                !session.is_of_node() && !link.is_going_away()
            };
            let named =
                |(session, link): (Arc<Session>, Link)| (session.name.clone(), link.serial());
            links.filter(is_used).map(named).collect::<Vec<_>>()
        });
        // A worker that has stopped has no links.
        for (client, serial) in links.await.unwrap_or_default() {
            all.entry(client).or_default().push(serial);
        }
    }
    all
}

/// The number of links of clients that end with their last stream. Their clients have gone, and
/// nobody else has to go in their place.
async fn leaving(registry: &Registry) -> u32 {
    let mut all = 0_u32;
    for handle in registry.handles() {
        let count = handle.call(|worker: &Rc<Worker>| {
            let links = worker.state.all_links().into_iter();
            links.filter(|(session, link)| !session.is_of_node() && link.is_going_away()).count()
        });
        // A worker that has stopped has no links.
        let count = count.await.unwrap_or_default();
        all = all.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }
    all
}

/// Sends each link its message.
async fn tell(registry: &Registry, offers: BTreeMap<u64, ControlMessage>) {
    let offers = Arc::new(offers);
    for handle in registry.handles() {
        let offers = Arc::clone(&offers);
        let send = move |worker: &Rc<Worker>| {
            for (_, link) in worker.state.all_links() {
                if let Some(message) = offers.get(&link.serial()) {
                    // A link that cannot take the message ends.
                    let _ = link.send_message(message);
                }
            }
        };
        let _ = handle.call(send).await;
    }
}

/// Asks for successors of the links that are still there.
async fn retire(registry: &Registry, serials: BTreeSet<u64>) {
    let serials = Arc::new(serials);
    for handle in registry.handles() {
        let serials = Arc::clone(&serials);
        let ask = move |worker: &Rc<Worker>| {
            let links = worker.state.all_links().into_iter().map(|(_, link)| link);
            let left = links.filter(|link| serials.contains(&link.serial()));
            left.filter(|link| !link.is_going_away()).for_each(|link| link.go_away());
        };
        let _ = handle.call(ask).await;
    }
}

/// Whether it is the turn of this node to ask a client: each minute another node has the turn.
fn has_turn(client: &str, own: &NodeId, living: &LivingNodes, minute: u64) -> bool {
    let count = u64::try_from(living.len()).unwrap_or(u64::MAX);
    let place = living.keys().position(|id| id == own);
    let place = place.and_then(|place| u64::try_from(place).ok());
    let hash = names::hashed(client.bytes());
    place.is_some() && hash.wrapping_add(minute).checked_rem(count) == place
}

#[cfg(test)]
mod tests {
    use cluster::names::NodeEpoch;
    use cluster_node::LivingNode;

    use super::*;

    fn id(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    #[test]
    fn one_node_has_the_turn_for_a_client_in_each_minute() {
        let node = LivingNode { epoch: NodeEpoch(1), record: None };
        let living: BTreeMap<_, _> =
            ["a", "b", "c"].into_iter().map(|name| (id(name), node.clone())).collect();
        let living = Arc::new(living);
        for client in ["home", "office", "x"] {
            let mut had = BTreeSet::new();
            for minute in 0..3 {
                let nodes = ["a", "b", "c"].into_iter();
                let turn: Vec<_> =
                    nodes.filter(|name| has_turn(client, &id(name), &living, minute)).collect();
                assert_eq!(turn.len(), 1, "{client}: {turn:?}");
                had.extend(turn);
            }
            assert_eq!(had.len(), 3, "{client}");
        }
        assert!(!has_turn("home", &id("d"), &living, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_asked_once_an_hour() {
        let mut asked = AskedClients::default();
        assert!(asked.may_ask("home") && asked.note("home"));
        tokio::time::advance(AGAIN / 2).await;
        assert!(!asked.may_ask("home") && asked.may_ask("office"));
        tokio::time::advance(AGAIN / 2).await;
        assert!(asked.may_ask("home"));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_were_not_asked_for_long_come_first() {
        let mut asked = AskedClients::default();
        for client in ["b", "a"] {
            assert!(asked.note(client));
            tokio::time::advance(AGAIN).await;
        }
        let clients = ["a", "b", "c"].map(|client| (client.to_owned(), vec![1])).into();
        let order: Vec<_> = in_order(clients, &asked).into_iter().map(|(it, _)| it).collect();
        assert_eq!(order, ["c", "b", "a"], "the clients that cannot go are not asked for ever");
    }
}
