//! The acknowledgements that the peer needs, and the time by which they have to be sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::Millis;
use kcp::Sn;
use kcp::stream::incoming::{Arrival, Incoming};

/// How often the acknowledgement of an early segment is repeated together with later
/// acknowledgements. Unlike `una`, it would otherwise be sent once. If it is lost, the peer sends
/// the segment again without need.
const REPEATS: u8 = 2;

/// The number of slots of a ring that are kept at rest.
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
    /// Sent acknowledgements of early segments, and the number of their repetitions.
    sent: VecDeque<(Ack, u8)>,
    /// The time by which the acknowledgements have to be sent.
    due: Option<Instant>,
    /// The number of segments since the last acknowledgement was sent.
    unacknowledged: u32,
}

impl Acks {
    /// A PUSH has arrived, which is passed to `incoming`. `delay` is the longest delay of its
    /// acknowledgement.
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
        // A segment beyond the window is not acknowledged, so that the peer sends it again.
        if arrival == Arrival::Beyond {
            return arrival;
        }
        // The bound keeps a peer that repeats a segment from filling the queue. `una` acknowledges
        // the other copies.
        if self.waiting.len() < usize::from(incoming.window()) * 2 {
            self.waiting.push_back(ack);
        }
        self.unacknowledged += 1;
        // Every second segment is acknowledged at once, as TCP does (RFC 5681 section 4.2). A gap
        // and its repair are acknowledged at once as well, so that the peer repairs the gap.
        let waits = incoming.next() != next && self.unacknowledged < 2 && !had_gap;
        let at = if waits { now + delay } else { now };
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
        arrival
    }

    /// The time by which acknowledgements have to be sent.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The next acknowledgement that the peer needs. `una` covers the others. The last
    /// acknowledgement of a batch is always sent, because of its timestamp.
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

    /// The number of acknowledgements that [`pop_again`](Self::pop_again) has for a datagram.
    pub(super) fn again(&mut self, una: Sn) -> usize {
        while self.sent.front().is_some_and(|(ack, _)| ack.sn.is_before(una)) {
            self.sent.pop_front();
        }
        self.sent.len()
    }

    /// An acknowledgement to repeat. `una` does not cover it yet.
    pub(super) fn pop_again(&mut self) -> Option<Ack> {
        let (ack, left) = self.sent.pop_front()?;
        if left > 1 {
            self.sent.push_back((ack, left - 1));
        }
        Some(ack)
    }

    /// Releases memory. The caller has acknowledged all segments and has no gap.
    pub(super) fn rest(&mut self) {
        self.waiting.shrink_to(LEAST);
        self.sent.clear();
        self.sent.shrink_to(LEAST);
    }
}
