//! Questions to other nodes, each over a stream of its own.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cluster::names::NodeId;
use node::session::Worker;
use proto::control::MESSAGE_MAX;
use proto::greeting::Name;
use proto::{NodeQuestion, Open, Priority, Target};
use relay::open_duplex;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::FarServices;
use super::ground::FarGround;
use crate::shared_clients::TellsNodes;

/// The time for an answer: a round trip between two nodes, and a lock at the other node.
const ANSWER: Duration = Duration::from_secs(1);

impl FarGround {
    /// Asks another node. `None`: it gives no answer.
    pub(super) async fn ask(&self, node: &NodeId, question: NodeQuestion) -> Option<Bytes> {
        let session = self.nodes.session(node)?;
        let worker = self.registry.handles().get(session.live_worker(0)?)?;
        let ask = move |worker: Rc<Worker>| async move {
            let link = worker.state.live_link(&session)?;
            let (target, priority) = (Target::Ask(question), Priority::Interactive);
            let open = Open { target, visitor: None, priority, fields: None };
            let stream = open_duplex(&link, open, &Rc::default(), None).ok()?;
            let (mut answer, limit) = (Vec::new(), u64::try_from(MESSAGE_MAX).ok()?);
            stream.take(limit).read_to_end(&mut answer).await.ok()?;
            Some(Bytes::from(answer))
        };
        timeout(ANSWER, worker.task(ask)).await.ok()?.ok()?
    }
}

impl TellsNodes for FarServices {
    fn tell(&self, client: &Name) {
        for node in self.ground.places.others() {
            let (ground, client) = (std::sync::Arc::clone(&self.ground), client.clone());
            self.runtime.spawn(async move {
                if ground.ask(&node, NodeQuestion::Changed(client.clone())).await.is_none() {
                    tracing::debug!(%node, %client, "the node reads the client later");
                }
            });
        }
    }
}
