//! Byte offsets of a stream: 64 bit in state, the low 32 on the wire.

use std::fmt;

/// Position of a byte in one direction of a stream, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Offset(u64);

impl Offset {
    /// The first byte.
    pub(crate) const ZERO: Self = Self(0);

    /// The offset with this number.
    #[must_use]
    pub(crate) const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The number.
    #[must_use]
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// The low 32 bits, which DATA and FIN carry.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    pub(crate) const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The offset nearest to `self` whose low half is `low`. Unique as long as windows stay below 2
    /// GiB. No offset is below zero: such a result is taken as far ahead, which is a gap.
    #[must_use]
    pub(crate) const fn near(self, low: u32) -> Self {
        let ahead = low.wrapping_sub(self.low());
        if ahead <= u32::MAX / 2 {
            return Self(self.0.saturating_add(ahead as u64));
        }
        match self.0.checked_sub(self.low().wrapping_sub(low) as u64) {
            Some(raw) => Self(raw),
            None => Self(self.0.saturating_add(ahead as u64)),
        }
    }

    /// `self + n`, saturating (2^64 bytes are never sent).
    #[must_use]
    pub(crate) const fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }

    /// The distance of `self` past `other`; 0 if `self` is not past `other`.
    #[must_use]
    pub(crate) const fn since(self, other: Self) -> u64 {
        self.0.saturating_sub(other.0)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A length in bytes as a number for offsets. Lengths fit: the wire format limits a frame to 16
/// MiB.
pub(crate) const fn length(n: usize) -> u64 {
    n as u64
}

/// An amount of credit as a length in memory, limited to `usize` on 32-bit machines.
pub(crate) fn memory(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_half_finds_its_offset_across_the_wrap() {
        let base = Offset::new((7 << 32) + 5);
        for step in [0u64, 1, 4, 5, 6, 1000, 1 << 24] {
            assert_eq!(base.near(base.plus(step).low()), base.plus(step));
            let before = Offset::new(base.raw() - step);
            assert_eq!(base.near(before.low()), before);
        }
    }

    #[test]
    fn nothing_lies_before_the_first_byte() {
        assert!(Offset::new(3).near(u32::MAX) > Offset::new(3));
    }
}
