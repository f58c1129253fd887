//! Milliseconds, which wrap and are compared as sequence numbers are, and the number of a
//! conversation.

/// A time stamp in milliseconds since a moment that its sender chose. It wraps after 49 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Millis(pub u32);

impl Millis {
    /// The time `millis` later.
    #[must_use]
    pub const fn plus(self, millis: u32) -> Self {
        Self(self.0.wrapping_add(millis))
    }

    /// The milliseconds from `other` to this time. Negative if this time is earlier.
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

/// The number that both ends of a session put into each segment (`conv`). The client chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conversation(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_across_the_wrap() {
        assert_eq!(Millis(3).since(Millis(u32::MAX)), 4);
    }
}
