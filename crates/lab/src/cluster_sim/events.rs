//! What happens when: a heap of small events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens. A node is named with the number of starts of its process: what is meant for a
/// former process is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimEvent {
    /// The request of this number arrives at the engine.
    AtEngine(u32),
    /// The engine has processed the request of this number.
    Processed(u32),
    /// The answer to the request of this number arrives at its node.
    Answer(u32),
    /// The answer to the request of this number counts as lost.
    GiveUp(u32),
    /// The watch of a node reports.
    Report(Process),
    /// The deadline of a node.
    Deadline(u16),
    /// The message of this number arrives.
    Message(Process, u32),
    /// A node gets a link to another node, or loses it.
    Link(Process, u16),
    /// A client tries to log in.
    LogIn(u32),
    /// A node has verified the log-in of a client.
    LoggedIn(u32, Process),
    /// The former session of a client at this node ends.
    FormerEnds(u32, u16),
    /// A client leaves its node for another node.
    Move(u32),
    /// The next visitor comes.
    Visitor,
    /// The visitor of this number asks its node where the client is.
    Seek(u32),
    /// The stream of the visitor of this number arrives at the owner.
    Opened(u32),
    /// The next client changes its network, or restarts.
    Churn,
    /// The leases whose time is up end.
    Expire,
    /// The largest backlog is looked at.
    Sample,
}

/// A process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) node: u16,
    pub(super) starts: u16,
}

/// An event with its time in microseconds. Of two events of one time the first one that was added
/// happens first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    order: u32,
    event: SimEvent,
}

/// All that will happen.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Due>>,
    order: u32,
    happened: u64,
}

impl Events {
    pub(super) fn add(&mut self, at: u64, event: SimEvent) {
        self.order = self.order.wrapping_add(1);
        self.heap.push(Reverse(Due { at, order: self.order, event }));
    }

    /// The next event that is due at this time.
    pub(super) fn next(&mut self, until: u64) -> Option<(u64, SimEvent)> {
        if self.heap.peek().is_none_or(|Reverse(due)| due.at > until) {
            return None;
        }
        let Reverse(Due { at, event, .. }) = self.heap.pop()?;
        self.happened += 1;
        Some((at, event))
    }

    /// The number of events that have happened.
    pub(super) const fn happened(&self) -> u64 {
        self.happened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_small_and_come_in_order() {
        assert!(size_of::<Due>() <= 24);
        let mut events = Events::default();
        for (at, event) in [(5, SimEvent::LogIn(1)), (3, SimEvent::Seek(2)), (5, SimEvent::Churn)] {
            events.add(at, event);
        }
        assert_eq!(events.next(4), Some((3, SimEvent::Seek(2))));
        assert_eq!(events.next(4), None);
        assert_eq!(events.next(9), Some((5, SimEvent::LogIn(1))));
        assert_eq!(events.next(9), Some((5, SimEvent::Churn)));
    }
}
