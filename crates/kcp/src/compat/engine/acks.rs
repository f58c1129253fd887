//! The acknowledgements that the peer needs, and when they have to leave.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Sn;
use crate::compat::wire::Millis;
use crate::stream::incoming::{Arrival, Incoming};

/// How often the acknowledgement of an early segment is sent again, with later ones. It is told once
/// only, unlike `una`: where it is lost, the segment is sent again for nothing.
const REPEATS: u8 = 2;

/// Slots of a ring that stay while nothing happens.
const LEAST: usize = 8;

/// An acknowledgement to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) sn: Sn,
    pub(super) timestamp: Millis,
}

#[derive(Debug, Default)]
pub(super) struct Acks {
    waiting: VecDeque<Ack>,
    /// Acknowledgements of early segments that were sent, and how often they are sent again.
    sent: VecDeque<(Ack, u8)>,
    /// The acknowledgements have to leave by then.
    due: Option<Instant>,
    /// Segments since the last acknowledgement left.
    unacknowledged: u32,
}

impl Acks {
    /// A PUSH has arrived, which goes to `incoming`. `delay` is how long its acknowledgement may
    /// wait.
    pub(super) fn push(
        &mut self,
        incoming: &mut Incoming,
        now: Instant,
        ack: Ack,
        (fragments, payload): (u8, &[u8]),
        delay: Duration,
    ) -> Arrival {
        let (next, had_gap) = (incoming.next(), incoming.has_gap());
        let arrival = incoming.place(ack.sn, fragments, payload);
        // What is beyond the window is not acknowledged, so that the peer sends it again.
        if arrival == Arrival::Beyond {
            return arrival;
        }
        // A peer that repeats a segment without end fills no queue: `una` acknowledges the rest.
        if self.waiting.len() < usize::from(incoming.window()) * 2 {
            self.waiting.push_back(ack);
        }
        self.unacknowledged += 1;
        // Every second segment is acknowledged at once, as TCP does (RFC 5681 section 4.2), and the
        // repair of a gap. A gap is told at once, so that the peer repairs it.
        let waits = incoming.next() != next && self.unacknowledged < 2 && !had_gap;
        let at = if waits { now + delay } else { now };
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
        arrival
    }

    /// The time by which acknowledgements have to leave.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The next acknowledgement that the peer needs; `una` tells the rest. The last of a batch is
    /// always sent, for its timestamp.
    pub(super) fn pop(&mut self, incoming: &Incoming) -> Option<Ack> {
        while let Some(ack) = self.waiting.pop_front() {
            let is_early = !ack.sn.is_before(incoming.next());
            if is_early || self.waiting.is_empty() {
                if self.waiting.is_empty() {
                    self.due = None;
                    self.unacknowledged = 0;
                }
                if is_early && self.sent.len() < usize::from(incoming.window()) {
                    self.sent.push_back((ack, REPEATS));
                }
                return Some(ack);
            }
        }
        None
    }

    /// How many acknowledgements [`pop_again`](Self::pop_again) has for a datagram.
    pub(super) fn again(&mut self, una: Sn) -> usize {
        while self.sent.front().is_some_and(|(ack, _)| ack.sn.is_before(una)) {
            self.sent.pop_front();
        }
        self.sent.len()
    }

    /// An acknowledgement that was sent and is sent again; `una` does not cover it yet.
    pub(super) fn pop_again(&mut self) -> Option<Ack> {
        let (ack, left) = self.sent.pop_front()?;
        if left > 1 {
            self.sent.push_back((ack, left - 1));
        }
        Some(ack)
    }

    /// Gives memory back. For an end that has acknowledged all and has no gap.
    pub(super) fn rest(&mut self) {
        self.waiting.shrink_to(LEAST);
        self.sent.clear();
        self.sent.shrink_to(LEAST);
    }
}
