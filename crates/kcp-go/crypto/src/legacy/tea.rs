//! TEA and XTEA (Wheeler and Needham, 1994 and 1997), with big-endian words as kcp-go has them.

use super::cfb::Block;
use crate::KEY;

const DELTA: u32 = 0x9e37_79b9;

/// TEA has 32 cycles; kcp-go stops after 8.
const TEA_CYCLES: u32 = 8;

const XTEA_CYCLES: u32 = 32;

/// TEA with 8 cycles.
pub(super) struct Tea([u32; 4]);

/// XTEA.
pub(super) struct Xtea([u32; 4]);

impl Tea {
    pub(super) fn new(key: &[u8; KEY]) -> Self {
        Self(words(key))
    }
}

impl Xtea {
    pub(super) fn new(key: &[u8; KEY]) -> Self {
        Self(words(key))
    }
}

impl Block<8> for Tea {
    fn encrypt(&self, block: &mut [u8; 8]) {
        let [mut a, mut b] = words(block);
        let [k0, k1, k2, k3] = self.0;
        let mut sum = 0_u32;
        let half = |x: u32, sum: u32, left: u32, right: u32| {
            (x << 4).wrapping_add(left) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(right)
        };
        for _ in 0..TEA_CYCLES {
            sum = sum.wrapping_add(DELTA);
            a = a.wrapping_add(half(b, sum, k0, k1));
            b = b.wrapping_add(half(a, sum, k2, k3));
        }
        write(block, a, b);
    }
}

impl Block<8> for Xtea {
    fn encrypt(&self, block: &mut [u8; 8]) {
        let [mut a, mut b] = words(block);
        let mut sum = 0_u32;
        let half = |x: u32, keyed: u32| (x << 4 ^ x >> 5).wrapping_add(x) ^ keyed;
        let key = |sum: u32, choice: u32| {
            let [k0, k1, k2, k3] = self.0;
            sum.wrapping_add(match choice & 3 {
                0 => k0,
                1 => k1,
                2 => k2,
                _ => k3,
            })
        };
        for _ in 0..XTEA_CYCLES {
            a = a.wrapping_add(half(b, key(sum, sum)));
            sum = sum.wrapping_add(DELTA);
            b = b.wrapping_add(half(a, key(sum, sum >> 11)));
        }
        write(block, a, b);
    }
}

/// The first words of `bytes`.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (all, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|n| all.get(n).map_or(0, |word| u32::from_be_bytes(*word)))
}

fn write(block: &mut [u8; 8], a: u32, b: u32) {
    block[..4].copy_from_slice(&a.to_be_bytes());
    block[4..].copy_from_slice(&b.to_be_bytes());
}
