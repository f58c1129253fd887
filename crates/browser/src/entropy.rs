//! Random bytes from one seed: the page gives 32 bytes of the browser's generator, and each
//! greeting takes its nonce from a chain of hashes.

use std::fmt;

use sha2::{Digest, Sha256};

/// The bytes of a seed.
pub(crate) const SEED: usize = 32;

/// A generator from whose state earlier outputs cannot be recovered.
pub(crate) struct Entropy([u8; SEED]);

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

impl Entropy {
    pub(crate) const fn new(seed: [u8; SEED]) -> Self {
        Self(seed)
    }

    /// The next 32 bytes.
    pub(crate) fn next(&mut self) -> [u8; SEED] {
        let hash = |end: u8| Sha256::new().chain_update(self.0).chain_update([end]).finalize();
        let (given, kept) = (hash(1).into(), hash(0).into());
        self.0 = kept;
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_outputs_are_the_same_and_none_is_the_state() {
        let mut entropy = Entropy::new([7; SEED]);
        let all: std::collections::HashSet<_> =
            (0..100).flat_map(|_| [entropy.next(), entropy.0]).collect();
        assert_eq!(all.len(), 200);
    }
}
