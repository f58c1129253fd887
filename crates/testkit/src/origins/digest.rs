//! Test data and its fingerprint. Both are fast even without optimisation, because tests move
//! hundreds of megabytes.

use std::sync::LazyLock;

/// Length of the repeated block: a prime, so that data displaced by any buffer size differs.
const BLOCK: usize = 65_521;

/// The block is made once per process: without optimisation that takes milliseconds. The second
/// half repeats the first, so that a whole block follows every offset.
static DATA: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // xorshift64 (Marsaglia 2003); the seed is arbitrary.
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block: Vec<u8> = std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    })
    .take(BLOCK)
    .collect();
    block.extend_from_within(..);
    block
});

/// Data with a fixed byte at each offset and no short period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern;

impl Pattern {
    /// Bytes from `offset` on: at least 1, at most `most` (which is not 0).
    #[must_use]
    pub fn at(&self, offset: u64, most: u64) -> &'static [u8] {
        let start = (offset % BLOCK as u64) as usize;
        &DATA[start..start + most.min(BLOCK as u64) as usize]
    }

    /// The fingerprint of the first `length` bytes.
    #[must_use]
    pub fn digest(&self, length: u64) -> Digest {
        let mut digest = Digest::default();
        while digest.length() < length {
            digest.update(self.at(digest.length(), length - digest.length()));
        }
        digest
    }
}

/// A fingerprint of a byte sequence. It does not depend on how the sequence is cut. Not
/// cryptographic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    state: u64,
    length: u64,
    /// Bytes since the last whole word, in the low end.
    partial: u64,
}

impl Digest {
    /// Adds the next bytes.
    pub fn update(&mut self, mut data: &[u8]) {
        while !self.length.is_multiple_of(8)
            && let Some((&byte, rest)) = data.split_first()
        {
            self.byte(byte);
            data = rest;
        }
        let (words, rest) = data.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        self.length += 8 * words.len() as u64;
        for &byte in rest {
            self.byte(byte);
        }
    }

    /// The number of bytes in the fingerprint.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    fn byte(&mut self, byte: u8) {
        self.partial |= u64::from(byte) << (8 * (self.length % 8));
        self.length += 1;
        if self.length.is_multiple_of(8) {
            let word = std::mem::take(&mut self.partial);
            self.mix(word);
        }
    }

    /// A round of FxHash with a stronger rotation: the order of words matters, and words of zero
    /// change the result.
    fn mix(&mut self, word: u64) {
        self.state =
            (self.state.rotate_left(23) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95).wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_the_cuts_and_does_on_order() {
        let pattern = Pattern;
        let whole = pattern.digest(1000);
        let mut bytes = pattern.at(0, 1000).to_vec();
        for step in 1..20 {
            let mut cut = Digest::default();
            bytes.chunks(step).for_each(|chunk| cut.update(chunk));
            assert_eq!(cut, whole);
        }
        bytes.swap(500, 508);
        let mut swapped = Digest::default();
        swapped.update(&bytes);
        assert_ne!(swapped, whole);
    }

    #[test]
    fn the_pattern_continues_across_its_block() {
        let pattern = Pattern;
        assert_eq!(pattern.at(65_500, 50)[21..], pattern.at(0, 50)[..29]);
    }
}
