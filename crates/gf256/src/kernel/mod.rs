//! The implementations of `multiply_add`, and the choice among them.
//!
//! Each kernel handles up to four targets in one pass, so that the source is read once, and its
//! tables stay in registers. A product needs these instructions per vector:
//!
//! | kernel | bytes per vector | a product |
//! |---|---|---|
//! | portable | as the compiler likes | eight doublings, shared by all targets, and eight masks |
//! | SSSE3, AVX2 | 16, 32 | two table lookups (`PSHUFB`) by nibbles and an XOR (Plank, Greenan, Miller: *Screaming Fast Galois Field Arithmetic*, FAST 2013) |
//! | GFNI | 32 | one product of bit matrices (`GF2P8AFFINEQB`) |

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::LazyLock;

/// An implementation of [`multiply_add`](crate::multiply_add). Only [`all`](Self::all) and
/// [`fastest`](Self::fastest) make one, so a kernel never needs instructions that this CPU lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni,
}

/// The targets of one pass.
const GROUP: usize = 4;

impl Kernel {
    /// All kernels that run on this CPU, the fastest last.
    #[must_use]
    pub fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let wide = [
            (Which::Ssse3, is_x86_feature_detected!("ssse3")),
            (Which::Avx2, is_x86_feature_detected!("avx2")),
            (Which::Gfni, is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2")),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let wide: [(_, bool); 0] = [];
        let wide = wide.into_iter().filter_map(|(which, runs)| runs.then_some(Self(which)));
        [Self(Which::Portable)].into_iter().chain(wide).collect()
    }

    /// The fastest kernel that runs on this CPU.
    #[must_use]
    pub fn fastest() -> Self {
        static FASTEST: LazyLock<Kernel> =
            LazyLock::new(|| Kernel::all().pop().unwrap_or(Kernel(Which::Portable)));
        *FASTEST
    }

    /// The name of its instructions: `portable`, `ssse3`, `avx2` or `gfni`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Which::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Which::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Which::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Which::Gfni => "gfni",
        }
    }

    /// [`multiply_add`](crate::multiply_add) on this kernel.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn multiply_add(
        self,
        coefficients: &[u8],
        source: &[u8],
        targets: &mut [u8],
        stride: usize,
    ) {
        if source.is_empty() {
            return;
        }
        assert!(source.len() <= stride, "the source is longer than a target");
        assert!(targets.len() / stride >= coefficients.len(), "a target is missing");
        let groups = targets.chunks_mut(GROUP * stride);
        for (coefficients, targets) in coefficients.chunks(GROUP).zip(groups) {
            match *coefficients {
                [a] => self.pass([a], source, targets, stride),
                [a, b] => self.pass([a, b], source, targets, stride),
                [a, b, c] => self.pass([a, b, c], source, targets, stride),
                [a, b, c, d] => self.pass([a, b, c, d], source, targets, stride),
                _ => {}
            }
        }
    }

    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls of SIMD kernels"))]
    fn pass<const N: usize>(self, by: [u8; N], source: &[u8], targets: &mut [u8], stride: usize) {
        // The first part of each target, with the length of the source.
        let mut rest = targets;
        let targets: [&mut [u8]; N] = std::array::from_fn(|_| {
            let (target, behind) =
                std::mem::take(&mut rest).split_at_mut_checked(stride).unwrap_or_default();
            rest = behind;
            &mut target[..source.len()]
        });
        match self.0 {
            Which::Portable => portable::pass(by, source, targets),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Kernel::all` makes this kernel only where the CPU has SSSE3.
            Which::Ssse3 => unsafe { x86::ssse3(by, source, targets) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Kernel::all` makes this kernel only where the CPU has AVX2.
            Which::Avx2 => unsafe { x86::avx2(by, source, targets) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Kernel::all` makes this kernel only where the CPU has GFNI and AVX2.
            Which::Gfni => unsafe { x86::gfni(by, source, targets) },
        }
    }
}

#[cfg(test)]
mod tests;
