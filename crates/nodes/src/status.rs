//! What is shown of the links between nodes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::names::NodeId;
use node::session::{Session, Worker};

use crate::outgoing::Outgoings;
use crate::shared::NodeShared;

/// The links between this node and another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLinkStatus {
    /// This node can open streams to the other node.
    pub is_live: bool,
    /// The address in use, of the carrier of a link of this node.
    pub address: Option<String>,
    /// The transport of that carrier.
    pub transport: Option<&'static str>,
    /// The least round trip of the links of this node.
    pub round_trip: Option<Duration>,
    /// The number of links that this node has made.
    pub outgoing: usize,
    /// The number of links that the other node has made.
    pub incoming: usize,
    /// The number of streams over all these links.
    pub streams: usize,
    /// Received payload bytes over these links and those that have ended.
    pub received: u64,
    /// Sent payload bytes, likewise.
    pub sent: u64,
    /// Why this node has no link.
    pub trouble: Option<String>,
}

/// The sessions of another node.
#[derive(Clone)]
struct Sessions {
    outgoing: Option<Arc<Session>>,
    incoming: Option<Arc<Session>>,
}

/// What is shown of the links, by node.
pub(crate) async fn of(
    shared: &NodeShared,
    outgoings: &Outgoings,
) -> BTreeMap<NodeId, NodeLinkStatus> {
    let mut all: BTreeMap<NodeId, (Sessions, NodeLinkStatus)> = BTreeMap::new();
    for remote in outgoings.remotes() {
        let sessions = Sessions { outgoing: Some(Arc::clone(&remote.session)), incoming: None };
        let trouble = remote.trouble();
        let is_live = remote.session.live() > 0;
        let status = NodeLinkStatus { is_live, trouble, ..NodeLinkStatus::default() };
        all.insert(remote.node.clone(), (sessions, status));
    }
    for (node, session) in shared.incomings.sessions() {
        let none = Sessions { outgoing: None, incoming: None };
        let (sessions, _) = all.entry(node).or_insert_with(|| (none, NodeLinkStatus::default()));
        sessions.incoming = Some(session);
    }
    for (sessions, status) in all.values_mut() {
        for session in [&sessions.outgoing, &sessions.incoming].into_iter().flatten() {
            for worker in 0..session.workers() {
                let [received, sent, _] = session.past(worker);
                status.received += received;
                status.sent += sent;
            }
        }
    }
    for handle in shared.handles.iter() {
        let sessions: Vec<_> = all.values().map(|(sessions, _)| sessions.clone()).collect();
        let look = move |worker: &Rc<Worker>| {
            sessions.iter().map(|sessions| of_worker(worker, sessions)).collect::<Vec<_>>()
        };
        // A worker that has stopped has no links.
        let parts = handle.call(look).await.unwrap_or_default();
        for ((_, status), part) in all.values_mut().zip(parts) {
            status.add(part);
        }
    }
    all.into_iter().map(|(node, (_, status))| (node, status)).collect()
}

impl NodeLinkStatus {
    /// Adds the links of a worker.
    fn add(&mut self, part: Self) {
        if self.address.is_none() {
            (self.address, self.transport) = (part.address, part.transport);
        }
        let trips = [self.round_trip, part.round_trip];
        self.round_trip = trips.into_iter().flatten().min();
        self.outgoing += part.outgoing;
        self.incoming += part.incoming;
        self.streams += part.streams;
        self.received += part.received;
        self.sent += part.sent;
    }
}

/// The links of a worker with another node.
fn of_worker(worker: &Worker, sessions: &Sessions) -> NodeLinkStatus {
    let mut status = NodeLinkStatus::default();
    let Sessions { outgoing, incoming } = sessions;
    for (session, is_outgoing) in [(outgoing, true), (incoming, false)] {
        let Some(session) = session else { continue };
        worker.state.each_link_of(session.id, |_, link| {
            let (received, sent, _) = link.totals();
            status.received += received;
            status.sent += sent;
            status.streams += link.stream_count();
            if !is_outgoing {
                status.incoming += 1;
                return;
            }
            status.outgoing += 1;
            status.round_trip = [status.round_trip, link.round_trip()].into_iter().flatten().min();
            if let Some(peer) = link.active_peer() {
                status.address = Some(peer.address.to_string());
                status.transport = Some(peer.transport.name());
            }
        });
    }
    status
}
