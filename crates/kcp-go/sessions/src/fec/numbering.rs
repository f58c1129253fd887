//! The ids of the shards of a session: they count in groups, and return to 0 after the last whole
//! group.

use super::Ratio;
use crate::wire::ShardId;

/// The ids of groups of one size. Ids run below [`end`](Self::end), the greatest multiple of the
/// group's size in 32 bits, so that a group never straddles the wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    data: u32,
    shards: u32,
}

/// The id of the first shard of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(u32);

impl Numbering {
    pub(super) fn new(ratio: Ratio) -> Self {
        let count = |shards| u32::try_from(shards).unwrap_or(u32::MAX);
        Self { data: count(ratio.data()), shards: count(ratio.shards()) }
    }

    const fn end(self) -> u32 {
        u32::MAX / self.shards * self.shards
    }

    /// Whether a group can have a shard with this id.
    pub(super) const fn contains(self, id: ShardId) -> bool {
        id.0 < self.end()
    }

    /// The id `count` shards after an id that [`contains`](Self::contains) accepts. `count` is at
    /// most the size of a group.
    pub(super) const fn after(self, id: ShardId, count: u32) -> ShardId {
        let left = self.end().saturating_sub(id.0);
        ShardId(if count < left { id.0 + count } else { count - left })
    }

    /// The position of a shard in its group.
    pub(super) const fn position(self, id: ShardId) -> u32 {
        id.0 % self.shards
    }

    /// Whether a shard has the position of a data shard.
    pub(super) const fn is_data(self, id: ShardId) -> bool {
        self.position(id) < self.data
    }

    /// The group of a shard.
    pub(super) const fn group(self, id: ShardId) -> Group {
        Group(id.0 - self.position(id))
    }

    /// Whether `group` is still open if `newest` is the newest group: it is the newest group, or at
    /// most three groups before it. kcp-go compares ids, so that at the wrap two groups stay open
    /// instead of three.
    pub(super) const fn is_open(self, group: Group, newest: Group) -> bool {
        let behind = newest.0.wrapping_sub(group.0);
        // kcp-go keeps a group at a distance of exactly 2^31 ids, which is neither before nor
        // after. Such groups would accumulate.
        behind <= 3 * self.shards
    }
}

impl Group {
    /// Whether this group is after `other`.
    pub(super) const fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_wrap_at_a_whole_group() {
        for (data, parity, end) in [(3, 2, 0xffff_ffff), (10, 3, 0xffff_fff7), (1, 1, u32::MAX - 1)]
        {
            let ids = Numbering::new(Ratio::new(data, parity).unwrap());
            let last = ShardId(end - 1);
            assert_eq!(ids.end(), end);
            assert!(ids.contains(last) && !ids.contains(ShardId(end)));
            assert_eq!(ids.position(last), ids.shards - 1);
            assert_eq!(ids.after(last, 1), ShardId(0));
            assert_eq!(ids.after(last, 3), ShardId(2));
            assert!(ids.group(ShardId(0)).is_after(ids.group(last)));
        }
    }

    #[test]
    fn four_groups_are_open_and_two_at_the_wrap() {
        let ids = Numbering::new(Ratio::new(3, 2).unwrap());
        let open = |group: u32, newest: u32| ids.is_open(Group(group), Group(newest));
        assert!(open(5, 20) && !open(0, 20) && open(20, 20));
        assert!(open(ids.end() - 10, 0) && !open(ids.end() - 15, 0));
        assert!(!open(1 << 31, 0), "a group that is as far ahead as behind");
    }
}
