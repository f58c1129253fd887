//! Builds the next packet to send.

use std::time::Instant;

use bytes::Bytes;

use super::flight::Cargo;
use super::groups::Sequence;
use super::parts::Piece;
use super::paths::Signal;
use super::protect::BULK;
use super::{PathUse, Session, Transmit};
use crate::own::wire::{
    Ack, Body, Content, Control, PACKET_HEAD, PARITY_HEAD, PART_HEAD, PacketHead, PacketNumber,
    RUN_HEAD, SEGMENT_HEAD, SHARD_HEAD,
};
use crate::stream::outgoing::State;

/// After this number of successive packets that need no acknowledgement, a packet requests one. So
/// an end that only receives learns that the peer has its keys (RFC 9000 section 13.2.4 does the
/// same for ranges).
const ASK_AFTER: u32 = 128;

/// Maximum length of a segment header, in bytes.
pub(super) const SEGMENT_MOST: usize = SEGMENT_HEAD + 1 + 2;

/// The content of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Signal(Signal),
    Ping,
    Probe(Sequence),
    Again(Sequence),
    Part(Piece),
    Size(u16),
    Parity,
    Datagram,
    Fresh,
}

impl Session {
    /// Appends the next packet to `out`. Returns `None` and leaves `out` unchanged if nothing may
    /// be sent now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.closing.is_over() {
            return self.transmit_close(now, out);
        }
        if self.is_silent {
            return None;
        }
        if let Some((signal, path)) = self.signal() {
            let length = self.put(now, Next::Signal(signal), None, out)?;
            return Some(Transmit { length, path, is_ect: self.is_ect });
        }
        let has_to_send = self.has_fresh() || self.outgoing.outstanding() > 0;
        self.ping |= self.window_probe.asks(now, self.peer_window == 0 && has_to_send);
        if self.incoming.tells_window() {
            self.received.due_by(now);
        }
        let (next, length) = self.next(now);
        let is_due = self.received.due().is_some_and(|due| due <= now);
        if next == Next::Nothing && !is_due {
            return None;
        }
        let room = self.config.content(self.keys.tag()).saturating_sub(1);
        // An acknowledgement that is not due is included if there is room for the longest
        // acknowledgement.
        let goes_along = self.received.due().is_some() && length + Ack::LONGEST <= room;
        let ack = if is_due || goes_along {
            let (una, window) = (self.incoming.next(), self.incoming.room());
            self.received.acknowledge(now, una, window)
        } else {
            None
        };
        let alone = is_due && length + Ack::LONGEST > room;
        let next = if alone { self.postpone(next) } else { next };
        let length = self.put(now, next, ack.as_ref(), out)?;
        Some(Transmit { length, path: PathUse::Current, is_ect: self.is_ect })
    }

    /// Postpones the content, because the acknowledgement is sent alone.
    fn postpone(&mut self, next: Next) -> Next {
        if let Next::Again(sequence) = next {
            self.lost.push_front(sequence);
        }
        Next::Nothing
    }

    /// The content of the next packet, and its maximum size. The content may be sent now.
    fn next(&mut self, now: Instant) -> (Next, usize) {
        self.paced = None;
        if self.ping {
            return (Next::Ping, 0);
        }
        while let Some(probe) = self.probes.front().copied() {
            if let Some(length) = self.length(&probe).filter(|_| self.fits(&probe)) {
                return (Next::Probe(probe), length);
            }
            // A packet that requests an acknowledgement has the same effect.
            self.probes.pop_front();
            self.ping = true;
        }
        if self.ping {
            return (Next::Ping, 0);
        }
        let limit = self.datagram_limit();
        while let Some(length) = self.datagrams_out.front().map(Bytes::len) {
            if length <= limit {
                return self.next_datagram(now, length);
            }
            self.datagrams_out.pop();
            self.counters.datagrams_dropped += 1;
        }
        if let Some(size) = self.next_size(now) {
            return (Next::Size(size), self.config.content(self.keys.tag()));
        }
        if let Some(piece) = self.next_part() {
            let length = RUN_HEAD + SEGMENT_MOST + PART_HEAD + usize::from(piece.length);
            let may = self.may_send(now, length);
            return if may { (Next::Part(piece), length) } else { (Next::Nothing, 0) };
        }
        while let Some(sequence) = self.lost.front().copied() {
            if let Some((part, rest)) = self.part(sequence) {
                if !self.fits(&part) {
                    self.lost.pop_front();
                    if let Some(rest) = rest {
                        self.lost.push_front(rest);
                    }
                    self.split(part);
                    return self.next(now);
                }
                let length = self.length(&part).unwrap_or(0);
                if !self.may_send(now, length) {
                    return (Next::Nothing, 0);
                }
                self.lost.pop_front();
                if let Some(rest) = rest {
                    self.lost.push_front(rest);
                }
                return (Next::Again(part), length);
            }
            self.lost.pop_front();
        }
        if self.owed > 0 {
            return self.next_parity(now);
        }
        self.next_fresh(now)
    }

    /// The size of a probe if a probe may be sent. It needs other traffic, and a path on which
    /// packets are acknowledged.
    fn next_size(&mut self, now: Instant) -> Option<u16> {
        if self.flight.packets.in_flight() == 0 || !self.flight.is_measured() {
            return None;
        }
        let size = self.mtu.probe(now)?;
        let overhead = self.overhead();
        self.may_send(now, usize::from(size).saturating_sub(overhead)).then_some(size)
    }

    fn next_parity(&mut self, now: Instant) -> (Next, usize) {
        let length = PARITY_HEAD + self.encoder.length();
        let may = self.may_send(now, length);
        if may { (Next::Parity, length) } else { (Next::Nothing, 0) }
    }

    /// A datagram waits only for the parity of a full group.
    fn next_datagram(&mut self, now: Instant, length: usize) -> (Next, usize) {
        if self.encoder.is_full() && self.owed == 0 {
            self.flush(now);
        }
        if self.owed > 0 && (self.ends_group || self.encoder.is_full()) {
            return self.next_parity(now);
        }
        let length = SHARD_HEAD + length;
        let may = self.may_send(now, length);
        if may { (Next::Datagram, length) } else { (Next::Nothing, 0) }
    }

    fn next_fresh(&mut self, now: Instant) -> (Next, usize) {
        let window = usize::from(self.peer_window.min(self.config.send_window));
        let length = self.fresh_length();
        if let Some(length) = length.filter(|_| self.outgoing.outstanding() < window) {
            if self.encoder.is_full() && self.flush(now) {
                return self.next(now);
            }
            if length > self.config.payload(self.keys.tag()) {
                self.split_fresh();
                return self.next(now);
            }
            let length = SHARD_HEAD + RUN_HEAD + SEGMENT_MOST + length;
            let may = self.may_send(now, length);
            return if may { (Next::Fresh, length) } else { (Next::Nothing, 0) };
        }
        self.is_limited = true;
        self.busy = 0;
        if self.flush.is_some_and(|at| at <= now) && self.flush(now) {
            return self.next(now);
        }
        (Next::Nothing, 0)
    }

    /// Overhead of a packet in bytes: header, flags and tag.
    pub(super) fn overhead(&self) -> usize {
        PACKET_HEAD + 1 + self.keys.tag()
    }

    /// The size of a sequence that is retransmitted. `None` if the peer has a part of it.
    fn length(&self, sequence: &Sequence) -> Option<usize> {
        let mut length = SHARD_HEAD + RUN_HEAD;
        for at in 0..sequence.count {
            let sent = self.outgoing.get(sequence.first.plus(at.into()))?;
            if sent.state == State::Done {
                return None;
            }
            length += SEGMENT_MOST + sent.payload.len();
        }
        Some(length)
    }

    /// The segments of a lost sequence that are retransmitted: all segments with their position in
    /// the group, or the segments that the peer lacks without a position.
    fn part(&mut self, sequence: Sequence) -> Option<(Sequence, Option<Sequence>)> {
        let is_lost = |at: &u8| {
            let sent = self.outgoing.get(sequence.first.plus((*at).into()));
            sent.is_some_and(|sent| sent.state == State::Lost)
        };
        if (0..sequence.count).all(|at| is_lost(&at)) {
            // If there is little to send, the packet gets new parity, unless other shards wait for
            // this group.
            let is_bulk = self.busy >= BULK;
            let groups = &mut self.groups;
            let shard = sequence.shard.filter(|shard| groups.wants(shard.group, is_bulk));
            return Some((Sequence { shard, ..sequence }, None));
        }
        let start = (0..sequence.count).find(is_lost)?;
        let end = (start..sequence.count).find(|at| !is_lost(at)).unwrap_or(sequence.count);
        let cut = |from: u8, to: u8| Sequence {
            first: sequence.first.plus(from.into()),
            count: to - from,
            shard: None,
        };
        let rest = (end < sequence.count).then(|| cut(end, sequence.count));
        Some((cut(start, end), rest))
    }

    /// Whether controller and pacer allow a body of `length` bytes to be sent.
    fn may_send(&mut self, now: Instant, length: usize) -> bool {
        let bytes = (length + self.overhead()) as u64;
        let round_trip = self.flight.packets.rtt.smoothed();
        self.is_limited = false;
        if self.flight.packets.in_flight() + bytes > self.controller.window(round_trip)
            && self.flight.packets.in_flight() > 0
        {
            return false;
        }
        self.paced = self.pacer.wait(now, bytes, &self.controller, round_trip);
        self.paced.is_none()
    }

    /// Builds the packet.
    pub(super) fn put(
        &mut self,
        now: Instant,
        next: Next,
        ack: Option<&Ack>,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let start = out.len();
        let number = PacketNumber(self.flight.packets.next());
        let (phase, connection) = (self.keys.phase(number), self.config.connection.1);
        let head = PacketHead { kind: self.config.kind, phase, connection, number }.encode();
        out.extend_from_slice(&head);
        let (cargo, is_limited) = self.put_content(now, next, ack, out);
        let text = out.len();
        let keys = &mut self.keys;
        out.resize(text + keys.tag(), 0);
        let sealed = out.get_mut(start + PACKET_HEAD..).and_then(|rest| {
            let (text, tag) = rest.split_at_mut_checked(text - start - PACKET_HEAD)?;
            keys.seal(number, &head, text, tag).ok()
        });
        if sealed.is_none() {
            // The keys have reached their limit. The content of the packet counts as sent, and
            // later as lost.
            out.truncate(start);
        }
        let length = out.len() - start;
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        self.counters.packets_out += 1;
        self.counters.packet_bytes_out += u64::from(bytes);
        self.counters.acks_out += u64::from(ack.is_some());
        self.unasked = self.unasked.saturating_add(1);
        if cargo != Cargo::Nothing {
            self.unasked = 0;
            self.active = Some(now);
            if self.flight.packets.in_flight() == 0 && self.flight.packets.is_answered() {
                self.heard = Some(self.heard.map_or(now, |heard| heard.max(now)));
            }
            self.controller.sent(now, bytes.into(), number.0);
            self.pacer.sent(bytes.into());
        }
        if matches!(cargo, Cargo::Parity(_)) {
            self.counters.parity_out += 1;
            self.counters.parity_bytes_out += u64::from(bytes);
        }
        self.flight.sent(now, bytes, cargo, is_limited);
        (length > 0).then_some(length)
    }

    fn put_content(
        &mut self,
        now: Instant,
        next: Next,
        ack: Option<&Ack>,
        out: &mut Vec<u8>,
    ) -> (Cargo, bool) {
        let mut control = Control::default();
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let (cargo, kind) = match next {
            Next::Nothing if self.unasked >= ASK_AFTER => {
                control.asks = true;
                (Cargo::Other, Body::Empty)
            }
            Next::Nothing => (Cargo::Nothing, Body::Empty),
            Next::Signal(Signal::Challenge(bytes)) => (Cargo::Nothing, Body::Challenge(bytes)),
            Next::Signal(Signal::Answer(bytes)) => (Cargo::Nothing, Body::Answer(bytes)),
            Next::Signal(Signal::Close(code)) => {
                let reason = self.closing.closed().map(|closed| Bytes::clone(&closed.reason));
                body.extend_from_slice(&reason.unwrap_or_default());
                (Cargo::Nothing, Body::Close { code, reason: &[] })
            }
            Next::Ping => {
                self.ping = false;
                control.asks = true;
                (Cargo::Other, Body::Empty)
            }
            Next::Probe(sequence) => {
                self.probes.pop_front();
                control.asks = true;
                (self.put_again(sequence, &mut body), Body::Segments(&[]))
            }
            Next::Part(piece) => {
                self.parts_out.pop_front();
                self.put_part(piece, &mut body);
                (Cargo::Part(piece), Body::Segments(&[]))
            }
            Next::Size(size) => {
                self.mtu.sent();
                control.asks = true;
                let content = usize::from(size).saturating_sub(PACKET_HEAD + self.keys.tag());
                // The rest after the flags and the signal.
                body.resize(content.saturating_sub(2), 0);
                (Cargo::Size(size), Body::Padding(&[]))
            }
            Next::Again(sequence) => self.put_lost(now, sequence, &mut body),
            Next::Parity => self.put_parity(now, &mut body),
            Next::Datagram => self.put_datagram(now, &mut body),
            Next::Fresh => self.put_fresh(now, &mut body),
        };
        // The packet is padded to the length of the parity of the group if no other content takes
        // the room.
        let is_full = body.len() == self.config.body(self.keys.tag());
        control.is_padded = is_full && ack.is_none() && matches!(kind, Body::Data(..));
        Content::put_head(ack, control, &kind, out);
        out.extend_from_slice(&body);
        self.body = body;
        (cargo, self.is_limited)
    }
}
