//! Keeps the shards of the last groups, and rebuilds data shards.

use std::collections::VecDeque;

use super::code::{DATA_MAX, PARITY_MAX, coefficient, solve};
use super::encoder::{Parity, SIZE};
use crate::own::wire::{Group, Shard};

/// Groups that are remembered. Older ones count as over.
const GROUPS: usize = 512;

/// Groups behind the newest after which one without a hole is over.
const SETTLED: usize = 8;

/// What a decoder has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data shards that were rebuilt.
    pub rebuilt: u64,
    /// Parity shards that arrived.
    pub parity_in: u64,
    /// Shards of no use: of a group that is over, or there before, or not possible.
    pub useless: u64,
}

/// A shard that arrived: where its bytes are, with the size in front where it is data.
#[derive(Clone, Copy, Debug)]
struct Held {
    index: u8,
    /// Of parity: the data shards that were added up.
    k: u8,
    at: usize,
    length: usize,
}

#[derive(Debug, Default)]
struct Shards {
    group: Group,
    bytes: Vec<u8>,
    data: Vec<Held>,
    parity: Vec<Held>,
    /// A bit for each data shard that is there.
    present: u64,
    /// The data shards of the group; `None` until the end is known.
    size: Option<u8>,
    is_over: bool,
}

/// Rebuilds the data shards of one direction.
#[derive(Debug)]
pub struct Decoder {
    /// In the order of their numbers.
    groups: VecDeque<Shards>,
    /// Bytes of all groups, and the most of them.
    bytes: usize,
    most: usize,
    counters: Counters,
}

impl Decoder {
    /// A decoder that keeps at most `most` bytes of shards. Where that is less than what arrives in
    /// two round trips, some are repeated that parity would have rebuilt.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        let counters = Counters { rebuilt: 0, parity_in: 0, useless: 0 };
        Self { groups: VecDeque::new(), bytes: 0, most, counters }
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of shards that are kept.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.bytes
    }

    /// Takes a data shard, which the caller uses itself. Returns what can be rebuilt now.
    pub fn data(&mut self, shard: Shard, body: &[u8]) -> Vec<Vec<u8>> {
        let Ok(size) = u16::try_from(body.len()) else { return Vec::new() };
        let Some(slot) = self.slot(shard.group) else { return self.refuse() };
        let group = &mut self.groups[slot];
        if group.is_over || !group.insert(shard.index, size, body) {
            return self.refuse();
        }
        self.bytes += SIZE + body.len();
        self.rebuild(slot)
    }

    /// Takes a parity shard. Returns what can be rebuilt now.
    pub fn parity(&mut self, head: Parity, parity: &[u8]) -> Vec<Vec<u8>> {
        let Parity { shard, k, is_final } = head;
        self.counters.parity_in += 1;
        let is_possible = usize::from(shard.index) < PARITY_MAX
            && (1..=DATA_MAX).contains(&usize::from(k))
            && parity.len() >= SIZE;
        if !is_possible {
            return self.refuse();
        }
        let Some(slot) = self.slot(shard.group) else { return self.refuse() };
        let group = &mut self.groups[slot];
        if group.is_over || group.parity.iter().any(|held| held.index == shard.index) {
            return self.refuse();
        }
        if is_final {
            group.size = Some(k);
        }
        let (at, length) = (group.bytes.len(), parity.len());
        group.bytes.extend_from_slice(parity);
        group.parity.push(Held { index: shard.index, k, at, length });
        self.bytes += length;
        self.rebuild(slot)
    }

    fn refuse(&mut self) -> Vec<Vec<u8>> {
        self.counters.useless += 1;
        Vec::new()
    }

    /// The place of a group, which is made where there is none; `None` of one that is too old.
    fn slot(&mut self, group: Group) -> Option<usize> {
        let behind =
            self.groups.iter().rev().take_while(|held| held.group.since(group) > 0).count();
        let slot = self.groups.len() - behind;
        if slot > 0 && self.groups[slot - 1].group == group {
            return Some(slot - 1);
        }
        if slot == 0 && self.groups.len() >= GROUPS {
            return None;
        }
        // A jump to the other half of the circle would disorder the groups.
        let newest = self.groups.back().map_or(group, |newest| newest.group);
        if newest.since(group) > i16::MAX / 2 || group.since(newest) > i16::MAX / 2 {
            return None;
        }
        self.groups.insert(slot, Shards { group, ..Shards::default() });
        if self.groups.len() > GROUPS
            && let Some(oldest) = self.groups.pop_front()
        {
            self.bytes -= oldest.bytes.len();
            return slot.checked_sub(1);
        }
        Some(slot)
    }

    fn rebuild(&mut self, slot: usize) -> Vec<Vec<u8>> {
        let group = &mut self.groups[slot];
        let before = group.bytes.len();
        let rebuilt = group.rebuild();
        self.bytes += group.bytes.len() - before;
        self.counters.rebuilt += rebuilt.len() as u64;
        if group.size.is_some_and(|size| group.has_all(size)) {
            self.bytes -= group.end();
        }
        self.trim();
        rebuilt
    }

    /// Drops what is settled, and the oldest of what is too much.
    fn trim(&mut self) {
        let settled = self.groups.len().checked_sub(SETTLED + 1);
        if let Some(group) = settled.and_then(|settled| self.groups.get_mut(settled))
            && !group.is_over
            && group.has_all(group.parity.iter().map(|held| held.k).max().unwrap_or(u8::MAX))
        {
            self.bytes -= group.end();
        }
        let mut oldest = 0;
        while self.bytes > self.most
            && let Some(group) = self.groups.get_mut(oldest)
        {
            self.bytes -= group.end();
            oldest += 1;
        }
    }
}

impl Shards {
    fn insert(&mut self, index: u8, size: u16, body: &[u8]) -> bool {
        if usize::from(index) >= DATA_MAX || self.present & 1 << index != 0 {
            return false;
        }
        self.present |= 1 << index;
        let at = self.bytes.len();
        self.bytes.extend(size.to_be_bytes());
        self.bytes.extend_from_slice(body);
        self.data.push(Held { index, k: 0, at, length: SIZE + body.len() });
        true
    }

    /// Whether the first `count` data shards are there.
    fn has_all(&self, count: u8) -> bool {
        self.present.trailing_ones() >= u32::from(count)
    }

    /// The group is over; returns how many bytes that frees.
    fn end(&mut self) -> usize {
        self.is_over = true;
        (self.data, self.parity) = (Vec::new(), Vec::new());
        std::mem::take(&mut self.bytes).len()
    }

    /// Rebuilds what can be: of all data that the parity covers, or else of less.
    fn rebuild(&mut self) -> Vec<Vec<u8>> {
        let mut most = u8::MAX;
        while let Some(k) = self.parity.iter().map(|held| held.k).filter(|k| *k < most).max() {
            most = k;
            let missing: Vec<u8> = (0..k).filter(|index| self.present & 1 << index == 0).collect();
            let Some(&first) = missing.first() else { break };
            // Parity that covers nothing of what is missing is of no use.
            let useful = |held: &&Held| held.k <= k && held.k > first;
            let parity: Vec<Held> = self.parity.iter().filter(useful).copied().collect();
            if parity.len() < missing.len() {
                continue;
            }
            let heads: Vec<_> = parity.iter().map(|held| (held.index, held.k)).collect();
            if let Some(factors) = solve(&missing, &heads) {
                return self.combine(&missing, &parity, &factors);
            }
        }
        Vec::new()
    }

    fn combine(&mut self, missing: &[u8], parity: &[Held], factors: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let k = parity.iter().map(|held| held.k).max().unwrap_or(0);
        let known = || self.data.iter().filter(|held| held.index < k);
        let stride = known().chain(parity).map(|held| held.length).max().unwrap_or(0);
        let mut sums = vec![0; stride * missing.len()];
        let of = |held: &Held| self.bytes.get(held.at..held.at + held.length).unwrap_or_default();
        for (row, held) in parity.iter().enumerate() {
            let column: Vec<u8> = factors.iter().map(|line| line[row]).collect();
            gf256::multiply_add(&column, of(held), &mut sums, stride);
        }
        for held in known() {
            // What the parity has of this shard is taken out again.
            let part = |line: &Vec<u8>| {
                let parts = line.iter().zip(parity).filter(|(_, parity)| held.index < parity.k);
                parts.fold(0, |sum, (factor, parity)| {
                    sum ^ gf256::multiply(*factor, coefficient(held.index, parity.index))
                })
            };
            let column: Vec<u8> = factors.iter().map(part).collect();
            gf256::multiply_add(&column, of(held), &mut sums, stride);
        }
        let mut rebuilt = Vec::new();
        for (index, sum) in missing.iter().zip(sums.chunks_exact(stride.max(1))) {
            let Some((size, rest)) = sum.split_first_chunk::<SIZE>() else { continue };
            let size = u16::from_be_bytes(*size);
            // Of a peer that adds up something else.
            let Some(body) = rest.get(..usize::from(size)) else { continue };
            if self.insert(*index, size, body) {
                rebuilt.push(body.to_vec());
            }
        }
        rebuilt
    }
}
