//! Carriers of clients whose links other nodes have: the nodes of the client are asked one after
//! the other, each by a stream that becomes the carrier if the node has the link.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use cluster::names::{ClientName, NodeId};
use cluster::node::{Located, Subject};
use link::server::OtherEnd;
use node::session::{Session, Worker};
use proto::greeting::GREETING_MAX;
use proto::{NodeQuestion, Open, Priority, Target};
use relay::{StreamLane, open_duplex};
use tokio::time::{sleep, timeout};
use transport::Lane as _;

use super::FarServices;
use super::ground::FarGround;
use crate::strays::{CarrierSlot, Finding, FindsLinks, StrayCarrier};

/// The poll interval for the silence of a node.
const LOOK: Duration = Duration::from_millis(250);

/// The time for the first bytes of an answer: a round trip between two nodes, and the check of a
/// greeting. The whole greeting has 10 s.
const ANSWER: Duration = Duration::from_secs(3);

impl FindsLinks for FarServices {
    fn find(&self, stray: StrayCarrier, slot: CarrierSlot) -> Finding<'_> {
        Box::pin(async move {
            let OtherLane { mut lane, answer } = self.ground.find_link(&stray).await?;
            lane = lane.accompanied(Box::new(slot));
            Some(OtherEnd { lane: Box::new(lane), answer })
        })
    }
}

/// The stream to the node with a link, and the first bytes of its answer.
struct OtherLane {
    lane: StreamLane,
    answer: BytesMut,
}

impl FarGround {
    async fn find_link(&self, stray: &StrayCarrier) -> Option<OtherLane> {
        let client = Subject::Client(ClientName::new(stray.client.as_str()).ok()?);
        let generation = match self.places.find(client.clone()).await {
            Located::There { generation, record, .. } => {
                let homes = record.homes.iter().rev().map(|home| &home.node);
                if let Some(other) = self.ask_homes(homes, stray).await {
                    return Some(other);
                }
                generation
            }
            // The client has links here as well, and this node is not told of its other nodes. Or
            // nobody knows them. The client is authenticated, and a cluster has few nodes.
            Located::Here(_) | Located::Away => {
                return self.ask_homes(self.places.others().iter(), stray).await;
            }
            Located::Nowhere | Located::Held { .. } => return None,
        };
        // The record may be older than the link.
        self.places.refused(client.clone(), generation);
        match self.places.find(client).await {
            Located::There { generation: now, record, .. } if now != generation => {
                let homes = record.homes.iter().rev().map(|home| &home.node);
                self.ask_homes(homes, stray).await
            }
            Located::There { .. }
            | Located::Here(_)
            | Located::Nowhere
            | Located::Held { .. }
            | Located::Away => None,
        }
    }

    async fn ask_homes(
        &self,
        homes: impl Iterator<Item = &NodeId> + Send,
        stray: &StrayCarrier,
    ) -> Option<OtherLane> {
        for home in homes.filter(|home| **home != self.node) {
            if let Some(other) = self.ask_home(home, stray).await {
                let (client, node) = (stray.client.as_str(), home);
                tracing::info!(
                    client, %node,
                    "client {client} reached this node, and its connection goes on to node {node}"
                );
                return Some(other);
            }
        }
        None
    }

    async fn ask_home(&self, node: &NodeId, stray: &StrayCarrier) -> Option<OtherLane> {
        let session = self.nodes.session(node)?;
        let silent = is_silent(Arc::clone(&session));
        let worker = self.registry.handles().get(session.live_worker(stray.worker)?)?;
        let StrayCarrier { client, link, address, .. } = stray;
        let (client, link, address) = (client.clone(), *link, *address);
        let open = move |worker: &Rc<Worker>| {
            let node_link = worker.state.live_link(&session)?;
            let target = Target::Ask(NodeQuestion::Carrier { client, link });
            let (visitor, priority) = (Some(address), Priority::Normal);
            let open = Open { target, visitor, priority, fields: None };
            let stream = open_duplex(&node_link, open, &Rc::default(), None).ok()?;
            Some(StreamLane::new(stream))
        };
        let asked = async {
            let mut lane = worker.call(open).await.ok()??;
            let mut said = VecDeque::from([stray.said.clone()]);
            while !said.is_empty() {
                poll_fn(|cx| lane.poll_write(cx, &mut said)).await.ok()?;
            }
            let mut answer = BytesMut::with_capacity(GREETING_MAX);
            // A node without the link resets the stream.
            let read = poll_fn(|cx| lane.poll_read(cx, &mut answer)).await.ok()?;
            (read > 0).then_some(OtherLane { lane, answer })
        };
        let either = async {
            tokio::select! {
                other = asked => other,
                () = silent => None,
            }
        };
        timeout(ANSWER, either).await.ok()?
    }
}

/// Waits until a node owes answers, as after its death. Its client then begins a new link soon.
async fn is_silent(session: Arc<Session>) {
    loop {
        sleep(LOOK).await;
        if !session.answers() {
            return;
        }
    }
}
