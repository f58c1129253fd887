//! Segments that are larger than the current packets are sent in parts.
//!
//! A segment is cut when it is first sent, and the path may carry smaller packets later. A part
//! contains the number of the segment and an offset. The receiver reports a complete segment like a
//! rebuilt segment. So the sender keeps no list of parts that have arrived, and retransmits lost
//! parts.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Session;
use super::groups::Sequence;
use crate::Sn;
use crate::own::wire::{PART_HEAD, Part, RUN_HEAD, SEGMENT_HEAD, Segment, put_segment};
use crate::stream::outgoing::{Fresh, Sent, State};

/// Maximum number of incomplete segments at a receiver. Parts of other segments are not
/// acknowledged, so the sender retransmits them.
const SEGMENTS: usize = 1_024;

/// Maximum number of parts of a segment, and of their bytes.
const PARTS: usize = 64;
const BYTES: usize = 1 << 15;

/// The cost of a part in addition to its bytes.
const EACH: usize = 64;

/// Bytes of a segment that are sent in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) sn: Sn,
    pub(super) offset: u16,
    pub(super) length: u16,
}

#[derive(Debug)]
struct Partial {
    sn: Sn,
    /// The parts with their offsets, in order.
    parts: Vec<(u16, Bytes)>,
    /// The length of the segment. It is known once the last part has arrived.
    length: Option<usize>,
}

/// The incomplete segments of a receiver.
#[derive(Debug, Default)]
pub(super) struct Parts {
    segments: VecDeque<Partial>,
    /// The cost of all parts in bytes.
    held: usize,
    /// A complete segment. Its memory is reused.
    whole: Vec<u8>,
}

impl Parts {
    /// Adds a part. `Some(true)`: the segment is complete, in [`whole`](Self::whole). `None`: there
    /// is no room, because all parts together may cost at most `most` bytes.
    pub(super) fn take(
        &mut self,
        part: Part,
        segment: &Segment<'_>,
        next: Sn,
        most: usize,
    ) -> Option<bool> {
        let Self { segments, held, .. } = self;
        segments.retain(|partial| {
            let is_wanted = !partial.sn.is_before(next);
            *held -= if is_wanted { 0 } else { partial.cost() };
            is_wanted
        });
        if self.held + segment.payload.len() + EACH > most {
            return None;
        }
        let slot = self.segments.iter().position(|partial| partial.sn == segment.sn);
        let slot = match slot {
            Some(slot) => slot,
            None if self.segments.len() >= SEGMENTS => return None,
            None => {
                let sn = segment.sn;
                self.segments.push_back(Partial { sn, parts: Vec::new(), length: None });
                self.segments.len() - 1
            }
        };
        let partial = self.segments.get_mut(slot)?;
        let before = partial.cost();
        let fits = partial.insert(part, segment.payload);
        self.held += partial.cost() - before;
        if !fits {
            return None;
        }
        let is_complete = partial.join(&mut self.whole);
        if is_complete {
            self.held -= partial.cost();
            self.segments.remove(slot);
        }
        Some(is_complete)
    }

    /// Memory of the buffers, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.held + self.whole.capacity()
    }

    pub(super) fn whole(&mut self) -> &mut Vec<u8> {
        &mut self.whole
    }

    /// Releases memory.
    pub(super) fn rest(&mut self) {
        if self.segments.is_empty() {
            *self = Self::default();
        }
    }
}

impl Partial {
    fn cost(&self) -> usize {
        self.parts.iter().map(|(_, bytes)| bytes.len() + EACH).sum()
    }

    /// Returns `false` if there is no room.
    fn insert(&mut self, part: Part, payload: &[u8]) -> bool {
        if !part.follows {
            self.length = Some(usize::from(part.offset) + payload.len());
        }
        let at = self.parts.partition_point(|(offset, _)| *offset < part.offset);
        if let Some((offset, there)) = self.parts.get_mut(at)
            && *offset == part.offset
        {
            if there.len() < payload.len() {
                *there = Bytes::copy_from_slice(payload);
            }
            return true;
        }
        let bytes: usize = self.parts.iter().map(|(_, bytes)| bytes.len()).sum();
        if self.parts.len() >= PARTS || bytes + payload.len() > BYTES {
            return false;
        }
        self.parts.insert(at, (part.offset, Bytes::copy_from_slice(payload)));
        true
    }

    /// Joins the parts. Returns whether all parts are present.
    fn join(&self, whole: &mut Vec<u8>) -> bool {
        let Some(length) = self.length else { return false };
        whole.clear();
        for (offset, bytes) in &self.parts {
            // Parts that were cut at other offsets may overlap.
            let Some(known) = whole.len().checked_sub(usize::from(*offset)) else { return false };
            whole.extend_from_slice(bytes.get(known..).unwrap_or_default());
        }
        whole.len() == length
    }
}

impl Session {
    /// Whether a sequence fits into a packet of the current size.
    pub(super) fn fits(&self, sequence: &Sequence) -> bool {
        let segments = (0..sequence.count)
            .filter_map(|at| self.outgoing.get(sequence.first.plus(at.into())))
            .map(|sent| SEGMENT_HEAD + 2 + usize::from(sent.fragments > 0) + sent.payload.len());
        // The last segment of a packet has no length field.
        RUN_HEAD + segments.sum::<usize>() <= self.config.body(self.keys.tag()) + 2
    }

    /// Splits a sequence that must be retransmitted and is too large. Its segments are sent
    /// individually, or in parts.
    pub(super) fn split(&mut self, sequence: Sequence) {
        if sequence.count > 1 {
            for at in (0..sequence.count).rev() {
                let first = sequence.first.plus(at.into());
                self.lost.push_front(Sequence { first, count: 1, shard: None });
            }
            return;
        }
        let sn = sequence.first;
        let most = self.part_most();
        let Some(sent) = self.outgoing.sent(sn) else { return };
        // No packet carries the whole segment, so the loss of its parts is tracked by parts.
        (sent.state, sent.transmission) = (State::Flying, u64::MAX);
        let length = u16::try_from(sent.payload.len()).unwrap_or(u16::MAX);
        let mut offset = 0;
        while offset < length {
            let part = most.min(length - offset);
            self.parts_out.push_back(Piece { sn, offset, length: part });
            offset += part;
        }
    }

    /// Sends the next segment, which was cut for larger packets, in parts.
    pub(super) fn split_fresh(&mut self) {
        let first = self.outgoing.next();
        let Some(Fresh { payload, fragments }) = self.outgoing.pop_fresh() else { return };
        self.counters.bytes_out += payload.len() as u64;
        let (transmission, state) = (u64::MAX, State::Lost);
        let sent = Sent { payload, fragments, transmission, transmissions: 1, state };
        self.outgoing.push_sent(sent);
        self.split(Sequence { first, count: 1, shard: None });
    }

    /// Maximum length of a part, in bytes.
    fn part_most(&self) -> u16 {
        let head = RUN_HEAD + SEGMENT_HEAD + 1 + PART_HEAD;
        let most = self.config.body(self.keys.tag()).saturating_sub(head).max(1);
        u16::try_from(most).unwrap_or(u16::MAX)
    }

    /// The next part that the peer lacks. A part that is too large for the current packets is cut.
    pub(super) fn next_part(&mut self) -> Option<Piece> {
        let most = self.part_most();
        while let Some(piece) = self.parts_out.front().copied() {
            let sent = self.outgoing.get(piece.sn);
            if sent.is_none_or(|sent| sent.state == State::Done) {
                self.parts_out.pop_front();
                continue;
            }
            if piece.length > most {
                self.parts_out.pop_front();
                let rest =
                    Piece { offset: piece.offset + most, length: piece.length - most, ..piece };
                self.parts_out.push_front(rest);
                self.parts_out.push_front(Piece { length: most, ..piece });
                continue;
            }
            return Some(piece);
        }
        None
    }

    /// Appends a run with one part.
    pub(super) fn put_part(&mut self, piece: Piece, body: &mut Vec<u8>) {
        self.counters.parts_out += 1;
        let Some(sent) = self.outgoing.get(piece.sn) else { return };
        let (from, to) = (usize::from(piece.offset), usize::from(piece.offset + piece.length));
        let follows = to < sent.payload.len();
        let segment = Segment {
            sn: piece.sn,
            fragments: sent.fragments,
            is_fin: false,
            part: Some(Part { offset: piece.offset, follows }),
            payload: sent.payload.get(from..to).unwrap_or_default(),
        };
        body.extend_from_slice(&piece.sn.0.to_be_bytes());
        put_segment(&segment, true, body);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Parts of several cuts in any order make the segment, once.
        #[test]
        fn parts_in_any_order_make_the_segment(
            length in 1_usize..400,
            sizes in proptest::collection::vec(1_usize..60, 1..3),
            order in any::<u64>(),
        ) {
            prop_assume!(sizes.iter().all(|size| length.div_ceil(*size) <= PARTS / 2));
            let payload: Vec<u8> = (0..length).map(|at| (at * 7).to_le_bytes()[0]).collect();
            let mut all = Vec::new();
            for size in sizes {
                all.extend((0..length).step_by(size).map(|at| (at, (at + size).min(length))));
            }
            let mut state = order;
            for at in (1..all.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                all.swap(at, (state >> 33) as usize % (at + 1));
            }
            let mut parts = Parts::default();
            let mut complete = 0;
            for (from, to) in all {
                let offset = u16::try_from(from).unwrap();
                let part = Part { offset, follows: to < length };
                let segment = Segment {
                    sn: Sn(9),
                    fragments: 0,
                    is_fin: false,
                    part: Some(part),
                    payload: &payload[from..to],
                };
                if parts.take(part, &segment, Sn(9), 1 << 20) == Some(true) {
                    prop_assert_eq!(parts.whole(), &payload);
                    complete += 1;
                }
            }
            prop_assert!(complete >= 1);
        }
    }

    #[test]
    fn parts_of_a_hostile_peer_are_bounded() {
        let mut parts = Parts::default();
        let take = |parts: &mut Parts, sn, offset, payload: &[u8]| {
            let part = Part { offset, follows: true };
            let (fragments, is_fin, sn) = (0, false, Sn(sn));
            let segment = Segment { sn, fragments, is_fin, part: Some(part), payload };
            parts.take(part, &segment, Sn(0), 1 << 20)
        };
        for offset in 0..64 {
            assert_eq!(take(&mut parts, 0, offset, b"x"), Some(false));
        }
        assert_eq!(take(&mut parts, 0, 64, b"x"), None);
        let taken = (1..5_000).filter(|sn| take(&mut parts, *sn, 0, b"x").is_some()).count();
        assert_eq!(taken, SEGMENTS - 1);
        // The bytes of all incomplete segments are bounded as well.
        let mut parts = Parts::default();
        let long = [7; 20_000];
        let taken = (0..1_000).filter(|sn| take(&mut parts, *sn, 0, &long).is_some()).count();
        assert_eq!(taken, (1 << 20) / (20_000 + EACH));
        // A segment that is no longer needed makes room.
        let part = Part { offset: 0, follows: true };
        let (fragments, is_fin) = (0, false);
        let segment =
            Segment { sn: Sn(2_000), fragments, is_fin, part: Some(part), payload: &long };
        assert_eq!(parts.take(part, &segment, Sn(1), 1 << 20), Some(false));
    }
}
