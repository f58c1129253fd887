//! Fragmentation: a datagram that is longer than the carrier's datagrams is split into fragments,
//! and the receiver reassembles them.
//!
//! ```text
//!   whole:     0 | flow u31 | payload
//!   fragment:  1 | flow u31 | number u16 | length u16 | offset u16 | piece
//! ```
//! `number` counts the fragmented datagrams of the flow, `length` is the length of the whole
//! datagram. Every piece but the last has at least [`PIECE_MIN`] bytes, so a bit for each
//! [`PIECE_MIN`] bytes of the datagram records which pieces have arrived.

use crate::Instant;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::DATAGRAM_MAX;
use crate::FlowId;
use crate::offset::length;

/// The bit of the flow id that marks a fragment.
pub(crate) const MARK: u32 = 1 << 31;

/// Length of the header of a fragment, in bytes.
const FRAGMENT_HEAD: usize = 10;

/// Minimum length of a piece, in bytes. QUIC datagrams hold more than 1,100 bytes on every path.
const PIECE_MIN: usize = 512;

/// Reassembly timeout. If a path reorders by more than this, programs no longer wait for the
/// datagram.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum bytes of one flow's datagrams in reassembly. A datagram with a lost piece occupies its
/// room for [`PATIENCE`].
const FLOW_MAX: usize = 256 << 10;

/// Maximum bytes of all datagrams of a link in reassembly.
const BYTES_MAX: usize = 1 << 20;

/// Memory of a datagram in addition to its payload, in bytes.
const OVERHEAD: usize = 128;

/// Splits `payload` into packets of at most `limit` bytes. Returns the sum of their lengths. If
/// `limit` has no room for the smallest piece, no packet is made: the datagram is lost.
pub(super) fn cut(
    id: FlowId,
    number: u16,
    payload: &Bytes,
    limit: usize,
    out: &mut impl Extend<Bytes>,
) -> usize {
    let piece = limit.saturating_sub(FRAGMENT_HEAD);
    let Ok(total) = u16::try_from(payload.len()) else { return 0 };
    if piece < PIECE_MIN {
        return 0;
    }
    let count = payload.len().div_ceil(piece);
    let mut scratch = BytesMut::with_capacity(payload.len() + count * FRAGMENT_HEAD);
    let mut offset = 0_u16;
    for part in payload.chunks(piece) {
        scratch.put_u32(id.raw() | MARK);
        scratch.put_u16(number);
        scratch.put_u16(total);
        scratch.put_u16(offset);
        scratch.put_slice(part);
        out.extend([scratch.split().freeze()]);
        // Less than `total`, which fits.
        offset = offset.wrapping_add(u16::try_from(part.len()).unwrap_or(0));
    }
    payload.len() + count * FRAGMENT_HEAD
}

/// A datagram in reassembly.
#[derive(Debug)]
struct Joining {
    flow: FlowId,
    number: u16,
    total: usize,
    bytes: BytesMut,
    arrived: usize,
    /// One bit per [`PIECE_MIN`] bytes of the datagram, set if a piece begins there.
    pieces: u128,
    deadline: Instant,
}

impl Joining {
    const fn cost(&self) -> usize {
        self.total + OVERHEAD
    }
}

/// Reassembles the fragments of a link.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// In order of age, oldest first.
    waiting: VecDeque<Joining>,
    /// Sum of their costs.
    bytes: usize,
}

/// The outcome of adding a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The fragment completed this datagram.
    Whole(Bytes),
    /// The fragment waits for others. Datagrams may have been dropped for room.
    Waits {
        /// The number of dropped datagrams.
        dropped: u64,
    },
    /// No sender fragments like this.
    Impossible,
}

impl Joiner {
    /// Adds a fragment; `packet` begins with its number.
    pub(super) fn put(&mut self, now: Instant, flow: FlowId, mut packet: Bytes) -> Joined {
        let mut field = || packet.try_get_u16().ok().map(usize::from);
        let (Some(number), Some(total), Some(offset)) = (field(), field(), field()) else {
            return Joined::Impossible;
        };
        let (end, is_last) = (offset + packet.len(), offset + packet.len() == total);
        if total > DATAGRAM_MAX || end > total || (packet.len() < PIECE_MIN && !is_last) {
            return Joined::Impossible;
        }
        let number = number as u16;
        let same = |joining: &Joining| joining.flow == flow && joining.number == number;
        let mut dropped = 0;
        // The newest datagrams are the most likely match.
        let at = match self.waiting.iter().rposition(same) {
            Some(at) if self.waiting[at].total != total => return Joined::Impossible,
            Some(at) => at,
            None => {
                dropped = self.make_room(flow, total + OVERHEAD);
                self.bytes += total + OVERHEAD;
                self.waiting.push_back(Joining {
                    flow,
                    number,
                    total,
                    bytes: BytesMut::new(),
                    arrived: 0,
                    pieces: 0,
                    deadline: now + PATIENCE,
                });
                self.waiting.len() - 1
            }
        };
        let joining = &mut self.waiting[at];
        let bit = 1_u128 << (offset / PIECE_MIN);
        if joining.pieces & bit == 0 {
            joining.pieces |= bit;
            joining.arrived += packet.len();
            if joining.bytes.len() < end {
                joining.bytes.resize(end, 0);
            }
            joining.bytes[offset..end].copy_from_slice(&packet);
        }
        if joining.arrived < total {
            return Joined::Waits { dropped };
        }
        match self.remove(at) {
            Some(joining) => Joined::Whole(joining.bytes.freeze()),
            None => Joined::Waits { dropped },
        }
    }

    fn remove(&mut self, at: usize) -> Option<Joining> {
        let joining = self.waiting.remove(at)?;
        self.bytes -= joining.cost();
        Some(joining)
    }

    /// Drops the oldest datagrams until there is room for another. Returns the number of dropped
    /// datagrams.
    fn make_room(&mut self, flow: FlowId, cost: usize) -> u64 {
        let mut dropped = 0;
        let of_flow = self.waiting.iter().filter(|joining| joining.flow == flow);
        let mut of_flow: usize = of_flow.map(Joining::cost).sum();
        while of_flow + cost > FLOW_MAX
            && let Some(at) = self.waiting.iter().position(|joining| joining.flow == flow)
            && let Some(oldest) = self.remove(at)
        {
            of_flow -= oldest.cost();
            dropped += 1;
        }
        while self.bytes + cost > BYTES_MAX && self.remove(0).is_some() {
            dropped += 1;
        }
        dropped
    }

    /// Drops the datagrams of a flow. Returns their number.
    pub(super) fn forget(&mut self, flow: FlowId) -> u64 {
        self.give_up(|joining| joining.flow == flow)
    }

    /// Drops the datagrams whose deadline has passed. Returns their number.
    pub(super) fn expire(&mut self, now: Instant) -> u64 {
        if self.deadline().is_none_or(|first| first > now) {
            return 0;
        }
        self.give_up(|joining| joining.deadline <= now)
    }

    fn give_up(&mut self, is_over: impl Fn(&Joining) -> bool) -> u64 {
        let before = self.waiting.len();
        let mut freed = 0;
        self.waiting.retain(|joining| {
            let over = is_over(joining);
            freed += if over { joining.cost() } else { 0 };
            !over
        });
        self.bytes -= freed;
        length(before - self.waiting.len())
    }

    /// The deadline of the oldest datagram.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|joining| joining.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offset::memory;
    use proptest::prelude::*;

    const FLOW: FlowId = FlowId::new(3);

    fn packets(number: u16, payload: &[u8], limit: usize) -> Vec<Bytes> {
        let mut out = Vec::new();
        let bytes = cut(FLOW, number, &Bytes::copy_from_slice(payload), limit, &mut out);
        assert_eq!(bytes, out.iter().map(Bytes::len).sum::<usize>());
        assert!(out.iter().all(|packet| packet.len() <= limit));
        out
    }

    /// Passes a packet without its flow id to the joiner.
    fn put(joiner: &mut Joiner, now: Instant, packet: &Bytes) -> Joined {
        assert_eq!(packet[..4], (FLOW.raw() | MARK).to_be_bytes());
        joiner.put(now, FLOW, packet.slice(4..))
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_datagram(
            size in 1_usize..=DATAGRAM_MAX, limit in 522_usize..20_000, seed: u64,
        ) {
            let payload: Vec<u8> = (0..size).map(|n| (n as u64 ^ seed) as u8).collect();
            let mut order = packets(7, &payload, limit);
            let mut state = seed | 1;
            for n in (1..order.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(n, memory(state >> 33) % (n + 1));
            }
            let mut joiner = Joiner::default();
            let now = crate::testing::epoch();
            let last = order.pop().unwrap();
            for packet in &order {
                prop_assert_eq!(put(&mut joiner, now, packet), Joined::Waits { dropped: 0 });
                prop_assert_eq!(put(&mut joiner, now, packet), Joined::Waits { dropped: 0 }, "twice");
            }
            prop_assert_eq!(put(&mut joiner, now, &last), Joined::Whole(payload.into()));
            prop_assert_eq!((joiner.bytes, joiner.waiting.len()), (0, 0));
        }

        #[test]
        fn no_fragment_panics_or_takes_more_than_its_room(
            all in proptest::collection::vec((0_u32..9, proptest::collection::vec(any::<u8>(), 0..700)), 0..60),
        ) {
            let mut joiner = Joiner::default();
            let now = crate::testing::epoch();
            for (flow, packet) in all {
                let _ = joiner.put(now, FlowId::new(flow), packet.into());
                prop_assert!(joiner.bytes <= BYTES_MAX);
                prop_assert_eq!(joiner.bytes, joiner.waiting.iter().map(Joining::cost).sum::<usize>());
            }
            joiner.expire(now + PATIENCE);
            prop_assert_eq!((joiner.bytes, joiner.waiting.len()), (0, 0));
        }
    }

    #[test]
    fn pieces_wait_a_second_and_256_kib_of_a_flow_at_once() {
        let mut joiner = Joiner::default();
        let start = crate::testing::epoch();
        for number in 0..6 {
            let packet = &packets(number, &[0; 60_000], 1_200)[0];
            let dropped = u64::from(number >= 4);
            assert_eq!(put(&mut joiner, start, packet), Joined::Waits { dropped });
        }
        assert_eq!(joiner.deadline(), Some(start + PATIENCE));
        assert_eq!(joiner.expire(start + PATIENCE - Duration::from_millis(1)), 0);
        assert_eq!(joiner.expire(start + PATIENCE), 4);
        assert_eq!((joiner.deadline(), joiner.bytes), (None, 0));
    }

    #[test]
    fn a_path_that_takes_less_than_a_piece_loses_the_datagram() {
        assert_eq!(packets(0, &[0; 600], 521), Vec::<Bytes>::new());
    }
}
