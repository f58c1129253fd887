//! Masking (RFC 6455 section 5.3): payload XOR a key of four bytes, which repeats.

use bytes::BytesMut;

/// The number of bytes that are appended at a time: zeros first, then the masked bytes over them,
/// which are then still in the first-level cache.
const BLOCK: usize = 4 << 10;

/// The number of bytes masked together, enough for the compiler to use the vector registers of any
/// processor. One pass loads, masks and stores them. Two passes, a copy and a mask in place, take
/// twice as long even where both stay in the first-level cache.
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
        let length = bytes.len();
        self.take_down(bytes, 0, 0, length);
    }

    /// Masks the next bytes of the payload from `payload` into `out`, which has the same length.
    pub(crate) fn copy(&mut self, payload: &[u8], out: &mut [u8]) {
        let wide = self.wide();
        let (mut from, mut to) = (payload.chunks_exact(WIDE), out.chunks_exact_mut(WIDE));
        for (from, to) in (&mut from).zip(&mut to) {
            for ((to, from), key) in to.iter_mut().zip(from).zip(&wide) {
                *to = from ^ key;
            }
        }
        let rest = to.into_remainder().iter_mut().zip(from.remainder());
        for ((to, from), key) in rest.zip(&wide) {
            *to = from ^ key;
        }
        self.rotate(payload.len());
    }

    /// Appends the next bytes of the payload to `out`, masked.
    pub(crate) fn append(&mut self, payload: &[u8], out: &mut BytesMut) {
        for block in payload.chunks(BLOCK) {
            let at = out.len();
            out.resize(at + block.len(), 0);
            self.copy(block, &mut out[at..]);
        }
    }

    /// Unmasks the next bytes of the payload, which lie in `bytes` at `from`, and moves them down
    /// to `to`.
    pub(crate) fn take_down(&mut self, bytes: &mut [u8], from: usize, to: usize, length: usize) {
        let wide = self.wide();
        let (window, distance) = (&mut bytes[to..from + length], from - to);
        let mut at = 0;
        while at + WIDE <= length {
            // The store of one block never reaches the load of the next.
            let part = &mut window[at..at + distance + WIDE];
            let mut block = [0; WIDE];
            block.copy_from_slice(&part[distance..]);
            for (byte, key) in block.iter_mut().zip(&wide) {
                *byte ^= key;
            }
            part[..WIDE].copy_from_slice(&block);
            at += WIDE;
        }
        for (i, key) in (at..length).zip(&wide) {
            window[i] = window[i + distance] ^ key;
        }
        self.rotate(length);
    }

    /// The key of the next bytes, repeated.
    fn wide(self) -> [u8; WIDE] {
        let mut wide = [0; WIDE];
        for part in wide.chunks_exact_mut(4) {
            part.copy_from_slice(&self.key);
        }
        wide
    }

    /// Rotates the key behind `length` bytes.
    fn rotate(&mut self, length: usize) {
        self.key.rotate_left(length % 4);
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

            let mut copied = vec![0; payload.len()];
            let mut mask = Mask::new(key);
            for pair in cuts.windows(2) {
                mask.copy(&payload[pair[0]..pair[1]], &mut copied[pair[0]..pair[1]]);
            }
            prop_assert_eq!(&copied[..], &wanted[..]);

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
