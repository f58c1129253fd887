//! Carries the messages of the cluster to another node, over a link of the first worker.

use std::rc::Rc;
use std::time::Duration;

use node::session::{Session, Worker};
use proto::control::ControlMessage;
use tokio::time::sleep;

use crate::mail::Mailbox;

/// The pause after a message that found no link or no room. A link that waits for its next carrier
/// has it within milliseconds or after seconds.
const AGAIN: Duration = Duration::from_millis(50);

/// Carries messages. Never returns.
pub(super) async fn carry(worker: Rc<Worker>, session: &Session, mailbox: &Mailbox) {
    loop {
        let arrived = mailbox.arrived.notified();
        let Some(message) = mailbox.take() else {
            arrived.await;
            continue;
        };
        let link = worker.state.live_link(session);
        let is_sent =
            link.is_some_and(|link| link.send_message(&ControlMessage::Node(message.clone())));
        if !is_sent {
            mailbox.put_back(message);
            sleep(AGAIN).await;
        }
    }
}
