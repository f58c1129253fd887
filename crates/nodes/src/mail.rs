//! Messages that wait for the link to their node. The cluster never waits for a link: a message
//! without room, or to a node without a link, is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cluster::names::NodeId;
use cluster::node::PeerMessage;
use cluster::wire;
use cluster_node::PeerMail;
use tokio::sync::Notify;

use crate::lock::lock;

/// The most messages that wait for one node. A node asks each other node for a client that it does
/// not know while the engine is away.
const MESSAGES: usize = 1024;

/// The most bytes that wait for one node: 32 of the longest messages.
const BYTES: usize = 32 * wire::MESSAGE_BYTES;

const _: () = assert!(wire::MESSAGE_BYTES == proto::control::NODE_MAX, "one bound, two names");

/// The way of messages from the cluster to the links. Clones are the same way.
#[derive(Clone, Debug, Default)]
pub struct Mail(Arc<Mutex<HashMap<NodeId, Arc<Mailbox>>>>);

impl PeerMail for Mail {
    fn send(&mut self, to: &NodeId, message: PeerMessage) {
        let Some(mailbox) = lock(&self.0).get(to).cloned() else { return };
        match wire::encode(message) {
            Ok(bytes) => {
                if !mailbox.put(bytes.into()) {
                    tracing::debug!(node = %to, "a message to node {to} has no room");
                }
            }
            Err(error) => tracing::warn!(node = %to, "a message to node {to} is not sent: {error}"),
        }
    }
}

impl Mail {
    /// Opens the mailbox of a node.
    pub(crate) fn open(&self, node: &NodeId) -> Arc<Mailbox> {
        Arc::clone(lock(&self.0).entry(node.clone()).or_default())
    }

    /// Forgets the mailbox of a node that is gone.
    pub(crate) fn close(&self, node: &NodeId) {
        lock(&self.0).remove(node);
    }
}

/// The messages to one node.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<WaitingMail>,
    /// Notified when there is a message.
    pub(crate) arrived: Notify,
}

#[derive(Debug, Default)]
struct WaitingMail {
    messages: VecDeque<Bytes>,
    bytes: usize,
}

impl Mailbox {
    /// Adds a message. False: there is no room.
    fn put(&self, message: Bytes) -> bool {
        let mut waiting = lock(&self.waiting);
        let bytes = waiting.bytes + message.len();
        if waiting.messages.len() >= MESSAGES || bytes > BYTES {
            return false;
        }
        waiting.bytes = bytes;
        waiting.messages.push_back(message);
        drop(waiting);
        self.arrived.notify_one();
        true
    }

    /// Takes the oldest message.
    pub(crate) fn take(&self) -> Option<Bytes> {
        let mut waiting = lock(&self.waiting);
        let message = waiting.messages.pop_front()?;
        waiting.bytes -= message.len();
        Some(message)
    }

    /// Returns a message that a link could not take.
    pub(crate) fn put_back(&self, message: Bytes) {
        let mut waiting = lock(&self.waiting);
        waiting.bytes += message.len();
        waiting.messages.push_front(message);
    }

    /// Forgets all messages: those to a node that had no link are out of date.
    pub(crate) fn clear(&self) {
        *lock(&self.waiting) = WaitingMail::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    #[test]
    fn messages_wait_in_order_and_those_without_room_or_mailbox_are_dropped() {
        let (mut mail, status) =
            (Mail::default(), |hears_engine| PeerMessage::Status { hears_engine });
        mail.send(&node("b"), status(true));
        let mailbox = mail.open(&node("b"));
        assert_eq!(mailbox.take(), None, "there was no mailbox");
        for n in 0..=MESSAGES {
            mail.send(&node("b"), status(n == 0));
        }
        let taken: Vec<_> = std::iter::from_fn(|| mailbox.take()).collect();
        assert_eq!(taken.len(), MESSAGES);
        let read: Vec<_> = taken.iter().map(|bytes| wire::decode(bytes).unwrap()).collect();
        assert_eq!(read[..2], [status(true), status(false)]);
        assert_eq!(lock(&mailbox.waiting).bytes, 0);
    }

    #[test]
    fn the_bytes_of_a_mailbox_are_bounded_whatever_is_put_back() {
        let mailbox = Mailbox::default();
        let long = Bytes::from(vec![0; wire::MESSAGE_BYTES]);
        let taken = (0..100).filter(|_| mailbox.put(long.clone())).count();
        assert_eq!(taken, 32);
        let first = mailbox.take().unwrap();
        assert!(mailbox.put(long));
        mailbox.put_back(first);
        assert!(!mailbox.put(Bytes::from_static(b"x")));
        mailbox.clear();
        assert_eq!((mailbox.take(), lock(&mailbox.waiting).bytes), (None, 0));
    }
}
