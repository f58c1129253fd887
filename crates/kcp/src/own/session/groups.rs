//! The sender's view of its groups: which lost shards the peer will rebuild, and which it cannot.
//!
//! The sender knows each lost packet, of data and of parity. So it retransmits only the shards of a
//! group that parity cannot rebuild. A retransmitted shard keeps its group and position, and
//! completes the group as the lost shard would have done.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Sn;
use crate::own::wire::{Group, Shard};

/// Groups that are remembered.
const GROUPS: usize = 512;

/// Segments with consecutive numbers that were sent in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) first: Sn,
    pub(super) count: u8,
    /// Their position in a group.
    pub(super) shard: Option<Shard>,
}

#[derive(Debug)]
struct Sent {
    group: Group,
    /// The time at which the last packet of the group was sent.
    at: Instant,
    /// A bit for each data shard that the peer probably lacks.
    lost: u64,
    /// The missing data shards that parity should rebuild.
    left: Vec<Sequence>,
    /// For each parity shard the number of covered data shards, and whether the parity shard may
    /// have arrived.
    parity: Vec<(u8, bool)>,
}

/// The shards that are left to parity, and the parity shards.
type Lists = (Vec<Sequence>, Vec<(u8, bool)>);

#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: VecDeque<Sent>,
    /// The lists of groups that were forgotten.
    spare: Lists,
    /// Groups with shards that are left to parity.
    waiting: usize,
}

impl Groups {
    fn get(&mut self, group: Group) -> Option<&mut Sent> {
        let first = self.groups.front()?.group;
        self.groups.get_mut(usize::try_from(group.since(first)).ok()?)
    }

    /// Whether a shard of this group is retransmitted with its position in the group. The group
    /// must be remembered, and other shards of the group must need this shard, unless `always`.
    pub(super) fn wants(&mut self, group: Group, always: bool) -> bool {
        self.get(group).is_some_and(|sent| always || !sent.left.is_empty())
    }

    /// Records that a data shard is sent, for the first time or again. Returns the shards of groups
    /// that are too old.
    pub(super) fn data_sent(&mut self, now: Instant, group: Group) -> Vec<Sequence> {
        if let Some(sent) = self.get(group) {
            sent.at = now;
            return Vec::new();
        }
        let follows = self.groups.back().is_none_or(|last| last.group.next() == group);
        let mut old = Vec::new();
        if !follows {
            old.extend(self.groups.drain(..).flat_map(|sent| sent.left));
            self.waiting = 0;
        }
        let (left, parity) = std::mem::take(&mut self.spare);
        self.groups.push_back(Sent { group, at: now, lost: 0, left, parity });
        if self.groups.len() > GROUPS
            && let Some(mut sent) = self.groups.pop_front()
        {
            self.waiting -= usize::from(!sent.left.is_empty());
            old.append(&mut sent.left);
            sent.parity.clear();
            self.spare = (sent.left, sent.parity);
        }
        old
    }

    /// Forgets all groups. For an end without packets in flight.
    pub(super) fn rest(&mut self) {
        *self = Self::default();
    }

    /// Records that a parity shard of the first `k` data shards is sent.
    pub(super) fn parity_sent(&mut self, now: Instant, group: Group, k: u8) {
        if let Some(sent) = self.get(group) {
            sent.at = now;
            sent.parity.push((k, true));
        }
    }

    /// Handles the loss of a data shard. Returns whether parity should rebuild it. Otherwise it
    /// must be retransmitted.
    pub(super) fn data_lost(&mut self, sequence: Sequence) -> bool {
        let Some(shard) = sequence.shard else { return false };
        let Some(sent) = self.get(shard.group) else { return false };
        sent.lost |= bit(shard.index);
        if !sent.is_covered(shard.index) {
            sent.lost &= !bit(shard.index);
            return false;
        }
        let is_first = sent.left.is_empty();
        sent.left.push(sequence);
        self.waiting += usize::from(is_first);
        true
    }

    /// Handles the loss of a data shard that is not retransmitted. Parity that rebuilds this shard
    /// cannot rebuild another shard.
    pub(super) fn datagram_lost(&mut self, shard: Shard) {
        if let Some(sent) = self.get(shard.group) {
            sent.lost |= bit(shard.index);
        }
    }

    /// Handles the loss of a parity shard. Returns the shards that must be retransmitted for that
    /// reason. `is_done` returns whether the peer has a sequence.
    pub(super) fn parity_lost(
        &mut self,
        shard: Shard,
        is_done: impl Fn(&Sequence) -> bool,
    ) -> Vec<Sequence> {
        let mut again = Vec::new();
        let Some(sent) = self.get(shard.group) else { return again };
        if let Some((_, has_arrived)) = sent.parity.get_mut(usize::from(shard.index)) {
            *has_arrived = false;
        }
        let waited = !sent.left.is_empty();
        sent.drop_done(is_done);
        while let Some(at) = sent.left.iter().position(|left| !sent.covers(left)) {
            let sequence = sent.left.swap_remove(at);
            sent.lost &= !sequence.shard.map_or(0, |shard| bit(shard.index));
            again.push(sequence);
        }
        let waits = !sent.left.is_empty();
        self.waiting -= usize::from(waited && !waits);
        again
    }

    /// The time at which parity has had `wait` to rebuild the shards that were left to it.
    pub(super) fn due(&self, wait: Duration) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        self.groups.iter().filter(|sent| !sent.left.is_empty()).map(|sent| sent.at + wait).min()
    }

    /// The shards that parity should have rebuilt by now.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        wait: Duration,
        is_done: impl Fn(&Sequence) -> bool,
    ) -> Vec<Sequence> {
        let mut again = Vec::new();
        if self.waiting == 0 {
            return again;
        }
        for sent in self.groups.iter_mut().filter(|sent| !sent.left.is_empty()) {
            if sent.at + wait <= now {
                sent.drop_done(&is_done);
                again.append(&mut sent.left);
                sent.lost = 0;
                self.waiting -= 1;
            }
        }
        again
    }
}

impl Sent {
    fn drop_done(&mut self, is_done: impl Fn(&Sequence) -> bool) {
        let lost = &mut self.lost;
        self.left.retain(|sequence| {
            let is_done = is_done(sequence);
            if is_done {
                *lost &= !sequence.shard.map_or(0, |shard| bit(shard.index));
            }
            !is_done
        });
    }

    fn covers(&self, sequence: &Sequence) -> bool {
        sequence.shard.is_some_and(|shard| self.is_covered(shard.index))
    }

    /// Whether the parity that may have arrived suffices for this data shard: for some `k`, among
    /// the first `k` data shards, each lost shard can be assigned a distinct parity shard that
    /// covers it (Hall's condition; parity shards cover prefixes, so only prefixes need to be
    /// checked).
    fn is_covered(&self, index: u8) -> bool {
        let alive = || self.parity.iter().filter(|(_, is_alive)| *is_alive).map(|(k, _)| *k);
        let mut before = 0;
        for k in alive().filter(|k| *k > index) {
            if k == before {
                continue;
            }
            before = k;
            let mut lost = self.lost & ones(k);
            let mut count = 0;
            let mut suffices = true;
            while lost != 0 && suffices {
                let last = 63 - lost.leading_zeros();
                lost &= !(1 << last);
                count += 1;
                let covering = alive().filter(|of| *of <= k && u32::from(*of) > last).count();
                suffices = covering >= count;
            }
            if suffices {
                return true;
            }
        }
        false
    }
}

fn bit(index: u8) -> u64 {
    1_u64.checked_shl(index.into()).unwrap_or(0)
}

/// The lowest `count` bits.
fn ones(count: u8) -> u64 {
    bit(count).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    fn sequence(index: u8) -> Sequence {
        let shard = Shard { group: Group(0), index };
        Sequence { first: Sn(index.into()), count: 1, shard: Some(shard) }
    }

    #[test]
    fn as_many_are_left_to_parity_as_it_rebuilds() {
        let now = epoch();
        let mut groups = Groups::default();
        groups.data_sent(now, Group(0));
        for _ in 0..2 {
            groups.parity_sent(now, Group(0), 64);
        }
        assert!(groups.data_lost(sequence(3)));
        assert!(groups.data_lost(sequence(63)));
        assert!(!groups.data_lost(sequence(7)), "of three lost ones one has to leave again");
        let lost = Shard { group: Group(0), index: 1 };
        assert_eq!(groups.parity_lost(lost, |_| false).len(), 1, "parity was lost as well");
        let wait = Duration::from_millis(100);
        assert_eq!(groups.due(wait), Some(now + wait));
        assert_eq!(groups.overdue(now + wait, wait, |_| false).len(), 1);
        assert_eq!(groups.due(wait), None);
    }

    #[test]
    fn parity_from_before_a_shard_does_not_help_it() {
        let now = epoch();
        let mut groups = Groups::default();
        groups.data_sent(now, Group(0));
        for k in 1..4 {
            groups.parity_sent(now, Group(0), k);
        }
        assert!(!groups.data_lost(sequence(3)));
        groups.parity_sent(now, Group(0), 4);
        assert!(groups.data_lost(sequence(3)));
        assert!(groups.data_lost(sequence(0)));
        assert!(groups.data_lost(sequence(1)));
        assert!(groups.data_lost(sequence(2)));
        let last = Shard { group: Group(0), index: 3 };
        assert_eq!(groups.parity_lost(last, |_| false), [sequence(3)]);
    }
}
