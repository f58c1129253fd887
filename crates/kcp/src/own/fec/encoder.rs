//! Computes parity while data shards are sent, without keeping the data shards.

use super::code::{DATA_MAX, PARITY_MAX, coefficient};
use super::load::{Load, SIZE};
use crate::own::wire::{Group, Shard};

/// The header of a parity shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    /// The position of the shard in its group.
    pub shard: Shard,
    /// The number of data shards in the sum: the first data shards of the group.
    pub k: u8,
    /// No data shard follows in the group.
    pub is_final: bool,
}

/// Makes the parity of one direction.
#[derive(Debug, Default)]
pub struct Encoder {
    group: Group,
    is_open: bool,
    /// The data shards of the open group, and their limit.
    data: u8,
    data_most: u8,
    /// The number of parity shards that were sent, and the number of sums.
    taken: u8,
    sums: u8,
    /// Data shards that the last parity shard covers.
    covered: u8,
    /// The sums, consecutive in memory.
    bytes: Vec<u8>,
    stride: usize,
    /// The stride of the next group.
    next_stride: usize,
    /// The used length of the sums, in bytes.
    length: usize,
}

impl Encoder {
    /// An encoder of data shards with at most `longest` bytes.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        let mut encoder = Self::default();
        encoder.set_longest(longest);
        encoder
    }

    /// Data shards of the groups that are opened from now on have at most `longest` bytes.
    pub fn set_longest(&mut self, longest: usize) {
        self.next_stride = (SIZE + longest).next_multiple_of(64);
    }

    /// Whether a body of `length` bytes fits into the open group.
    #[must_use]
    pub const fn takes(&self, length: usize) -> bool {
        SIZE + length <= self.stride
    }

    #[cfg(test)]
    pub(super) const fn group_for_test(&mut self, group: Group) {
        self.group = group;
    }

    /// Whether a group is open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The open group, or the next one.
    #[must_use]
    pub const fn group(&self) -> Group {
        self.group
    }

    /// The data shards of the open group.
    #[must_use]
    pub const fn data(&self) -> u8 {
        self.data
    }

    /// Parity shards of the open group that were made.
    #[must_use]
    pub const fn made(&self) -> u8 {
        self.taken
    }

    /// Whether the open group takes no more data: it has reached its limit of data shards, or all
    /// of its parity was made.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_open && (self.data >= self.data_most || self.taken >= self.sums)
    }

    /// Data shards that no parity shard covers yet.
    #[must_use]
    pub const fn uncovered(&self) -> u8 {
        if self.is_open { self.data - self.covered } else { 0 }
    }

    /// Bytes of the sums.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// The length of the next parity.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Parity shards that can still be made.
    #[must_use]
    pub const fn left(&self) -> u8 {
        if self.is_open { self.sums - self.taken } else { 0 }
    }

    /// Opens a group of at most `data` data shards and `parity` parity shards. The code bounds both
    /// numbers. An open group is closed.
    pub fn open(&mut self, data: usize, parity: usize) {
        self.close();
        self.is_open = true;
        self.data_most = u8::try_from(data.clamp(1, DATA_MAX)).unwrap_or(1);
        self.sums = u8::try_from(parity.clamp(1, PARITY_MAX)).unwrap_or(1);
        self.stride = self.next_stride;
        self.bytes.clear();
        // Each body follows its size, also the last body.
        self.bytes.resize(self.stride * usize::from(self.sums) + SIZE, 0);
    }

    /// Ends the open group.
    pub fn close(&mut self) {
        if self.is_open {
            self.group = self.group.next();
        }
        self.is_open = false;
        (self.data, self.taken, self.covered, self.length) = (0, 0, 0, 0);
    }

    /// Releases the memory unless a group is open.
    pub fn rest(&mut self) {
        if !self.is_open {
            self.bytes = Vec::new();
        }
    }

    /// Takes the body of a data shard. `None` if no group is open, the group is full, or the body
    /// is too long.
    pub fn push(&mut self, load: Load, body: &[u8]) -> Option<Shard> {
        let size = load.size(body.len())?;
        if !self.is_open || self.is_full() || SIZE + body.len() > self.stride {
            return None;
        }
        let index = self.data;
        let coefficients = (self.taken..self.sums).map(|parity| coefficient(index, parity));
        let mut factors = [0; PARITY_MAX];
        let count = coefficients.zip(&mut factors).map(|(from, to)| *to = from).count();
        let factors = factors.get(..count)?;
        let sums = self.bytes.get_mut(usize::from(self.taken) * self.stride..)?;
        gf256::multiply_add(factors, &size, sums, self.stride);
        gf256::multiply_add(factors, body, sums.get_mut(SIZE..)?, self.stride);
        self.data += 1;
        self.length = self.length.max(SIZE + body.len());
        Some(Shard { group: self.group, index })
    }

    /// Appends the next parity shard of all data so far. `is_final`: no data follows.
    pub fn take(&mut self, is_final: bool, to: &mut Vec<u8>) -> Option<Parity> {
        if !self.is_open || self.taken >= self.sums || self.data == 0 {
            return None;
        }
        let parity = self.next(is_final);
        let at = usize::from(self.taken) * self.stride;
        to.extend_from_slice(self.bytes.get(at..at + self.length)?);
        self.taken += 1;
        self.covered = self.data;
        Some(parity)
    }

    /// The header of the next parity shard.
    #[must_use]
    pub const fn next(&self, is_final: bool) -> Parity {
        let shard = Shard { group: self.group, index: self.taken };
        Parity { shard, k: self.data, is_final }
    }
}
