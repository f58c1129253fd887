//! Sequence numbers of segments, which wrap, compared by their signed difference as RFC 1982
//! compares serial numbers.

use std::fmt;

/// The number of a segment (`sn`). The first segment of a conversation has 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sn(pub u32);

impl Sn {
    /// The number `count` segments later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number of segments from `other` to this number. Negative if this number is before
    /// `other`.
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether this number is before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }
}

impl fmt::Display for Sn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_the_wrap() {
        let last = Sn(u32::MAX);
        assert_eq!(last.plus(2), Sn(1));
        assert!(last.is_before(Sn(1)));
        assert!(!Sn(1).is_before(last));
        assert_eq!(Sn(1).since(last), 2);
    }
}
