//! What the server has to do because other nodes have done something.

use cluster::names::{ClientName, Generation, Instance, Key};
use cluster::node::NodeEvent;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The most events that wait for the server: two for each of the most claims of a node. A server
/// that has so many before it does not work any more, and its node leaves the cluster.
pub const EVENTS: usize = 2 * cluster::node::CLAIMS;

/// The most events that wait while a report is added. Reports are in the log as well.
const REPORTED: usize = 1_024;

/// Something that the server has to do. Events come in the order in which they happened; the answer
/// to a claim comes on another way, so an event may name a claim whose answer the server has not
/// handled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// Another owner has the resource of this claim: its entrance has to close.
    Lost {
        /// The resource.
        key: Key,
        /// The claim.
        generation: Generation,
    },
    /// A claim has a new number, because the node has a new epoch. A release may name either.
    Renumbered {
        /// The resource.
        key: Key,
        /// The former number.
        former: Generation,
        /// The new number.
        generation: Generation,
    },
    /// Another process of the client is in charge: all links of this process to this node have to
    /// end.
    Kick {
        /// The client.
        client: ClientName,
        /// The process that yields.
        instance: Instance,
    },
    /// A client has lost its rights, or has them again.
    Revoked {
        /// The client.
        client: ClientName,
        /// The client has no rights.
        is_revoked: bool,
    },
    /// Something that a person should know. The crate has logged the line.
    Report {
        /// What happened.
        event: NodeEvent,
        /// The same in words.
        line: String,
    },
}

/// The events for the server.
#[derive(Debug)]
pub struct ServerEvents(mpsc::Receiver<ServerEvent>);

impl ServerEvents {
    /// Waits for the next event. `None`: the node has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<ServerEvent> {
        self.0.recv().await
    }
}

/// The server does not take its events any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

/// The near end of [`ServerEvents`].
#[derive(Debug)]
pub(crate) struct EventSender(mpsc::Sender<ServerEvent>);

impl EventSender {
    /// A queue with room for this number of events.
    pub(crate) fn new(room: usize) -> (Self, ServerEvents) {
        let (sender, receiver) = mpsc::channel(room);
        (Self(sender), ServerEvents(receiver))
    }

    /// Queues an event. A server that has dropped its end wants none.
    pub(crate) fn send(&self, event: ServerEvent) -> Result<(), Overflow> {
        match self.0.try_send(event) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(Overflow),
        }
    }

    /// Queues a report, unless many events wait.
    pub(crate) fn report(&self, event: NodeEvent, line: String) {
        if self.0.max_capacity() - self.0.capacity() < REPORTED {
            let _ = self.0.try_send(ServerEvent::Report { event, line });
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::names::NodeEpoch;

    use super::*;

    fn kick(instance: u64) -> ServerEvent {
        let client = ClientName::new("c").unwrap();
        ServerEvent::Kick { client, instance: Instance(instance) }
    }

    #[tokio::test]
    async fn no_event_is_dropped_for_want_of_room_without_a_word() {
        let (sender, mut events) = EventSender::new(2);
        assert_eq!(sender.send(kick(1)), Ok(()));
        assert_eq!(sender.send(kick(2)), Ok(()));
        assert_eq!(sender.send(kick(3)), Err(Overflow));
        assert_eq!(events.next().await, Some(kick(1)));
        assert_eq!(sender.send(kick(3)), Ok(()));
        assert_eq!(events.next().await, Some(kick(2)));
        drop(events);
        assert_eq!(sender.send(kick(4)), Ok(()));
    }

    #[tokio::test]
    async fn reports_leave_room_for_what_the_server_has_to_do() {
        let (sender, mut events) = EventSender::new(EVENTS);
        for _ in 0..REPORTED + 10 {
            sender.report(NodeEvent::Joined(NodeEpoch(1)), "joined".to_owned());
        }
        sender.send(kick(1)).unwrap();
        drop(sender);
        let (mut reports, mut kicks) = (0, 0);
        while let Some(event) = events.next().await {
            reports += usize::from(matches!(event, ServerEvent::Report { .. }));
            kicks += usize::from(event == kick(1));
        }
        assert_eq!((reports, kicks), (REPORTED, 1));
    }
}
