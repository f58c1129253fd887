//! Selects which of several ends gets the next visitor. A pure function: the eligible ends with
//! their weights and loads are the input, and an index in the list is the output.

mod hash;

use net::source::Source;
use proto::Balance;

pub use hash::{Key, fingerprint};

/// An end that is eligible for the visitor.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The [`fingerprint`] of its name, which does not depend on the other ends.
    pub id: u64,
    /// The configured weight. 0: the end gets no visitor.
    pub weight: u32,
    /// The current weight, at most `weight`: it is lower for an end that has just returned.
    /// [`Balance::SourceHash`] ignores it, because a visitor would change its end twice.
    pub now: u32,
    /// The current number of its visitors.
    pub live: u32,
    /// The time that it takes to reach the end, in microseconds: a moving average. 0: it is not
    /// known.
    pub micros: u32,
}

impl Candidate {
    /// Its visitors, with the visitor that looks for an end.
    fn visitors(&self) -> u128 {
        u128::from(self.live) + 1
    }
}

/// The round-robin state: the accumulated weight of each end.
#[derive(Debug, Default)]
pub struct Turns(Vec<i64>);

impl Turns {
    /// Returns the index of the end for the next visitor; `None`: no weight is above 0.
    /// `candidates` has an entry for each end of a fixed list, `None` for an end that is not
    /// eligible. A visitor without a key gets the next end in turn.
    pub fn pick(
        &mut self,
        rule: Balance,
        candidates: &[Option<Candidate>],
        visitor: Option<Key>,
    ) -> Option<usize> {
        let fit = || {
            let all = candidates.iter().enumerate();
            all.filter_map(|(place, one)| one.filter(|one| one.weight > 0).map(|one| (place, one)))
        };
        match (rule, visitor) {
            (Balance::SourceHash, Some(key)) => {
                let score = |one: &Candidate| key.score(one.id, one.weight);
                let best = fit().max_by(|(_, a), (_, b)| score(a).total_cmp(&score(b)));
                best.map(|(place, _)| place)
            }
            (Balance::RoundRobin, _) | (Balance::SourceHash, None) => {
                self.next(candidates, |_| true)
            }
            (Balance::LeastConnections, _) => self.least(candidates, |one| one.visitors()),
            (Balance::LeastLatency, _) => {
                // An unknown time counts as the least known time, so that one of the next visitors
                // measures it. An end that does not answer must not get all visitors meanwhile.
                let known = fit().map(|(_, one)| one.micros).filter(|micros| *micros > 0);
                let least = known.min().unwrap_or(1);
                let time = |one: &Candidate| if one.micros > 0 { one.micros } else { least };
                self.least(candidates, |one| one.visitors() * u128::from(time(one)))
            }
        }
    }

    /// The end with the least load in proportion to its weight; equal ends take turns.
    fn least(
        &mut self,
        candidates: &[Option<Candidate>],
        load: impl Fn(&Candidate) -> u128,
    ) -> Option<usize> {
        // Load of a / weight of a < load of b / weight of b, without a division.
        let share = |a: &Candidate, b: &Candidate| load(a) * u128::from(b.now.max(1));
        let all = candidates.iter().filter_map(|one| one.filter(|one| one.weight > 0));
        let least = all.min_by(|a, b| share(a, b).cmp(&share(b, a)))?;
        self.next(candidates, |one| share(one, &least) <= share(&least, one))
    }

    /// The next `wanted` end, by smooth weighted round robin as in nginx: in each round every end
    /// gains its weight, and the selected end loses the sum of all weights.
    fn next(
        &mut self,
        candidates: &[Option<Candidate>],
        wanted: impl Fn(&Candidate) -> bool,
    ) -> Option<usize> {
        self.0.resize(candidates.len(), 0);
        let (mut all, mut best) = (0, None);
        for (place, (one, gained)) in candidates.iter().zip(&mut self.0).enumerate() {
            let Some(one) = one.filter(|one| one.weight > 0 && wanted(one)) else { continue };
            let weight = i64::from(one.now.max(1));
            *gained += weight;
            all += weight;
            if best.is_none_or(|(_, most)| *gained > most) {
                best = Some((place, *gained));
            }
        }
        let (place, _) = best?;
        if let Some(gained) = self.0.get_mut(place) {
            *gained -= all;
        }
        Some(place)
    }
}

/// The key of a visitor for [`Balance::SourceHash`]: its IP address without the port, or the name
/// of the client that visits a private service.
#[must_use]
pub fn key_of(visitor: &Source) -> Key {
    Key::of(visitor)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn end(id: u64, weight: u32, live: u32) -> Option<Candidate> {
        Some(Candidate { id, weight, now: weight, live, micros: 0 })
    }

    fn picks(policy: Balance, ends: &[Option<Candidate>], visitors: usize) -> Vec<usize> {
        let mut turns = Turns::default();
        (0..visitors).map(|_| turns.pick(policy, ends, None).unwrap()).collect()
    }

    #[test]
    fn turns_follow_the_weights_and_are_mixed() {
        let ends = [end(1, 3, 0), end(2, 1, 0), end(3, 0, 0)];
        assert_eq!(picks(Balance::RoundRobin, &ends, 8), [0, 0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn an_end_that_is_not_fit_is_left_out() {
        let ends = [None, end(2, 1, 0), end(3, 1, 0)];
        assert_eq!(picks(Balance::RoundRobin, &ends, 4), [1, 2, 1, 2]);
        assert_eq!(Turns::default().pick(Balance::RoundRobin, &[None, end(1, 0, 0)], None), None);
    }

    #[test]
    fn the_least_busy_end_in_proportion_to_its_weight_is_next() {
        let least = |ends: &[_]| picks(Balance::LeastConnections, ends, 1)[0];
        assert_eq!(least(&[end(1, 1, 5), end(2, 1, 4)]), 1);
        assert_eq!(least(&[end(1, 2, 5), end(2, 1, 4)]), 0);
        let alike = [end(1, 1, 4), end(2, 1, 4), end(3, 1, 9)];
        assert_eq!(picks(Balance::LeastConnections, &alike, 4), [0, 1, 0, 1]);
    }

    #[test]
    fn the_nearest_end_gets_visitors_until_it_is_as_busy_as_it_is_near() {
        let away = |id, live, micros| {
            let weight = 100;
            Some(Candidate { id, weight, now: weight, live, micros })
        };
        let least = |ends: &[_]| picks(Balance::LeastLatency, ends, 1)[0];
        assert_eq!(least(&[away(1, 0, 9_000), away(2, 0, 1_000)]), 1);
        assert_eq!(least(&[away(1, 0, 9_000), away(2, 7, 1_000)]), 1);
        assert_eq!(least(&[away(1, 0, 9_000), away(2, 9, 1_000)]), 0);
        // An end without a known time counts as near, and does not get all visitors.
        assert_eq!(least(&[away(1, 1, 9_000), away(2, 0, 0)]), 1);
        assert_eq!(least(&[away(1, 0, 9_000), away(2, 1, 0)]), 0);
        assert_eq!(least(&[away(1, 0, 9_000), away(2, 0, 1_000), away(3, 1, 0)]), 1);
        // Without any known time the least busy end is next.
        let unknown = [away(1, 4, 0), away(2, 3, 0), away(3, 3, 0)];
        assert_eq!(picks(Balance::LeastLatency, &unknown, 3), [1, 2, 1]);
    }

    #[test]
    fn an_end_that_has_just_returned_gets_fewer_visitors() {
        let slow = Candidate { id: 2, weight: 100, now: 10, live: 0, micros: 0 };
        let ends = [end(1, 100, 0), Some(slow)];
        let of_slow = picks(Balance::RoundRobin, &ends, 110).iter().filter(|n| **n == 1).count();
        assert_eq!(of_slow, 10);
    }

    fn homes(ends: &[Option<Candidate>], visitors: u32) -> Vec<usize> {
        let mut turns = Turns::default();
        let home = |visitor: u32| {
            let key = key_of(&IpAddr::V4(visitor.into()).into());
            turns.pick(Balance::SourceHash, ends, Some(key)).unwrap()
        };
        (0..visitors).map(home).collect()
    }

    #[test]
    fn the_shares_of_addresses_follow_the_weights() {
        let ends: Vec<_> =
            (0..3).map(|n| end(fingerprint(&format!("tcp://10.0.0.{n}:80")), n + 1, 0)).collect();
        let homes = homes(&ends, 60_000);
        for (n, share) in [10_000_f64, 20_000.0, 30_000.0].into_iter().enumerate() {
            let of = homes.iter().filter(|home| **home == n).count() as f64;
            assert!((of / share - 1.0).abs() < 0.05, "{n}: {of} of {share}");
        }
    }

    proptest! {
        /// The removal of one of n ends moves only the visitors of that end.
        #[test]
        fn the_removal_of_an_end_moves_only_its_share(
            weights in proptest::collection::vec(1_u32..=256, 2..12),
            gone in 0_usize..12,
            seed: u64,
        ) {
            let gone = gone % weights.len();
            let name = |n: usize| format!("tcp://{seed}.example:{n}");
            let mut ends: Vec<_> = weights
                .iter()
                .enumerate()
                .map(|(n, weight)| end(fingerprint(&name(n)), *weight, 0))
                .collect();
            let before = homes(&ends, 500);
            ends[gone] = None;
            let after = homes(&ends, 500);
            for (before, after) in before.into_iter().zip(after) {
                prop_assert!(before == after || before == gone);
                prop_assert!(after != gone);
            }
        }
    }
}
