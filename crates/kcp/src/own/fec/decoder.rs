//! Keeps the shards of the last groups, and rebuilds data shards.
//!
//! Buffers are reused, so that a decoder allocates nothing per packet in steady state.

use std::collections::VecDeque;

use super::code::{DATA_MAX, Matrix, PARITY_MAX, coefficient};
use super::encoder::Parity;
use super::load::{Load, SIZE};
use crate::own::wire::{Group, Shard};

/// The number of remembered groups. Older groups count as complete.
const GROUPS: usize = 512;

/// A group without a missing shard, or without parity, is complete once it is this number of groups
/// behind the newest group. Parity that has not arrived by then was lost.
const SETTLED: usize = 8;

/// If settled groups have more bytes than this limit, only the last [`RECENT`] groups wait for
/// parity. Eight groups of full Ethernet packets have 0.7 MB, but packets on loopback are eleven
/// times as long.
const SETTLED_BYTES: usize = 1 << 20;
const RECENT: usize = 2;

/// Limits of the free buffers of complete groups: their number, and their bytes.
const SPARE: usize = 8;
const SPARE_BYTES: usize = 2 << 20;

/// The counters of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data shards that were rebuilt.
    pub rebuilt: u64,
    /// Parity shards that arrived.
    pub parity_in: u64,
    /// Useless shards: their group is complete, or the shard had arrived before, or the shard is
    /// invalid.
    pub useless: u64,
}

/// Rebuilt bodies. The caller owns the list, and clears it for the next call.
#[derive(Debug, Default)]
pub struct Rebuilt {
    bytes: Vec<u8>,
    /// The end of each body.
    bodies: Vec<(Load, usize)>,
}

impl Rebuilt {
    /// The bodies with their kinds.
    pub fn iter(&self) -> impl Iterator<Item = (Load, &[u8])> {
        let mut begin = 0;
        self.bodies.iter().map(move |(load, end)| {
            let body = self.bytes.get(begin..*end).unwrap_or_default();
            begin = *end;
            (*load, body)
        })
    }

    /// The number of bodies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bodies.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Removes all bodies and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bodies.clear();
    }

    fn push(&mut self, load: Load, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        self.bodies.push((load, self.bytes.len()));
    }
}

/// The position of an arrived shard in `Store::bytes`. The bytes of a data shard begin with the
/// size.
#[derive(Clone, Copy, Debug)]
struct Held {
    index: u8,
    /// For a parity shard: the number of data shards in its sum.
    k: u8,
    at: usize,
    length: usize,
}

/// The shards of a group that is not complete.
#[derive(Debug, Default)]
struct Store {
    bytes: Vec<u8>,
    data: Vec<Held>,
    parity: Vec<Held>,
}

impl Store {
    /// Makes room for a shard, and for half as many shards as there are. A vector would double its
    /// capacity, and keep twice the bytes of a group.
    fn reserve(&mut self, length: usize) {
        if self.bytes.capacity() - self.bytes.len() < length {
            self.bytes.reserve_exact(length + self.bytes.len() / 2);
        }
    }
}

#[derive(Debug, Default)]
struct Shards {
    group: Group,
    /// The number of data shards of the group. `None` until the end of the group is known.
    size: Option<u8>,
    /// A bit for each data shard that is present. The bits stay after the group is complete.
    present: u64,
    /// `None` once the group is complete.
    store: Option<Box<Store>>,
}

/// Room for the equations of a group.
#[derive(Debug, Default)]
struct Scratch {
    matrix: Matrix,
    parity: Vec<Held>,
    heads: Vec<(u8, u8)>,
    sums: Vec<u8>,
}

/// Rebuilds the data shards of one direction.
#[derive(Debug)]
pub struct Decoder {
    /// The groups in the order of their numbers.
    groups: VecDeque<Shards>,
    /// Groups before the first one were forgotten.
    has_forgotten: bool,
    /// The bytes of all groups, and their limit.
    bytes: usize,
    most: usize,
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    spare: Vec<Box<Store>>,
    spare_bytes: usize,
    scratch: Scratch,
    counters: Counters,
}

impl Decoder {
    /// A decoder that keeps at most `most` bytes of shards. If that is less than the bytes that
    /// arrive in two round trips, the sender retransmits some shards that parity would have
    /// rebuilt.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            has_forgotten: false,
            bytes: 0,
            most,
            spare: Vec::new(),
            spare_bytes: 0,
            scratch: Scratch::default(),
            counters: Counters::default(),
        }
    }

    /// Keeps at most `most` bytes of shards from now on.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
        self.trim();
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of shards that are kept.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.bytes
    }

    /// Bytes of shards that are kept, and of buffers for the next shards.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.bytes + self.spare_bytes
    }

    /// Adds a data shard. The caller uses the shard itself if this returns `true`. `false`: the
    /// shard had arrived before, or was rebuilt, or its group is too old. Appends shards that can
    /// be rebuilt now to `rebuilt`.
    pub fn data(&mut self, shard: Shard, load: Load, body: &[u8], rebuilt: &mut Rebuilt) -> bool {
        let size = load.size(body.len());
        let is_possible = usize::from(shard.index) < DATA_MAX;
        let slot = if is_possible { self.slot(shard.group) } else { None };
        let Some((size, slot)) = size.zip(slot) else { return self.refuse() };
        let group = &mut self.groups[slot];
        if group.present & 1 << shard.index != 0 {
            return self.refuse();
        }
        self.bytes += group.insert(shard.index, size, body);
        self.rebuild(slot, rebuilt);
        true
    }

    /// Adds a parity shard. Appends shards that can be rebuilt now to `rebuilt`.
    pub fn parity(&mut self, head: Parity, parity: &[u8], rebuilt: &mut Rebuilt) {
        let Parity { shard, k, is_final } = head;
        self.counters.parity_in += 1;
        let is_possible = usize::from(shard.index) < PARITY_MAX
            && (1..=DATA_MAX).contains(&usize::from(k))
            && parity.len() >= SIZE;
        let slot = if is_possible { self.slot(shard.group) } else { None };
        let Some(group) = slot.and_then(|slot| self.groups.get_mut(slot)) else {
            self.refuse();
            return;
        };
        let is_new =
            |store: &&mut Box<Store>| store.parity.iter().all(|held| held.index != shard.index);
        let Some(store) = group.store.as_mut().filter(is_new) else {
            self.refuse();
            return;
        };
        if is_final {
            group.size = Some(k);
        }
        let (at, length) = (store.bytes.len(), parity.len());
        store.reserve(length);
        store.bytes.extend_from_slice(parity);
        store.parity.push(Held { index: shard.index, k, at, length });
        self.bytes += length;
        self.rebuild(slot.unwrap_or(0), rebuilt);
    }

    /// Releases all memory. Open groups count as complete. The last groups are remembered, so that
    /// none of their shards is accepted twice.
    pub fn rest(&mut self) {
        for group in &mut self.groups {
            group.store = None;
        }
        self.bytes = 0;
        self.has_forgotten |= self.groups.len() > SETTLED;
        self.groups.drain(..self.groups.len().saturating_sub(SETTLED));
        self.groups.shrink_to(SETTLED);
        self.spare = Vec::new();
        self.spare_bytes = 0;
        self.scratch = Scratch::default();
    }

    fn refuse(&mut self) -> bool {
        self.counters.useless += 1;
        false
    }

    /// The index of a group. A new group is added. `None` if the group is too old.
    fn slot(&mut self, group: Group) -> Option<usize> {
        let behind =
            self.groups.iter().rev().take_while(|held| held.group.since(group) > 0).count();
        let slot = self.groups.len() - behind;
        if slot > 0 && self.groups[slot - 1].group == group {
            return Some(slot - 1);
        }
        if slot == 0 && !self.groups.is_empty() && self.has_forgotten {
            return None;
        }
        // A jump by half of the number space would disorder the groups.
        let newest = self.groups.back().map_or(group, |newest| newest.group);
        if newest.since(group) > i16::MAX / 2 || group.since(newest) > i16::MAX / 2 {
            return None;
        }
        self.settle();
        let store = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= store.bytes.capacity();
        let store = Some(store);
        self.groups.insert(slot, Shards { group, store, ..Shards::default() });
        if self.groups.len() > GROUPS {
            self.end(0);
            self.groups.pop_front();
            self.has_forgotten = true;
            return slot.checked_sub(1);
        }
        Some(slot)
    }

    fn rebuild(&mut self, slot: usize, rebuilt: &mut Rebuilt) {
        let group = &mut self.groups[slot];
        let before = rebuilt.len();
        self.bytes += group.rebuild(&mut self.scratch, rebuilt);
        self.counters.rebuilt += (rebuilt.len() - before) as u64;
        // A group with the maximum number of shards has ended even if no shard has announced it.
        if group.has_all(group.size.unwrap_or(DATA_MAX as u8)) {
            self.end(slot);
        }
        self.trim();
    }

    /// The group at this index is complete. Its buffer is kept for another group.
    fn end(&mut self, slot: usize) {
        let store = self.groups.get_mut(slot).and_then(|group| group.store.take());
        let Some(mut store) = store else { return };
        self.bytes -= store.bytes.len();
        let bytes = self.spare_bytes + store.bytes.capacity();
        if self.spare.len() < SPARE && bytes <= SPARE_BYTES {
            self.spare_bytes = bytes;
            store.bytes.clear();
            store.data.clear();
            store.parity.clear();
            self.spare.push(store);
        }
    }

    /// Drops older settled groups if they have too many bytes. Called when a group begins.
    fn settle(&mut self) {
        if self.bytes <= SETTLED_BYTES {
            return;
        }
        for slot in 0..self.groups.len().saturating_sub(RECENT) {
            if self.groups.get(slot).is_some_and(Shards::is_settled) {
                self.end(slot);
            }
        }
    }

    /// Drops settled groups, and then the oldest groups until the limit is kept.
    fn trim(&mut self) {
        if let Some(settled) = self.groups.len().checked_sub(SETTLED + 1)
            && self.groups.get(settled).is_some_and(Shards::is_settled)
        {
            self.end(settled);
        }
        let mut oldest = 0;
        while self.bytes > self.most && oldest < self.groups.len() {
            self.end(oldest);
            oldest += 1;
        }
    }
}

impl Shards {
    /// Marks a data shard as present, and keeps it unless the group is complete. Returns the number
    /// of kept bytes.
    fn insert(&mut self, index: u8, size: [u8; SIZE], body: &[u8]) -> usize {
        self.present |= 1 << index;
        let Some(store) = &mut self.store else { return 0 };
        let (at, length) = (store.bytes.len(), SIZE + body.len());
        store.reserve(length);
        store.bytes.extend(size);
        store.bytes.extend_from_slice(body);
        store.data.push(Held { index, k: 0, at, length });
        length
    }

    /// Whether the first `count` data shards are present.
    fn has_all(&self, count: u8) -> bool {
        self.present.trailing_ones() >= u32::from(count)
    }

    /// Whether nothing can be rebuilt if no further parity arrives.
    fn is_settled(&self) -> bool {
        let Some(store) = &self.store else { return false };
        store.parity.iter().map(|held| held.k).max().is_none_or(|k| self.has_all(k))
    }

    /// Rebuilds missing shards of all data that the parity covers, or of a shorter prefix. Returns
    /// the number of kept bytes.
    fn rebuild(&mut self, scratch: &mut Scratch, rebuilt: &mut Rebuilt) -> usize {
        let mut most = u8::MAX;
        loop {
            let Some(store) = &self.store else { return 0 };
            let Some(k) = store.parity.iter().map(|held| held.k).filter(|k| *k < most).max() else {
                return 0;
            };
            most = k;
            let mut missing = [0; DATA_MAX];
            let indices = (0..k).filter(|index| self.present & 1 << index == 0);
            let count = indices.zip(&mut missing).map(|(index, slot)| *slot = index).count();
            let missing = missing.get(..count).unwrap_or_default();
            let Some(&first) = missing.first() else { return 0 };
            // Parity that covers no missing shard is useless.
            let useful = |held: &&Held| held.k <= k && held.k > first;
            scratch.parity.clear();
            scratch.parity.extend(store.parity.iter().filter(useful));
            if scratch.parity.len() < missing.len() {
                continue;
            }
            scratch.heads.clear();
            scratch.heads.extend(scratch.parity.iter().map(|held| (held.index, held.k)));
            if scratch.matrix.solve(missing, &scratch.heads).is_some() {
                store.combine(missing, scratch);
                return self.take_sums(missing, scratch, rebuilt);
            }
        }
    }

    /// Takes the rebuilt shards out of the sums.
    fn take_sums(&mut self, missing: &[u8], scratch: &Scratch, rebuilt: &mut Rebuilt) -> usize {
        let stride = scratch.sums.len() / missing.len().max(1);
        let mut bytes = 0;
        for (index, sum) in missing.iter().zip(scratch.sums.chunks_exact(stride.max(1))) {
            let Some((size, rest)) = sum.split_first_chunk::<SIZE>() else { continue };
            let (load, length) = Load::of(*size);
            // The sum of the peer does not match the data.
            let Some(body) = rest.get(..length) else { continue };
            bytes += self.insert(*index, *size, body);
            rebuilt.push(load, body);
        }
        bytes
    }
}

impl Store {
    /// Computes the missing shards. Their sums are consecutive in memory.
    fn combine(&self, missing: &[u8], scratch: &mut Scratch) {
        let Scratch { matrix, parity, sums, .. } = scratch;
        let k = parity.iter().map(|held| held.k).max().unwrap_or(0);
        let known = || self.data.iter().filter(|held| held.index < k);
        let stride = known().chain(&*parity).map(|held| held.length).max().unwrap_or(0);
        sums.clear();
        sums.resize(stride * missing.len(), 0);
        let of = |held: &Held| self.bytes.get(held.at..held.at + held.length).unwrap_or_default();
        let mut column = [0; DATA_MAX];
        let column = column.get_mut(..missing.len()).unwrap_or_default();
        for (row, held) in parity.iter().enumerate() {
            for (wanted, factor) in column.iter_mut().enumerate() {
                *factor = matrix.factor(wanted, row);
            }
            gf256::multiply_add(column, of(held), sums, stride);
        }
        for held in known() {
            // The known shard is subtracted from the parity.
            for (wanted, factor) in column.iter_mut().enumerate() {
                let parts = parity.iter().enumerate().filter(|(_, of)| held.index < of.k);
                *factor = parts.fold(0, |sum, (row, of)| {
                    let part = coefficient(held.index, of.index);
                    sum ^ gf256::multiply(matrix.factor(wanted, row), part)
                });
            }
            gf256::multiply_add(column, of(held), sums, stride);
        }
    }
}
