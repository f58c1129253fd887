//! Nonces. kcp-go draws each at random, because one key serves both directions and all sessions:
//! counters of two senders would collide.

use std::io;

/// Bytes that are drawn at once: a call of the system costs more than a hundred nonces.
const BLOCK: usize = 4096;

/// Random bytes of the system, drawn in blocks. None is given out twice.
#[derive(Debug)]
pub(crate) struct Nonces {
    block: Box<[u8]>,
    used: usize,
}

impl Nonces {
    pub(crate) fn new() -> Self {
        Self { block: vec![0; BLOCK].into(), used: BLOCK }
    }

    /// Makes sure that `count` bytes are there, at most [`BLOCK`].
    pub(crate) fn reserve(&mut self, count: usize) -> io::Result<()> {
        if self.block.len() - self.used < count {
            getrandom::fill(&mut self.block)
                .map_err(|error| io::Error::other(error.to_string()))?;
            self.used = 0;
        }
        Ok(())
    }

    /// Fills `to`; `false` where less was reserved, and nothing may be sent.
    pub(crate) fn fill(&mut self, to: &mut [u8]) -> bool {
        let Some(from) = self.block.get(self.used..self.used + to.len()) else { return false };
        to.copy_from_slice(from);
        self.used += to.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_nonce_is_given_out_twice() {
        let mut nonces = Nonces::new();
        assert!(!nonces.fill(&mut [0; 12]), "nothing was reserved");
        let mut seen = HashSet::new();
        for _ in 0..5_000 {
            let mut nonce = [0; 12];
            nonces.reserve(12).unwrap();
            assert!(nonces.fill(&mut nonce));
            assert!(seen.insert(nonce));
        }
    }
}
