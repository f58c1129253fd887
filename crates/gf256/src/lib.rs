//! Arithmetic of GF(2^8), of single elements and of whole buffers, for Reed-Solomon codes.
//!
//! The field has the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D) and the generator 2, as the
//! erasure codes of kcp-go, PAR2 and RAID-6 have. [`multiply`], [`inverse`] and [`power`] are for
//! matrices; [`multiply_add`] does the work on the bytes of packets. It is the only place of the
//! project with `unsafe`: SIMD instructions that the CPU is asked for at run time
//! ([`Kernel::fastest`]), and loads and stores through pointers inside one slice.

mod field;
mod kernel;

pub use field::{inverse, multiply, power};
pub use kernel::Kernel;

/// Adds the products of `source` to several targets: byte `i` of target `t` becomes
/// `target[t][i] + coefficients[t] * source[i]`, for each byte of `source`. Target `t` begins at
/// `targets[t * stride]`. The bytes of a target behind the length of `source` do not change, as if
/// `source` were padded with zeros.
///
/// Runs on the fastest kernel of this CPU.
///
/// # Panics
///
/// `source` is longer than `stride`, or `targets` is shorter than `coefficients.len() * stride`.
/// All of them are the caller's own buffers.
pub fn multiply_add(coefficients: &[u8], source: &[u8], targets: &mut [u8], stride: usize) {
    Kernel::fastest().multiply_add(coefficients, source, targets, stride);
}
