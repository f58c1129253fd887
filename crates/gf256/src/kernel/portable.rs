//! The kernel without instructions of its own. The compiler makes vectors of its loops; on x86-64
//! those are of SSE2, on ARM of NEON.

use crate::field::POLYNOMIAL;

/// Bytes that are worked on together: two vectors of 128 bits.
const BLOCK: usize = 32;

/// Adds `by[n] * source` to target `n`. All slices have the same length.
pub(super) fn pass<const N: usize>(by: [u8; N], source: &[u8], mut targets: [&mut [u8]; N]) {
    // Bit `b` of each coefficient, spread over a byte.
    let masks: [[u8; 8]; N] = by.map(|by| std::array::from_fn(|b| 0_u8.wrapping_sub(by >> b & 1)));
    let mut at = 0;
    let (blocks, rest) = source.as_chunks::<BLOCK>();
    for block in blocks {
        block_of(&masks, *block, &mut targets, at);
        at += BLOCK;
    }
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    if !rest.is_empty() {
        block_of(&masks, block, &mut targets, at);
    }
}

fn block_of<const N: usize>(
    masks: &[[u8; 8]; N],
    mut block: [u8; BLOCK],
    targets: &mut [&mut [u8]; N],
    at: usize,
) {
    let mut sums = [[0; BLOCK]; N];
    for bit in 0..8 {
        for (sum, masks) in sums.iter_mut().zip(masks) {
            for (sum, byte) in sum.iter_mut().zip(block) {
                *sum ^= byte & masks[bit];
            }
        }
        for byte in &mut block {
            // All ones where the highest bit is set.
            let carry = (byte.cast_signed() >> 7).cast_unsigned();
            *byte = (*byte << 1) ^ (carry & POLYNOMIAL);
        }
    }
    for (target, sum) in targets.iter_mut().zip(sums) {
        for (byte, sum) in target[at..].iter_mut().zip(sum) {
            *byte ^= sum;
        }
    }
}
