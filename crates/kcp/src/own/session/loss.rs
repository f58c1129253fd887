//! Detects lost packets, decides what is retransmitted, and sends probes when nothing arrives.

use std::time::{Duration, Instant};

use super::Session;
use super::flight::{Cargo, Packet};
use super::groups::Sequence;
use crate::stream::outgoing::{Outgoing, State};

/// The additional time for parity beyond a round trip: an eighth of the round trip, and the delay
/// of timers.
const PATIENCE: Duration = Duration::from_millis(10);

impl Session {
    /// Handles a probe timeout. The oldest and the newest segment are retransmitted, or at least a
    /// ping is sent. The acknowledgement shows which other packets are lost.
    pub(super) fn probe(&mut self, now: Instant) {
        self.counters.probes += 1;
        if self.flight.packets.probed() {
            self.controller.path_is_void(now);
            self.is_ect = false;
            while let Some((number, packet)) = self.flight.packets.pop_any() {
                self.give_up(number, &packet);
            }
        }
        self.probes.clear();
        // If the path no longer carries large packets, only the small probe is answered.
        self.ping |= self.mtu.is_grown();
        if let Some((oldest, newest)) = self.outgoing.ends() {
            let one = |first| Sequence { first, count: 1, shard: None };
            self.probes.push_back(one(oldest));
            if oldest != newest {
                self.probes.push_back(one(newest));
            }
        } else {
            self.ping = true;
        }
    }

    /// Declares packets lost.
    pub(super) fn find_lost(&mut self, now: Instant) {
        let (mut bytes, mut newest, mut sent) = (0, 0, now);
        let mut is_hole = false;
        while let Some((number, packet)) = self.flight.pop_lost(now) {
            if number >= self.path_begin && !matches!(packet.cargo, Cargo::Size(_)) {
                let next = self.flight.packets.next();
                is_hole |= self.mtu.lost((number, next), packet.bytes);
                bytes += u64::from(packet.bytes);
                (newest, sent) = (number, packet.at);
                self.policy.ended(true);
            }
            self.give_up(number, &packet);
        }
        if is_hole {
            self.counters.black_holes += 1;
            self.resize();
        }
        if bytes > 0 {
            let next = self.flight.packets.next();
            self.controller.lost(now, (sent, bytes), (newest, next));
        }
    }

    /// Handles a lost packet. Its content must be retransmitted, or parity rebuilds it.
    pub(super) fn give_up(&mut self, number: u64, packet: &Packet) {
        if !matches!(packet.cargo, Cargo::Nothing | Cargo::Other | Cargo::Size(_)) {
            self.counters.lost += 1;
            self.counters.lost_bytes += u64::from(packet.bytes);
        }
        match packet.cargo {
            Cargo::Nothing | Cargo::Other => {}
            Cargo::Size(size) => self.mtu.probe_lost(size),
            Cargo::Part(piece) => {
                self.parts_out.push_back(piece);
            }
            Cargo::Datagram(shard) => {
                if let Some(shard) = shard {
                    self.groups.datagram_lost(shard);
                }
            }
            Cargo::Parity(shard) => {
                let outgoing = &mut self.outgoing;
                let again = self.groups.parity_lost(shard, is_done(outgoing));
                self.lost.extend(again);
            }
            Cargo::Segments(sequence) => {
                let mut needed = false;
                for at in 0..sequence.count {
                    if let Some(sent) = self.outgoing.sent(sequence.first.plus(at.into()))
                        && sent.state == State::Flying
                        && sent.transmission == number
                    {
                        sent.state = State::Lost;
                        needed = true;
                    }
                }
                if !needed {
                    return;
                }
                if self.groups.data_lost(sequence) {
                    self.counters.left_to_parity += 1;
                } else {
                    self.lost.push_back(sequence);
                }
            }
        }
    }

    /// Applies a new size of packets.
    pub(super) fn resize(&mut self) {
        let size = self.mtu.size();
        let shrinks = size < self.config.datagram;
        self.config.datagram = size;
        let tag = self.keys.tag();
        self.outgoing.set_payload(self.config.payload(tag));
        self.encoder.set_longest(self.config.body(tag));
        if shrinks {
            // The parity of the open group may not fit.
            self.end_group();
        }
        self.controller.resized(size);
    }

    /// Retransmits the shards that parity should have rebuilt and has not rebuilt.
    pub(super) fn give_up_overdue(&mut self, now: Instant) {
        let wait = self.patience();
        let again = self.groups.overdue(now, wait, is_done(&self.outgoing));
        self.counters.overdue += again.len() as u64;
        self.lost.extend(again);
    }

    /// The time for parity to rebuild a shard before the shard is retransmitted.
    pub(super) fn patience(&self) -> Duration {
        let longer = self.flight.packets.rtt.longer();
        longer + longer / 8 + PATIENCE + self.config.ack_delay
    }

    pub(super) fn probe_due(&self) -> Option<Instant> {
        self.flight.packets.probe_due(self.config.ack_delay, self.config.least_timeout)
    }
}

/// Returns whether the peer has all segments of a sequence.
fn is_done(outgoing: &Outgoing) -> impl Fn(&Sequence) -> bool + '_ {
    |sequence| {
        (0..sequence.count).all(|at| {
            let sent = outgoing.get(sequence.first.plus(at.into()));
            sent.is_none_or(|sent| sent.state == State::Done)
        })
    }
}
