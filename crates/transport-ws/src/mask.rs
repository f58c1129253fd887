//! Masking (RFC 6455 section 5.3): payload XOR a key of four bytes, which repeats.

use bytes::BytesMut;

/// The number of bytes that are appended at a time: zeros first, then the masked bytes over them,
/// which are then still in the first-level cache.
const BLOCK: usize = 4 << 10;

/// The number of bytes masked together, eight words. One pass loads, masks and stores them. Two
/// passes, a copy and a mask in place, take twice as long even where both stay in the first-level
/// cache.
const WIDE: usize = 64;

/// Masks eight words. They are words and not bytes because the program is linked with the
/// optimisation level for size, at which nothing is vectorised: a loop over bytes took 0.5 CPU-s
/// per GB and end.
fn masked(block: &[u8; WIDE], key: u64) -> [u8; WIDE] {
    let mut out = [0; WIDE];
    let (from, _) = block.as_chunks::<8>();
    let (to, _) = out.as_chunks_mut::<8>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = (u64::from_ne_bytes(*from) ^ key).to_ne_bytes();
    }
    out
}

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
        let key = self.word();
        let (from, rest) = payload.as_chunks::<WIDE>();
        let (to, rest_out) = out.as_chunks_mut::<WIDE>();
        for (to, from) in to.iter_mut().zip(from) {
            *to = masked(from, key);
        }
        for ((to, from), key) in rest_out.iter_mut().zip(rest).zip(self.key.iter().cycle()) {
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
        let key = self.word();
        let (window, distance) = (&mut bytes[to..from + length], from - to);
        let mut at = 0;
        while at + WIDE <= length {
            // The store of one block never reaches the load of the next.
            let Some(block) = window[at + distance..].first_chunk() else { break };
            let block = masked(block, key);
            window[at..at + WIDE].copy_from_slice(&block);
            at += WIDE;
        }
        for (i, key) in (at..length).zip(self.key.iter().cycle()) {
            window[i] = window[i + distance] ^ key;
        }
        self.rotate(length);
    }

    /// The key of the next bytes, repeated.
    fn word(self) -> u64 {
        let [a, b, c, d] = self.key;
        u64::from_ne_bytes([a, b, c, d, a, b, c, d])
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
