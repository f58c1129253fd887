//! What a session gives back when nothing happens: all but what it needs to go on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Session;

/// Without a packet for so long a session is at rest. Groups of sparse traffic stay open until then:
/// their parity protects what follows, and what was before.
const REST: Duration = Duration::from_secs(1);

impl Session {
    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.flight.packets.in_flight() == 0 && self.is_flushed() && self.datagrams_out.is_empty()
    }

    /// When the session gives its memory back; `None` when it has, or is not at rest.
    pub(super) fn rest_due(&self) -> Option<Instant> {
        self.active.filter(|_| self.is_at_rest()).map(|at| at + REST)
    }

    /// Gives back all that can be made again. A packet that is later than [`REST`] is refused, and
    /// of groups that were under way nothing is rebuilt.
    pub(super) fn rest(&mut self) {
        self.active = None;
        self.end_group();
        self.encoder.rest();
        self.outgoing.rest();
        self.incoming.rest();
        self.controller.rest();
        self.datagrams_out.rest();
        self.datagrams_in.rest();
        self.parts_in.rest();
        self.decoder.rest();
        self.rebuilt = Default::default();
        self.groups.rest();
        self.flight.rest();
        self.received.rest();
        self.replay.rest();
        self.body = Vec::new();
        self.parts_out = VecDeque::new();
        self.probes = VecDeque::new();
        self.lost = VecDeque::new();
    }
}
