//! From stream ids to places in the slab.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::StreamId;

/// Ids are dense small numbers and bounded by limits, so one multiplication spreads them: no peer
/// gains from choosing them.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, n: u32) {
        // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Debug, Default)]
pub(super) struct Ids(HashMap<StreamId, usize, BuildHasherDefault<Spread>>);

impl Ids {
    pub(super) fn find(&self, id: StreamId) -> Option<usize> {
        self.0.get(&id).copied()
    }

    pub(super) fn insert(&mut self, id: StreamId, index: usize) {
        self.0.insert(id, index);
    }

    pub(super) fn remove(&mut self, id: StreamId) {
        self.0.remove(&id);
    }
}
