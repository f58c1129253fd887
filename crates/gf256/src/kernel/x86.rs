//! The kernels for x86-64.
//!
//! Each function works on whole vectors as long as there are any. The rest, which is shorter than a
//! vector, is the end of one more vector, which overlaps the last one; the bytes that were done are
//! taken for zeros there, whose products change nothing.

#![expect(unsafe_code, reason = "loads and stores of vectors; the one crate that may have it")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_shuffle_epi8,
    _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use crate::field::{MATRICES, NIBBLES};

/// The loop over vectors, as a function would be if functions with target features could be generic
/// over vectors.
macro_rules! sweep {
    ($source:ident, $targets:ident, $bytes:literal, $load:ident, $store:ident, |$x:ident, $n:ident| $product:expr, $xor:ident, $and:ident) => {{
        let length = $source.len();
        assert!($targets.iter().all(|target| target.len() == length), "targets of one length");
        let (vectors, rest) = $source.as_chunks::<$bytes>();
        let mut at = 0;
        for vector in vectors {
            let $x = $load(vector);
            for ($n, target) in $targets.iter_mut().enumerate() {
                // SAFETY: `vectors` are parts of `source`, so the vector ends within its length,
                // which is that of the target: asserted above.
                let target = unsafe { part::<$bytes>(target, at) };
                let sum = $xor($load(target), $product);
                $store(target, sum);
            }
            at += $bytes;
        }
        match $source.last_chunk::<$bytes>() {
            _ if rest.is_empty() => {}
            Some(last) => {
                let at = length - $bytes;
                let mask = &MASK[MASK.len() / 2 - $bytes + rest.len()..];
                let Some(mask) = mask.first_chunk::<$bytes>() else { return };
                let $x = $and($load(last), $load(mask));
                for ($n, target) in $targets.iter_mut().enumerate() {
                    // SAFETY: the vector ends at the length of the source, which is not shorter
                    // than a vector, and which is that of the target: asserted above.
                    let target = unsafe { part::<$bytes>(target, at) };
                    let sum = $xor($load(target), $product);
                    $store(target, sum);
                }
            }
            // There was no whole vector: the rest is all.
            None => {
                let mut padded = [0; $bytes];
                padded[..length].copy_from_slice(rest);
                let $x = $load(&padded);
                for ($n, target) in $targets.iter_mut().enumerate() {
                    let mut product = [0; $bytes];
                    $store(&mut product, $product);
                    for (byte, product) in target.iter_mut().zip(product) {
                        *byte ^= product;
                    }
                }
            }
        }
    }};
}

/// As many zeros as ones: a vector that is read across the middle keeps the end of another.
static MASK: [u8; 64] = {
    let mut mask = [0; 64];
    let mut at = 32;
    while at < 64 {
        mask[at] = 0xff;
        at += 1;
    }
    mask
};

/// `N` bytes of a slice from the offset `at` on.
///
/// # Safety
///
/// `at + N` is not above the length of the slice.
#[inline(always)]
unsafe fn part<const N: usize>(slice: &mut [u8], at: usize) -> &mut [u8; N] {
    // SAFETY: the caller promises that the offset is within the slice.
    let first = unsafe { slice.as_mut_ptr().add(at) };
    // SAFETY: the caller promises that `N` bytes of the slice begin there. Arrays of bytes need no
    // alignment, and the slice is borrowed for as long as the array.
    unsafe { &mut *first.cast() }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn load_128(from: &[u8; 16]) -> __m128i {
    // SAFETY: the pointer is valid for reads of the 16 bytes of the array; no alignment is needed.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn store_128(to: &mut [u8; 16], vector: __m128i) {
    // SAFETY: the pointer is valid for writes of the 16 bytes of the array; no alignment is needed.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_256(from: &[u8; 32]) -> __m256i {
    // SAFETY: the pointer is valid for reads of the 32 bytes of the array; no alignment is needed.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_256(to: &mut [u8; 32], vector: __m256i) {
    // SAFETY: the pointer is valid for writes of the 32 bytes of the array; no alignment is needed.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
}

/// The products of `by` with the low and the high nibbles.
#[inline]
#[target_feature(enable = "ssse3")]
fn nibbles(by: u8) -> [__m128i; 2] {
    let (tables, _) = NIBBLES[usize::from(by)].as_chunks::<16>();
    [load_128(&tables[0]), load_128(&tables[1])]
}

/// Adds `by[n] * source` to target `n`. All slices have the same length.
#[target_feature(enable = "ssse3")]
pub(super) fn ssse3<const N: usize>(by: [u8; N], source: &[u8], mut targets: [&mut [u8]; N]) {
    let tables: [[__m128i; 2]; N] = by.map(|by| nibbles(by));
    let low = _mm_set1_epi8(0x0f);
    sweep!(
        source,
        targets,
        16,
        load_128,
        store_128,
        |x, n| {
            let [lower, upper] = tables[n];
            _mm_xor_si128(
                _mm_shuffle_epi8(lower, _mm_and_si128(x, low)),
                _mm_shuffle_epi8(upper, _mm_and_si128(_mm_srli_epi64::<4>(x), low)),
            )
        },
        _mm_xor_si128,
        _mm_and_si128
    );
}

/// Adds `by[n] * source` to target `n`. All slices have the same length.
#[target_feature(enable = "avx2")]
pub(super) fn avx2<const N: usize>(by: [u8; N], source: &[u8], mut targets: [&mut [u8]; N]) {
    let tables: [[__m256i; 2]; N] =
        by.map(|by| nibbles(by).map(|table| _mm256_broadcastsi128_si256(table)));
    let low = _mm256_set1_epi8(0x0f);
    sweep!(
        source,
        targets,
        32,
        load_256,
        store_256,
        |x, n| {
            let [lower, upper] = tables[n];
            _mm256_xor_si256(
                _mm256_shuffle_epi8(lower, _mm256_and_si256(x, low)),
                _mm256_shuffle_epi8(upper, _mm256_and_si256(_mm256_srli_epi64::<4>(x), low)),
            )
        },
        _mm256_xor_si256,
        _mm256_and_si256
    );
}

/// Adds `by[n] * source` to target `n`. All slices have the same length.
#[target_feature(enable = "gfni,avx2")]
pub(super) fn gfni<const N: usize>(by: [u8; N], source: &[u8], mut targets: [&mut [u8]; N]) {
    let matrices: [__m256i; N] =
        by.map(|by| _mm256_set1_epi64x(MATRICES[usize::from(by)].cast_signed()));
    sweep!(
        source,
        targets,
        32,
        load_256,
        store_256,
        |x, n| _mm256_gf2p8affine_epi64_epi8::<0>(x, matrices[n]),
        _mm256_xor_si256,
        _mm256_and_si256
    );
}
