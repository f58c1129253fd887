//! Masking (RFC 6455 section 5.3): payload XOR a key of four bytes, which repeats.

use bytes::BytesMut;

/// The number of bytes that are copied and masked at a time, so that both passes stay in the
/// first-level cache.
const BLOCK: usize = 8 << 10;

/// The number of bytes masked together, enough for the compiler to use the vector registers of any
/// processor.
const WIDE: usize = 64;

/// A masking key, rotated to a position in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    /// The first byte of the key belongs to the next byte of the payload.
    key: [u8; 4],
}

impl Mask {
    pub(crate) const fn new(key: [u8; 4]) -> Self {
        Self { key }
    }

    /// Masks or unmasks the next bytes of the payload in place.
    pub(crate) fn apply(&mut self, bytes: &mut [u8]) {
        let mut wide = [0; WIDE];
        for part in wide.chunks_exact_mut(4) {
            part.copy_from_slice(&self.key);
        }
        let mut blocks = bytes.chunks_exact_mut(WIDE);
        for block in &mut blocks {
            for (byte, key) in block.iter_mut().zip(&wide) {
                *byte ^= key;
            }
        }
        let rest = blocks.into_remainder();
        for (byte, key) in rest.iter_mut().zip(&wide) {
            *byte ^= key;
        }
        self.key.rotate_left(rest.len() % 4);
    }

    /// Appends the next bytes of the payload to `out`, masked.
    pub(crate) fn append(&mut self, payload: &[u8], out: &mut BytesMut) {
        for block in payload.chunks(BLOCK) {
            let at = out.len();
            out.extend_from_slice(block);
            self.apply(&mut out[at..]);
        }
    }

    /// Unmasks the next bytes of the payload, which lie in `bytes` at `from`, and moves them down
    /// to `to`.
    pub(crate) fn take_down(&mut self, bytes: &mut [u8], from: usize, to: usize, length: usize) {
        let mut done = 0;
        while done < length {
            let size = BLOCK.min(length - done);
            bytes.copy_within(from + done..from + done + size, to + done);
            self.apply(&mut bytes[to + done..to + done + size]);
            done += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stupid(key: [u8; 4], payload: &[u8]) -> Vec<u8> {
        payload.iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect()
    }

    proptest! {
        #[test]
        fn every_way_of_masking_is_the_rule(
            key: [u8; 4],
            payload in proptest::collection::vec(any::<u8>(), 0..20_000),
            cuts in proptest::collection::vec(0_usize..20_000, 0..6),
            shift in 0_usize..20,
        ) {
            let wanted = stupid(key, &payload);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(payload.len())).collect();
            cuts.extend([0, payload.len()]);
            cuts.sort_unstable();

            let (mut mask, mut out) = (Mask::new(key), BytesMut::new());
            for pair in cuts.windows(2) {
                mask.append(&payload[pair[0]..pair[1]], &mut out);
            }
            prop_assert_eq!(&out[..], &wanted[..]);

            let mut moved = vec![0; shift];
            moved.extend_from_slice(&payload);
            let mut mask = Mask::new(key);
            for pair in cuts.windows(2) {
                mask.take_down(&mut moved, pair[0] + shift, pair[0], pair[1] - pair[0]);
            }
            prop_assert_eq!(&moved[..payload.len()], &wanted[..]);
        }
    }
}
