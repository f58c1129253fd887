//! Messages to other nodes: each goes to the link to its node, if there is one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::names::NodeId;
use cluster::node::PeerMessage;
use cluster_node::PeerMail;
use tokio::sync::mpsc;

/// The most messages that wait for one link. A node says something each 3 s, and asks for a client
/// while the engine is away; what has no room gets lost, which the rules of the cluster expect.
const WAITING: usize = 256;

/// The links to other nodes, as far as they carry messages of the node. All clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeMail(Arc<Mutex<HashMap<NodeId, mpsc::Sender<PeerMessage>>>>);

impl NodeMail {
    fn links(&self) -> MutexGuard<'_, HashMap<NodeId, mpsc::Sender<PeerMessage>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The messages to a node, for the link to it. A later link replaces an earlier one, whose
    /// messages end. The caller tells the node of the link by `Cluster::link_up`.
    #[cfg_attr(not(test), expect(dead_code, reason = "node links take their messages here"))]
    pub(crate) fn attach(&self, node: NodeId) -> mpsc::Receiver<PeerMessage> {
        let (sender, messages) = mpsc::channel(WAITING);
        let mut links = self.links();
        // Links that have ended.
        links.retain(|_, link| !link.is_closed());
        links.insert(node, sender);
        messages
    }
}

impl PeerMail for NodeMail {
    fn send(&mut self, to: &NodeId, message: PeerMessage) {
        if let Some(link) = self.links().get(to) {
            // A message without room gets lost.
            let _ = link.try_send(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_the_latest_link_or_gets_lost() {
        let mail = NodeMail::default();
        let [a, b] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let status = |hears_engine| PeerMessage::Status { hears_engine };
        let mut sender = mail.clone();
        sender.send(&a, status(true));
        let mut first = mail.attach(a.clone());
        sender.send(&a, status(true));
        sender.send(&b, status(false));
        assert_eq!(first.try_recv(), Ok(status(true)));
        let mut second = mail.attach(a.clone());
        for _ in 0..2 * WAITING {
            sender.send(&a, status(false));
        }
        assert!(first.try_recv().is_err());
        let count = std::iter::from_fn(|| second.try_recv().ok()).count();
        assert_eq!(count, WAITING);
        drop(second);
        sender.send(&a, status(true));
        drop(mail.attach(b));
        assert_eq!(mail.links().len(), 1);
    }
}
