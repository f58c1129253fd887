//! Repeatable random numbers: SplitMix64 (Steele, Lea, Flood 2014). One chain of multiplications;
//! every seed is valid.

/// A sequence of numbers that depends only on its seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator with the seed `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// True with the probability `share`, from 0 to 1.
    pub fn within(&mut self, share: f64) -> bool {
        // Take as many upper bits as a float holds exactly: the quotient never reaches 1.
        ((self.bits() >> 11) as f64) < share * (1u64 << 53) as f64
    }

    /// True in `per_mille` of 1,000 cases.
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.bits(), rng.bits(), rng.below(10)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        // The published first output for seed 0.
        assert_eq!(Rng::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }
}
