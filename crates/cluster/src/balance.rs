//! When a node lets clients go to emptier nodes, and how many: after a node has started, or was
//! added, the clients come to it, and never up the hill.
//!
//! ```text
//!            > 1.2 x the mean, and 16 more than the least,
//!            at two looks in a row
//!   Level ──────────────────────────────────────────────► Letting go: a portion at each look
//!     ▲                                                      │
//!     └── ≤ 1.1 x the mean, or less than 8 more than ────────┘
//!         the least
//! ```
//!
//! A look is made each minute ([`LOOK`]), so that the numbers of links have settled since the last
//! portion. A portion is at most half of what the node has above the mean, so a node never falls
//! below the mean by it, and all nodes that let go at the same time do not fill an emptier node
//! above the mean. Where portions do not go, because clients cannot reach other nodes, the pause
//! doubles up to an hour.

use std::time::Duration;

/// The time from one look to the next.
pub const LOOK: Duration = Duration::from_secs(60);

/// The least portion, if there is as much to let go.
const LEAST_PORTION: u32 = 8;

/// The largest portion, as a part of the links of the node.
const PART: u32 = 20;

/// The difference to the emptiest node below which nothing is let go.
const GAP: u32 = 16;

/// As [`GAP`], once the node lets clients go.
const GAP_LEFT: u32 = GAP / 2;

/// The most looks of a pause after portions that did not go.
const PAUSE: u32 = 60;

/// Whether a node lets clients go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Downhill {
    /// The looks in a row at which the node had too much.
    high: u32,
    /// The node lets clients go.
    goes: bool,
    /// The links of the node before the last portion, and the portion.
    last: Option<(u32, u32)>,
    /// The looks that are left out before the next portion.
    left_out: u32,
    /// The next pause after a portion that does not go.
    pause: u32,
}

impl Downhill {
    /// A look: the number of links that the node should let go now. `own`: its links; `others`:
    /// those of the other nodes that take clients.
    pub fn look(&mut self, own: u32, others: &[u32]) -> u32 {
        let Some(least) = others.iter().copied().min() else {
            *self = Self::default();
            return 0;
        };
        let mean = mean(own, others);
        let (own_wide, above) = (u64::from(own), u64::from(own).saturating_sub(mean));
        let gap = own.saturating_sub(least);
        let is_high = own_wide * 10 > mean * 12 && gap >= GAP;
        let is_level = own_wide * 10 <= mean * 11 || gap < GAP_LEFT;
        self.high = if is_high { self.high.saturating_add(1) } else { 0 };
        self.goes = if self.goes { !is_level } else { self.high >= 2 };
        if let Some((before, portion)) = self.last.take() {
            // Some that went have been replaced by clients that have logged in.
            let went = before.saturating_sub(own) >= portion.div_ceil(4);
            self.pause = if went { 0 } else { (self.pause * 2).clamp(1, PAUSE) };
            self.left_out = self.pause;
        }
        if !self.goes {
            // What did not go at another time says nothing about the next time.
            (self.left_out, self.pause) = (0, 0);
            return 0;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return 0;
        }
        let half = u32::try_from(above / 2).unwrap_or(u32::MAX);
        let portion = half.min((own / PART).max(LEAST_PORTION));
        self.last = (portion > 0).then_some((own, portion));
        portion
    }
}

/// The links that a node has above the mean of all. `others`: the links of the other nodes that
/// take clients.
#[must_use]
pub fn excess(own: u32, others: &[u32]) -> u32 {
    let above = u64::from(own).saturating_sub(mean(own, others));
    u32::try_from(above).unwrap_or(u32::MAX)
}

/// The mean of the links, rounded up.
fn mean(own: u32, others: &[u32]) -> u64 {
    let all = std::iter::once(&own).chain(others);
    let (sum, count) =
        all.fold((0, 0), |(sum, count): (u64, u64), links| (sum + u64::from(*links), count + 1));
    sum.div_ceil(count.max(1))
}

/// Whether a node with this number of links may get clients of another: it is below the mean of
/// all. `others`: the links of all other nodes that take clients.
#[must_use]
pub fn is_below(links: u32, others: &[u32]) -> bool {
    u64::from(links) < mean(links, others)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn others(all: &[u32], own: usize) -> Vec<u32> {
        let other = |(n, links): (usize, &u32)| (n != own).then_some(*links);
        all.iter().enumerate().filter_map(other).collect()
    }

    /// A minute: each node lets a portion go, which the nodes below the mean get in turn. Returns
    /// the number of links that went.
    fn minute(nodes: &mut [Downhill], links: &mut [u32]) -> u32 {
        let before = links.to_vec();
        let mut all = 0;
        for (n, node) in nodes.iter_mut().enumerate() {
            let portion = node.look(before[n], &others(&before, n));
            let below = |at: &usize| is_below(before[*at], &others(&before, *at));
            let takes: Vec<_> = (0..before.len()).filter(below).collect();
            for nth in 0..portion {
                links[n] -= 1;
                links[takes[nth as usize % takes.len()]] += 1;
            }
            all += portion;
        }
        all
    }

    #[test]
    fn after_the_restart_of_one_of_three_nodes_it_has_clients_within_minutes() {
        for count in [24, 300, 30_000] {
            let (mut nodes, mut links) = (vec![Downhill::default(); 3], [count, count, 0]);
            let mut moved = 0;
            for n in 0..60 {
                let now = minute(&mut nodes, &mut links);
                moved += now;
                if n == 5 {
                    assert!(links[2] >= links[0] / 2, "after 6 minutes: {links:?}");
                }
                assert!(n < 30 || now == 0, "{n}: {now} of {links:?}");
            }
            assert!(links[2] * 10 >= links[0] * 6, "{links:?}");
            assert_eq!(moved, links[2], "no client moved twice");
        }
    }

    #[test]
    fn nothing_goes_where_the_nodes_are_about_even_or_small() {
        for all in [vec![100, 100, 84], vec![15, 0, 0], vec![10, 9], vec![500], vec![119, 100, 81]]
        {
            let mut node = Downhill::default();
            for _ in 0..5 {
                assert_eq!(node.look(all[0], &others(&all, 0)), 0, "{all:?}");
            }
        }
        // One look is no state: clients of a dead node come at once, and leave when it is back.
        let mut node = Downhill::default();
        assert_eq!(node.look(300, &[0, 300]), 0);
        assert_eq!(node.look(200, &[200, 200]), 0);
        assert_eq!(node.look(300, &[0, 300]), 0);
        assert_eq!(node.look(300, &[0, 300]), 15);
    }

    #[test]
    fn clients_that_cannot_go_are_asked_ever_more_rarely() {
        let mut node = Downhill::default();
        let asked = (0..600).filter(|_| node.look(1_000, &[0, 1_000]) > 0).count();
        assert!((10..20).contains(&asked), "{asked}");
        // When they can, the pauses are over.
        let (mut own, mut low, mut looks) = (1_000, 0, 0);
        while node.goes && looks < 200 {
            let portion = node.look(own, &[low, 1_000]);
            (own, low, looks) = (own - portion, low + portion, looks + 1);
        }
        assert!(looks < 100 && own * 10 <= (own + low + 1_000).div_ceil(3) * 11, "{looks}: {own}");
    }

    #[test]
    fn a_pause_ends_when_the_nodes_are_even() {
        let mut node = Downhill::default();
        // For hours no client goes.
        for _ in 0..300 {
            let _ = node.look(1_000, &[0, 1_000]);
        }
        assert_eq!(node.look(700, &[700, 700]), 0);
        // Another node starts anew, weeks later.
        assert_eq!(node.look(1_000, &[1_000, 0]), 0);
        assert_eq!(node.look(1_000, &[1_000, 0]), 50);
    }

    #[test]
    fn the_excess_of_a_node_is_what_it_has_above_the_mean() {
        assert_eq!((excess(100, &[100, 0]), excess(100, &[]), excess(0, &[9])), (33, 0, 0));
    }

    proptest! {
        /// Links go down the hill alone, the nodes come to rest, and no node falls below the mean.
        #[test]
        fn nodes_come_to_rest(links in prop::collection::vec(0_u32..5_000, 2..12)) {
            let (mut links, mean) = (links.clone(), mean(links[0], &links[1..]));
            let mut nodes = vec![Downhill::default(); links.len()];
            let mut last = 0;
            for n in 0..200 {
                let before = links.clone();
                if minute(&mut nodes, &mut links) > 0 {
                    last = n;
                }
                for (before, after) in before.iter().zip(&links) {
                    prop_assert!(after >= before || u64::from(*after) >= mean, "{before} {after}");
                }
            }
            prop_assert!(last < 150, "{last}");
        }
    }
}
