//! Used nonces: a datagram with a used nonce is a copy.
//!
//! kcp-go has no protection against copies, and one key for both directions. A copy by the network
//! does no harm to a stream. A datagram that an attacker sends back to its sender would count as a
//! datagram of the peer. So received nonces and sent nonces are remembered.

/// The nonces that are remembered by default.
pub const NONCES: usize = 4096;

/// Nonces share a row by their hash. The oldest nonce of a full row is dropped.
const WAYS: usize = 4;

/// The capacity at first, and at rest.
const FIRST: usize = 256;

/// A bounded set of nonces, which starts small and grows with traffic. Each takes 8 bytes.
///
/// Two random nonces count as equal with a probability of 2^-64.
#[derive(Debug)]
pub struct Nonces {
    most: usize,
    /// Rows of [`WAYS`] nonces, each from new to old. 0 is an empty slot. Empty before the first
    /// nonce.
    rows: Vec<u64>,
    /// The number of insertions since the last growth.
    inserted: usize,
}

impl Nonces {
    /// An empty set of at most `most` nonces, rounded up to a power of two. With 0 the set stays
    /// empty.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = if most == 0 { 0 } else { most.max(WAYS).next_power_of_two() };
        Self { most, rows: Vec::new(), inserted: 0 }
    }

    /// Adds a nonce. `false`: the nonce was present.
    pub fn insert(&mut self, nonce: &[u8]) -> bool {
        if self.most == 0 {
            return true;
        }
        if self.rows.is_empty() {
            self.resize(FIRST.min(self.most));
        } else if self.inserted >= self.rows.len() && self.rows.len() < self.most {
            self.resize(self.rows.len() * 2);
        }
        self.inserted += 1;
        self.put(hash(nonce))
    }

    /// Gives memory back, and keeps the newest nonces.
    pub fn rest(&mut self) {
        if self.rows.len() > FIRST {
            self.resize(FIRST);
        }
    }

    fn put(&mut self, hash: u64) -> bool {
        let rows = self.rows.len() / WAYS;
        let row = usize::try_from(hash >> 32).unwrap_or(0) & (rows - 1);
        let Some(row) = self.rows.get_mut(row * WAYS..(row + 1) * WAYS) else { return true };
        if row.contains(&hash) {
            return false;
        }
        row.rotate_right(1);
        row[0] = hash;
        true
    }

    fn resize(&mut self, length: usize) {
        let before = std::mem::replace(&mut self.rows, vec![0; length]);
        self.inserted = 0;
        // From old to new.
        for way in (0..WAYS).rev() {
            for hash in before.iter().skip(way).step_by(WAYS).filter(|hash| **hash != 0) {
                self.put(*hash);
            }
        }
    }
}

/// Nonces may be random, or may count in any of their bytes.
fn hash(nonce: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = ODD;
    for chunk in nonce.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(ODD);
        hash ^= hash >> 29;
    }
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_new_once() {
        let mut nonces = Nonces::new(NONCES);
        for n in 0..10_000_u64 {
            let mut nonce = [7; 12];
            nonce[4..].copy_from_slice(&n.to_be_bytes());
            assert!(nonces.insert(&nonce), "{n}");
            assert!(!nonces.insert(&nonce), "{n}");
        }
        assert_eq!(nonces.rows.len(), NONCES);
    }

    #[test]
    fn the_newest_nonces_survive_growth_and_rest() {
        let mut nonces = Nonces::new(NONCES);
        let nonce = |n: u64| n.to_le_bytes();
        (0..2000).for_each(|n| assert!(nonces.insert(&nonce(n))));
        let known = (1500..2000).filter(|n| !nonces.insert(&nonce(*n))).count();
        assert!(known > 490, "{known}");
        nonces.rest();
        assert_eq!(nonces.rows.len(), FIRST);
        let known = (1990..2000).filter(|n| !nonces.insert(&nonce(*n))).count();
        assert!(known > 5, "{known}");
    }

    #[test]
    fn a_set_without_room_knows_nothing() {
        let mut nonces = Nonces::new(0);
        assert!(nonces.insert(b"abc") && nonces.insert(b"abc"));
        nonces.rest();
    }
}
