//! Numbers of packets and groups, and ids of connections.

/// The number of a packet. It is never used twice with the same keys. The first number is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(pub u64);

impl PacketNumber {
    /// The low half of the number, which acknowledgements carry.
    #[must_use]
    pub fn low(self) -> u32 {
        let [_, _, _, _, a, b, c, d] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The largest number with this low half that is at most `self`. `None` if there is none.
    #[must_use]
    pub fn last_with_low(self, low: u32) -> Option<Self> {
        self.0.checked_sub(self.low().wrapping_sub(low).into()).map(Self)
    }
}

/// The number of a group of shards, which wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group(pub u16);

impl Group {
    /// The next group.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number of groups from `other` to this group. Negative if this group is before `other`.
    #[must_use]
    pub const fn since(self, other: Self) -> i16 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

/// The id of a connection, independent of the addresses of its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub [u8; 8]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_half_finds_the_last_number_that_has_it() {
        let next = PacketNumber(0x1_0000_0003);
        assert_eq!(next.last_with_low(3), Some(next));
        assert_eq!(next.last_with_low(2), Some(PacketNumber(0x1_0000_0002)));
        assert_eq!(next.last_with_low(u32::MAX), Some(PacketNumber(0xffff_ffff)));
        assert_eq!(PacketNumber(3).last_with_low(4), None, "it was never sent");
    }

    #[test]
    fn groups_are_compared_across_the_wrap() {
        assert_eq!(Group(u16::MAX).next(), Group(0));
        assert_eq!(Group(1).since(Group(u16::MAX)), 2);
        assert_eq!(Group(u16::MAX).since(Group(1)), -2);
    }
}
