//! The bodies of packets that carry data.

use std::time::Instant;

use bytes::Bytes;

use super::flight::Cargo;
use super::groups::Sequence;
use super::transmit::SEGMENT_MOST;
use super::{Finish, Session};
use crate::Sn;
use crate::own::fec::Load;
use crate::own::wire::{Body, Segment, put_segment};
use crate::stream::outgoing::{Fresh, Sent, State};

impl Session {
    /// Appends a lost sequence at its position in its group, or as new data of the open group.
    pub(super) fn put_lost(
        &mut self,
        now: Instant,
        sequence: Sequence,
        body: &mut Vec<u8>,
    ) -> (Cargo, Body<'static>) {
        let Cargo::Segments(sequence) = self.put_again(sequence, body) else {
            return (Cargo::Nothing, Body::Empty);
        };
        match sequence.shard {
            Some(shard) => {
                self.groups.data_sent(now, shard.group);
                (Cargo::Segments(sequence), Body::Data(shard, Load::Segments, &[]))
            }
            None => self.protect_segments(now, sequence, body),
        }
    }

    /// Appends an outstanding sequence again.
    pub(super) fn put_again(&mut self, sequence: Sequence, body: &mut Vec<u8>) -> Cargo {
        self.counters.repeated_out += 1;
        let number = self.flight.packets.next();
        body.extend_from_slice(&sequence.first.0.to_be_bytes());
        for at in 0..sequence.count {
            let sn = sequence.first.plus(at.into());
            let Some(sent) = self.outgoing.sent(sn) else { break };
            let segment = Segment {
                sn,
                fragments: sent.fragments,
                is_fin: self.finish == Finish::Sent(sn),
                part: None,
                payload: &sent.payload,
            };
            put_segment(&segment, at + 1 == sequence.count, body);
            sent.transmission = number;
            sent.transmissions += 1;
            sent.state = State::Flying;
        }
        Cargo::Segments(sequence)
    }

    /// The length of the next segment that was never sent. It is 0 for the end of the stream.
    pub(super) fn fresh_length(&self) -> Option<usize> {
        self.outgoing.next_length().or_else(|| (self.finish == Finish::Wanted).then_some(0))
    }

    /// The next segment that was never sent, with the number `sn`, and whether the stream ends.
    pub(super) fn pop_fresh(&mut self, sn: Sn) -> Option<(Fresh, bool)> {
        if let Some(fresh) = self.outgoing.pop_fresh() {
            return Some((fresh, false));
        }
        let ends = self.finish == Finish::Wanted;
        ends.then(|| {
            self.finish = Finish::Sent(sn);
            (Fresh { payload: Bytes::new(), fragments: 0 }, true)
        })
    }

    /// Appends as many segments that were never sent as fit.
    pub(super) fn put_fresh(&mut self, now: Instant, body: &mut Vec<u8>) -> (Cargo, Body<'static>) {
        let most = self.config.body(self.keys.tag());
        let number = self.flight.packets.next();
        let first = self.outgoing.next();
        body.extend_from_slice(&first.0.to_be_bytes());
        let mut count = 0;
        loop {
            let sn = self.outgoing.next();
            let Some((Fresh { payload, fragments }, is_fin)) = self.pop_fresh(sn) else { break };
            self.counters.bytes_out += payload.len() as u64;
            let length = body.len() + SEGMENT_MOST + payload.len();
            let fits = |next: usize| length + SEGMENT_MOST + next <= most;
            let window = usize::from(self.peer_window.min(self.config.send_window));
            let has_room = self.outgoing.outstanding() + 1 < window && count < u8::MAX - 1;
            let follows = has_room && self.fresh_length().is_some_and(fits);
            let segment = Segment { sn, fragments, is_fin, part: None, payload: &payload };
            put_segment(&segment, !follows, body);
            self.outgoing.push_sent(Sent {
                payload: Bytes::clone(&payload),
                fragments,
                transmission: number,
                transmissions: 1,
                state: State::Flying,
            });
            count += 1;
            if !follows {
                break;
            }
        }
        self.busy = self.busy.saturating_add(1);
        self.protect_segments(now, Sequence { first, count, shard: None }, body)
    }

    pub(super) fn protect_segments(
        &mut self,
        now: Instant,
        sequence: Sequence,
        body: &[u8],
    ) -> (Cargo, Body<'static>) {
        let shard = self.protect(now, Load::Segments, body);
        let kind = shard.map_or(Body::Segments(&[]), |it| Body::Data(it, Load::Segments, &[]));
        (Cargo::Segments(Sequence { shard, ..sequence }), kind)
    }

    pub(super) fn put_datagram(
        &mut self,
        now: Instant,
        body: &mut Vec<u8>,
    ) -> (Cargo, Body<'static>) {
        let datagram = self.datagrams_out.pop().unwrap_or_default();
        self.counters.datagrams_out += 1;
        self.busy = self.busy.saturating_add(1);
        body.extend_from_slice(&datagram);
        let shard = self.protect(now, Load::Datagram, body);
        let kind = shard.map_or(Body::Datagram(&[]), |it| Body::Data(it, Load::Datagram, &[]));
        (Cargo::Datagram(shard), kind)
    }
}
