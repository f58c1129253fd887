//! Releases the memory of an idle session, except for the state that it needs to continue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Session;

/// The time without packets after which a session counts as idle. Groups of sparse traffic stay
/// open until then, because their parity protects later data as well as earlier data.
const REST: Duration = Duration::from_secs(1);

impl Session {
    /// Whether no data is queued and no packet is in flight.
    pub(super) fn is_at_rest(&self) -> bool {
        self.flight.packets.in_flight() == 0 && self.is_flushed() && self.datagrams_out.is_empty()
    }

    /// The time at which the session releases its memory. `None` if it has done so, or is not idle.
    pub(super) fn rest_due(&self) -> Option<Instant> {
        self.active.filter(|_| self.is_at_rest()).map(|at| at + REST)
    }

    /// Releases all memory that can be allocated again. A packet that is later than [`REST`] is
    /// refused, and no shard of an open group is rebuilt.
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
