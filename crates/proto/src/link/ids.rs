//! Maps ids of streams and flows to indices in their slabs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Ids are dense small numbers and bounded by limits, so one multiplication is a sufficient hash: a
/// peer gains nothing by choosing its ids.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Spread(u64);

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

/// Slab indices by ids of one kind.
#[derive(Debug)]
pub(crate) struct Ids<K>(HashMap<K, usize, BuildHasherDefault<Spread>>);

impl<K> Default for Ids<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Copy + Eq + Hash> Ids<K> {
    pub(crate) fn find(&self, id: K) -> Option<usize> {
        self.0.get(&id).copied()
    }

    pub(crate) fn insert(&mut self, id: K, index: usize) {
        self.0.insert(id, index);
    }

    pub(crate) fn remove(&mut self, id: K) {
        self.0.remove(&id);
    }
}
