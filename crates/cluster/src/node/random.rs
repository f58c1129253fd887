//! Repeatable random numbers: SplitMix64 (Steele, Lea, Flood 2014).

use std::time::Duration;

/// A sequence of numbers that depends only on its seed.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next 64 bits.
    pub(crate) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// A time of 3/4 to 5/4 of `time`, so that nodes that failed together do not repeat together.
    pub(crate) fn about(&mut self, time: Duration) -> Duration {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2);
        Duration::from_micros(micros - micros / 4 + self.below(micros / 2 + 1))
    }

    /// Puts items into a random order (Fisher-Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at as u64 + 1);
            items.swap(at, usize::try_from(other).unwrap_or(at));
        }
    }
}
