//! Packets in flight, and packets that count as lost and may still arrive.
//!
//! An acknowledgement contains packet numbers, so it is unambiguous. Many acknowledgements contain
//! the same packet. Only packets that the previous acknowledgement did not contain are processed,
//! so that the cost depends on the number of ranges and of new packets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::groups::Sequence;
use super::parts::Piece;
use crate::own::wire::{PacketNumber, RANGES, Shard};
use crate::stream::flight;

/// The reordering threshold in packets: RFC 9002 section 6.1.1.
const OVERTAKE: u64 = 3;

/// The number of remembered lost packets, so that late packets are recognised.
const REMEMBERED: usize = 512;

/// The content of a packet that is relevant for its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cargo {
    /// The packet is not acknowledged.
    Nothing,
    Segments(Sequence),
    Parity(Shard),
    /// A part of a segment.
    Part(Piece),
    /// A probe for packets of this size.
    Size(u16),
    /// A datagram of the user, and its position in a group.
    Datagram(Option<Shard>),
    /// Content that is not retransmitted.
    Other,
}

pub(super) type Packet = flight::Transmission<Cargo>;

/// Packet numbers from the first to the last.
type Range = (u64, u64);

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) packets: flight::Flight<Cargo>,
    /// The minimum round trip.
    least: Option<Duration>,
    /// The ranges of the last acknowledgement, from high to low.
    named: Vec<Range>,
    /// Memory for the next two lists, so that an acknowledgement allocates nothing.
    spare: [Vec<Range>; 2],
    lost: VecDeque<(u64, Instant, Cargo)>,
    /// The number of congestion marks that the peer has reported.
    congested: u32,
}

impl Flight {
    pub(super) const fn new() -> Self {
        Self {
            packets: flight::Flight::new(OVERTAKE),
            least: None,
            named: Vec::new(),
            spare: [const { Vec::new() }; 2],
            lost: VecDeque::new(),
            congested: 0,
        }
    }

    /// Resets the round trip after the path has changed.
    pub(super) fn path_changed(&mut self) {
        self.least = None;
        self.packets.path_changed();
    }

    /// Records the next packet.
    pub(super) fn sent(&mut self, now: Instant, bytes: u32, cargo: Cargo, is_limited: bool) {
        if cargo == Cargo::Nothing {
            self.packets.passed(now, bytes, cargo, is_limited);
        } else {
            self.packets.sent(now, bytes, cargo, is_limited);
        }
    }

    /// The packets that are newly acknowledged, from high to low, as in `ranges`. The caller
    /// returns the list by [`keep`](Self::keep).
    pub(super) fn news(
        &mut self,
        ranges: impl Iterator<Item = (PacketNumber, PacketNumber)>,
    ) -> Vec<Range> {
        let [mut named, mut news] = std::mem::take(&mut self.spare);
        named.extend(ranges.map(|(first, last)| (first.0, last.0)));
        news.extend(named.iter().flat_map(|range| without(*range, &self.named)));
        self.spare[0] = std::mem::replace(&mut self.named, named);
        self.spare[0].clear();
        news
    }

    pub(super) fn keep(&mut self, mut news: Vec<Range>) {
        news.clear();
        self.spare[1] = news;
    }

    /// Handles the low 30 bits of the peer's count of congestion marks. Returns the number of new
    /// marks.
    pub(super) const fn congested(&mut self, marks: u32) -> Option<u32> {
        let new = marks.wrapping_sub(self.congested) << 2 >> 2;
        // A difference of more than half of the number space is old, because acknowledgements are
        // reordered.
        if new == 0 || new >= 1 << 29 {
            return None;
        }
        self.congested = marks;
        Some(new)
    }

    /// Whether a round trip on this path was measured.
    pub(super) const fn is_measured(&self) -> bool {
        self.least.is_some()
    }

    /// Records the round trip `took` of the newest packet, which includes the peer's delay `delay`.
    pub(super) fn sample(&mut self, took: Duration, delay: Duration) {
        let least = self.least.map_or(took, |least| least.min(took));
        self.least = Some(least);
        // A delay that makes the round trip too short is ignored (RFC 9002 section 5.3).
        let without = took.saturating_sub(delay);
        self.packets.rtt.sample(if without >= least { without } else { took });
    }

    /// Returns the packets in `news` that counted as lost and were only late.
    pub(super) fn late_ones(&mut self, news: &[Range]) -> Vec<Cargo> {
        let mut late = Vec::new();
        let Some((oldest, _, _)) = self.lost.front().copied() else { return late };
        if news.iter().all(|(_, last)| *last < oldest) {
            return late;
        }
        self.lost.retain(|&(number, _, cargo)| {
            let is_late = news.iter().any(|(first, last)| (*first..=*last).contains(&number));
            if is_late {
                late.push(cargo);
            }
            !is_late
        });
        if !late.is_empty() {
            self.packets.reordered();
        }
        late
    }

    /// Handles a new acknowledgement.
    pub(super) fn acknowledged(&mut self, now: Instant) {
        self.packets.acknowledged();
        let old = self.packets.rtt.longer() * 2;
        while self.lost.front().is_some_and(|(_, at, _)| now.duration_since(*at) > old) {
            self.lost.pop_front();
        }
    }

    /// Releases memory. For an end without packets in flight.
    pub(super) fn rest(&mut self) {
        self.packets.rest();
        self.lost = VecDeque::new();
        self.spare = Default::default();
        self.named.shrink_to_fit();
    }

    /// Removes and returns the next packet that counts as lost now.
    pub(super) fn pop_lost(&mut self, now: Instant) -> Option<(u64, Packet)> {
        let (number, lost) = self.packets.pop_lost(now)?;
        if self.lost.len() >= REMEMBERED {
            self.lost.pop_front();
        }
        self.lost.push_back((number, now, lost.cargo));
        Some((number, lost))
    }
}

/// The parts of a range that are not in `named`, whose ranges go from high to low.
fn without((first, last): Range, named: &[Range]) -> impl Iterator<Item = Range> + use<> {
    let mut parts = [None; RANGES + 1];
    let mut top = Some(last);
    let mut slots = parts.iter_mut();
    for (from, to) in named {
        let Some(end) = top.filter(|end| *end >= first) else { break };
        if *from > end || *to < first {
            continue;
        }
        if *to < end
            && let Some(slot) = slots.next()
        {
            *slot = Some((to + 1, end));
        }
        top = from.checked_sub(1);
    }
    if let Some(end) = top.filter(|end| *end >= first)
        && let Some(slot) = slots.next()
    {
        *slot = Some((first, end));
    }
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_was_not_named_is_new() {
        let named = [(20, 30), (10, 12), (0, 5)];
        let new = |range| without(range, &named).collect::<Vec<_>>();
        assert_eq!(new((20, 33)), [(31, 33)]);
        assert_eq!(new((0, 40)), [(31, 40), (13, 19), (6, 9)]);
        assert_eq!(new((11, 25)), [(13, 19)]);
        assert_eq!(new((21, 29)), []);
        assert_eq!(new((6, 9)), [(6, 9)]);
        assert_eq!(without((3, 7), &[]).collect::<Vec<_>>(), [(3, 7)]);
    }

    proptest! {
        #[test]
        fn news_are_the_difference(
            before in proptest::collection::btree_set(0_u64..80, 0..40),
            after in proptest::collection::btree_set(0_u64..80, 0..40),
        ) {
            let ranges = |set: &std::collections::BTreeSet<u64>| {
                let mut ranges: Vec<Range> = Vec::new();
                for number in set.iter().rev().copied() {
                    match ranges.last_mut() {
                        Some((first, _)) if *first == number + 1 => *first = number,
                        _ => ranges.push((number, number)),
                    }
                }
                ranges.truncate(RANGES);
                ranges
            };
            let (before, after) = (ranges(&before), ranges(&after));
            let mut flight = Flight::new();
            let packets = |ranges: &[Range]| {
                let ranges = ranges.to_vec();
                ranges.into_iter().map(|(a, b)| (PacketNumber(a), PacketNumber(b)))
            };
            flight.news(packets(&before));
            let news = flight.news(packets(&after));
            let has = |ranges: &[Range], n: u64| ranges.iter().any(|(a, b)| (*a..=*b).contains(&n));
            for n in 0..80 {
                prop_assert_eq!(has(&news, n), has(&after, n) && !has(&before, n), "{}", n);
            }
        }
    }
}
