//! Processes arriving packets.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::flight::Cargo;
use super::{Heard, Session};
use crate::Sn;
use crate::own::fec::{Load, Parity, Rebuilt};
use crate::own::wire::{
    Ack, Body, Content, PACKET_HEAD, PacketHead, PacketNumber, Part, Run, Segment,
};
use crate::stream::incoming::Arrival;
use crate::stream::outgoing::State;

/// Maximum delay of an acknowledgement of parity. The sender needs it to measure the loss, and to
/// decide about the covered shards one round trip later.
const PARITY_DELAY: Duration = Duration::from_millis(20);

impl Session {
    /// Reads a packet and decrypts it in place. `None`: the packet is not for this session, or had
    /// arrived before, or is malformed. It was counted and has no other effect. `is_congested`: a
    /// router has marked the packet as CE (RFC 3168).
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: &mut [u8],
        is_congested: bool,
    ) -> Option<Heard> {
        // A window counts segments, and its bytes are bounded by the size of packets.
        let is_long = datagram.len() > usize::from(self.config.longest());
        let Some(head) = PacketHead::decode(datagram).ok().filter(|_| !is_long) else {
            self.counters.refused += 1;
            return None;
        };
        if head.kind != self.config.kind || head.connection != self.config.connection.0 {
            self.counters.refused += 1;
            return None;
        }
        if !self.replay.is_new(head.number) {
            self.counters.replayed += 1;
            return None;
        }
        let is_newest = self.replay.is_newest(head.number);
        let (bytes, sealed) = datagram.split_at_mut_checked(PACKET_HEAD)?;
        let opened = self.keys.open(head.phase, head.number, bytes, sealed);
        let Some(content) = opened.ok().and_then(|length| sealed.get(..length)) else {
            self.counters.refused += 1;
            return None;
        };
        if !self.replay.take(head.number) {
            self.counters.replayed += 1;
            return None;
        }
        self.counters.packets_in += 1;
        self.heard = Some(now);
        self.active = Some(now);
        self.is_silent = false;
        let Ok(content) = Content::decode(content) else {
            self.counters.malformed += 1;
            return None;
        };
        if self.closing.is_over() {
            // Two ends that close at the same time would otherwise send close packets forever.
            if !matches!(content.body, Body::Close { .. }) {
                self.closing.heard(now);
            }
            return None;
        }
        if is_congested {
            self.counters.congested_in += 1;
            self.received.congested(now);
        }
        self.handle_content(now, head.number, &content);
        let answered = if let Body::Answer(bytes) = content.body { Some(bytes) } else { None };
        let is_challenge = matches!(content.body, Body::Challenge(_));
        Some(Heard { is_newest, is_challenge, answered })
    }

    fn handle_content(&mut self, now: Instant, number: PacketNumber, content: &Content<'_>) {
        if let Some(ack) = &content.ack {
            self.handle_ack(now, number, ack);
        }
        let wants = content.control.asks || content.body.is_acknowledged();
        let delay = if content.control.asks { Duration::ZERO } else { self.config.ack_delay };
        let una = self.incoming.next();
        let mut rebuilt = std::mem::take(&mut self.rebuilt);
        let is_kept = self.take_body(now, &content.body, &mut rebuilt);
        for (load, body) in rebuilt.iter() {
            self.counters.rebuilt += 1;
            match load {
                Load::Segments => _ = self.take(now, body, true),
                Load::Datagram => self.take_datagram(body),
            }
        }
        rebuilt.clear();
        self.rebuilt = rebuilt;
        // A packet without room in the window is not acknowledged, so that the peer sends its
        // content again.
        if !is_kept {
            return;
        }
        // A closed gap is acknowledged at once. The acknowledgement of parity is delayed until
        // another packet arrives, for a limited time.
        if self.incoming.next().since(una) > 1 {
            self.received.due_by(now);
        }
        if matches!(content.body, Body::Parity { .. }) && !content.control.asks {
            self.received.arrived(now, number, false, delay);
            self.received.due_by(now + PARITY_DELAY);
        } else {
            self.received.arrived(now, number, wants, delay);
        }
    }

    /// Processes the body of a packet. `false` if there was no room for it. Shards that can be
    /// rebuilt now are appended to `rebuilt`.
    fn take_body(&mut self, now: Instant, body: &Body<'_>, rebuilt: &mut Rebuilt) -> bool {
        match *body {
            Body::Empty | Body::Answer(_) | Body::Padding(_) => {}
            Body::Challenge(bytes) => self.answer = Some(bytes),
            Body::Close { code, reason } => self.closing.by_peer(code, reason),
            Body::Datagram(datagram) => self.take_datagram(datagram),
            Body::Segments(body) => return self.take(now, body, false),
            Body::Data(shard, Load::Segments, body) => {
                let is_kept = self.take(now, body, false);
                if is_kept {
                    self.decoder.data(shard, Load::Segments, body, rebuilt);
                }
                return is_kept;
            }
            Body::Data(shard, Load::Datagram, datagram) => {
                // The shard may have been rebuilt before.
                if self.decoder.data(shard, Load::Datagram, datagram, rebuilt) {
                    self.take_datagram(datagram);
                } else {
                    self.counters.datagrams_late += 1;
                }
            }
            Body::Parity { shard, k, is_final, parity } => {
                self.decoder.parity(Parity { shard, k, is_final }, parity, rebuilt);
            }
        }
        true
    }

    /// Buffers the segments of a body. Returns `false` if there was no room for a segment.
    fn take(&mut self, now: Instant, body: &[u8], is_rebuilt: bool) -> bool {
        let Ok(run) = Run::new(body) else {
            self.counters.malformed += 1;
            return true;
        };
        let mut fits = true;
        for segment in run {
            let Ok(segment) = segment else {
                self.counters.malformed += 1;
                break;
            };
            // No segment follows the end of a stream.
            if self.end.is_some_and(|end| end.is_before(segment.sn)) {
                self.counters.malformed += 1;
                break;
            }
            if let Some(part) = segment.part {
                fits &= self.take_part(now, part, &segment);
                continue;
            }
            match self.place(segment.sn, segment.fragments, segment.payload) {
                Arrival::New => {
                    self.counters.bytes_in += segment.payload.len() as u64;
                    if segment.is_fin {
                        self.end = Some(segment.sn);
                    }
                    if is_rebuilt {
                        self.received.rebuilt(now, segment.sn);
                    }
                }
                Arrival::Again => self.counters.repeated_in += 1,
                Arrival::Beyond => {
                    self.counters.beyond_in += 1;
                    fits = false;
                }
            }
        }
        fits
    }

    /// Buffers a part of a segment. Returns `false` if there was no room for it.
    fn take_part(&mut self, now: Instant, part: Part, segment: &Segment<'_>) -> bool {
        let sn = segment.sn;
        match self.incoming.looks(sn) {
            Arrival::New => {}
            Arrival::Again => {
                self.counters.repeated_in += 1;
                if !sn.is_before(self.incoming.next()) {
                    self.received.rebuilt(now, sn);
                }
                return true;
            }
            Arrival::Beyond => {
                self.counters.beyond_in += 1;
                return false;
            }
        }
        match self.parts_in.take(part, segment, self.incoming.next(), self.config.decode_memory) {
            None => return false,
            Some(false) => return true,
            Some(true) => {}
        }
        let whole = std::mem::take(self.parts_in.whole());
        let placed = self.place(sn, segment.fragments, &whole);
        if placed == Arrival::New {
            self.counters.bytes_in += whole.len() as u64;
            self.received.rebuilt(now, sn);
        }
        *self.parts_in.whole() = whole;
        placed != Arrival::Beyond
    }

    /// Buffers a segment if the limit of unread bytes of an unknown peer allows it.
    fn place(&mut self, sn: Sn, fragments: u8, payload: &[u8]) -> Arrival {
        // A window counts segments, and the segments of an unknown peer may be as long as packets.
        // The two halves have separate limits, so that a segment that closes a gap has room.
        let fits = self.incoming.unread(sn) + payload.len() <= self.config.unread / 2;
        if !fits && self.incoming.looks(sn) == Arrival::New {
            return Arrival::Beyond;
        }
        self.incoming.place(sn, fragments, payload)
    }

    fn handle_ack(&mut self, now: Instant, number: PacketNumber, ack: &Ack) {
        if number.0 >= self.told_by {
            self.told_by = number.0;
            self.peer_window = ack.window;
        }
        let congested = ack.congested.and_then(|marks| self.flight.congested(marks));
        let next = PacketNumber(self.flight.packets.next());
        let (mut progress, mut grows) = (false, false);
        let (mut newest, mut newest_at) = (None, now);
        let news = self.flight.news(ack.packets(next));
        for &(first, last) in &news {
            for number in (first.max(self.flight.packets.first())..=last).rev() {
                let Some(packet) = self.flight.packets.arrived(number, true) else { continue };
                progress = true;
                // A packet that was sent on another path is not a sample of this path.
                if number < self.path_begin {
                    self.done(packet.cargo);
                    continue;
                }
                self.policy.ended(false);
                if newest.is_none() {
                    newest = Some(number);
                    newest_at = packet.at;
                    if PacketNumber(number).low() == ack.largest {
                        let took = now.saturating_duration_since(packet.at);
                        self.flight.sample(took, ack.delay());
                    }
                }
                if let Cargo::Size(size) = packet.cargo {
                    grows |= self.mtu.probe_arrived(size);
                } else {
                    self.mtu.arrived(number, packet.bytes);
                }
                self.done(packet.cargo);
                let round_trip = self.flight.packets.rtt.smoothed();
                let what = (packet.at, u64::from(packet.bytes), packet.is_limited);
                self.controller.arrived(now, what, round_trip);
                self.counters.acked_bytes += what.1;
                self.counters.limited_bytes += if packet.is_limited { 0 } else { what.1 };
            }
        }
        let late = self.flight.late_ones(&news);
        self.flight.keep(news);
        if grows {
            self.resize();
        }
        for cargo in late {
            self.counters.spurious += 1;
            self.done(cargo);
        }
        self.done_before(ack.una);
        for (first, count) in ack.segments() {
            for at in 0..count.min(self.config.send_window.into()) {
                self.done_one(first.plus(at));
            }
        }
        self.outgoing.trim();
        if let Some(newest) = newest {
            self.keys.acknowledged(PacketNumber(newest));
        }
        if progress {
            self.flight.acknowledged(now);
            self.find_lost(now);
            if let (Some(marks), Some(newest)) = (congested, newest) {
                self.counters.congested_out += u64::from(marks);
                let next = self.flight.packets.next();
                self.controller.lost(now, (newest_at, 0), (newest, next));
            }
            let in_flight = self.flight.packets.in_flight();
            self.controller.batch_ends(now, in_flight, self.is_limited, newest);
        }
        self.give_up_overdue(now);
    }

    fn done(&mut self, cargo: Cargo) {
        if let Cargo::Segments(sequence) = cargo {
            for at in 0..sequence.count {
                self.done_one(sequence.first.plus(at.into()));
            }
        }
    }

    fn done_one(&mut self, sn: Sn) {
        if let Some(sent) = self.outgoing.sent(sn) {
            sent.state = State::Done;
            sent.payload = Bytes::new();
        }
    }

    fn done_before(&mut self, una: Sn) {
        // A peer cannot have a segment that was never sent.
        if !self.outgoing.next().is_before(una) {
            while self.outgoing.pop_before(una).is_some() {}
        }
    }
}
