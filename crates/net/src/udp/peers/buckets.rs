//! The mapping of peers to 64 buckets, and of buckets to workers. Plain values.

use std::net::{IpAddr, SocketAddr};

/// The number of buckets of a port: enough for shares of three workers within a tenth of each
/// other, and few enough for a decision tree of six comparisons in the kernel.
pub const BUCKETS: usize = 64;

/// The multipliers of the hash: odd, with well mixed bits (from xxHash32).
pub(super) const SPREAD: u32 = 0x9E37_79B1;
pub(super) const FINISH: u32 = 0x85EB_CA77;

/// The right shift of a hash, in bits; the highest six bits remain.
pub(super) const SHIFT: u32 = u32::BITS - BUCKETS.ilog2();

/// The bucket of a peer, below [`BUCKETS`]. IPv4-mapped IPv6 addresses count as IPv4. The kernel
/// computes the same from the packet, except for packets with IPv6 extension headers: there it
/// takes the first bytes after the fixed header for the port.
#[must_use]
pub fn bucket_of(peer: SocketAddr) -> usize {
    let address = match peer.ip().to_canonical() {
        IpAddr::V4(v4) => v4.to_bits().wrapping_mul(SPREAD),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let words = [bits >> 96, bits >> 64, bits >> 32, bits].map(|word| word as u32);
            words.iter().fold(0, |hash: u32, &word| (hash ^ word).wrapping_mul(SPREAD))
        }
    };
    let hash = (address ^ u32::from(peer.port())).wrapping_mul(FINISH);
    (hash >> SHIFT) as usize
}

/// The worker of each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Worker indexes, below `workers`.
    owners: [u8; BUCKETS],
    workers: usize,
}

impl Buckets {
    /// Spreads the buckets evenly over `workers` workers, at least one and at most
    /// [`super::super::MAX_GROUP`].
    #[must_use]
    pub fn even(workers: usize) -> Self {
        let workers = workers.clamp(1, super::super::MAX_GROUP);
        Self { owners: std::array::from_fn(|bucket| number(bucket % workers)), workers }
    }

    /// The worker of a bucket.
    #[must_use]
    pub fn worker(&self, bucket: usize) -> usize {
        self.owners.get(bucket).copied().map_or(0, usize::from)
    }

    /// Assigns the buckets to the workers in `usable`; `live` is the number of flows per bucket. A
    /// bucket moves only if its worker is not usable, or if it has no flow and its worker has more
    /// buckets than others. The shares differ by at most one, as far as buckets with flows permit.
    /// Without a usable worker no bucket moves. Returns true if a bucket moved.
    pub fn assign(&mut self, usable: &[usize], live: &[u32; BUCKETS]) -> bool {
        let mut workers: Vec<Share> = Vec::new();
        for worker in (0..self.workers).filter(|worker| usable.contains(worker)) {
            workers.push(Share { worker: number(worker), ..Share::default() });
        }
        if workers.is_empty() {
            return false;
        }
        let mut movable = 0;
        for (&owner, &flows) in self.owners.iter().zip(live) {
            match workers.iter_mut().find(|share| share.worker == owner) {
                Some(share) if flows > 0 => share.kept += 1,
                Some(share) => {
                    share.empty += 1;
                    movable += 1;
                }
                None => movable += 1,
            }
        }
        // Each movable bucket is assigned to the smallest share; among equal shares to a worker
        // with an empty bucket of its own to keep, then to the first.
        for _ in 0..movable {
            let smallest = workers.iter_mut().min_by_key(|share| {
                (share.kept + share.granted, share.granted >= share.empty, share.worker)
            });
            if let Some(share) = smallest {
                share.granted += 1;
            }
        }
        let before = self.owners;
        let mut homeless = Vec::new();
        for (bucket, (owner, &flows)) in self.owners.iter().zip(live).enumerate() {
            match workers.iter_mut().find(|share| share.worker == *owner) {
                Some(_) if flows > 0 => {}
                Some(share) if share.granted > 0 => share.granted -= 1,
                Some(_) | None => homeless.push(bucket),
            }
        }
        for bucket in homeless {
            if let Some(share) = workers.iter_mut().find(|share| share.granted > 0) {
                share.granted -= 1;
                self.owners[bucket] = share.worker;
            }
        }
        self.owners != before
    }

    /// The runs of adjacent buckets with the same worker: the first bucket of each run, and the
    /// worker.
    pub(super) fn runs(&self) -> Vec<(usize, u8)> {
        let mut runs: Vec<(usize, u8)> = Vec::new();
        for (bucket, &owner) in self.owners.iter().enumerate() {
            if runs.last().is_none_or(|&(_, last)| last != owner) {
                runs.push((bucket, owner));
            }
        }
        runs
    }
}

/// The share of a usable worker while buckets are assigned.
#[derive(Default)]
struct Share {
    worker: u8,
    /// Its buckets with flows.
    kept: usize,
    /// Its buckets without flows.
    empty: usize,
    /// The number of buckets without flows that it will get.
    granted: usize,
}

fn number(worker: usize) -> u8 {
    u8::try_from(worker).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NONE: [u32; BUCKETS] = [0; BUCKETS];

    fn shares(buckets: &Buckets) -> Vec<usize> {
        let share = |worker| (0..BUCKETS).filter(|&b| buckets.worker(b) == worker).count();
        (0..buckets.workers).map(share).collect()
    }

    #[test]
    fn the_forms_of_an_address_have_one_bucket() {
        let v4 = bucket_of("192.0.2.1:53".parse().unwrap());
        assert_eq!(bucket_of("[::ffff:192.0.2.1]:53".parse().unwrap()), v4);
    }

    #[test]
    fn peers_are_spread_over_all_buckets() {
        for peer in [
            |n: u16| SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1024 + n)),
            |n: u16| SocketAddr::from((Ipv4Addr::new(10, 0, (n >> 8) as u8, n as u8), 5060)),
            |n: u16| SocketAddr::from(([0x2001, 0xdb8, 0, n, 0, 0, 0, 1], 443)),
            |n: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 1024 + n)),
        ] {
            let mut counts = [0; BUCKETS];
            (0..6400).for_each(|n| counts[bucket_of(peer(n))] += 1);
            assert!(counts.iter().all(|n| (30..300).contains(n)), "{counts:?}");
        }
    }

    #[test]
    fn shares_are_even_and_follow_the_usable_workers() {
        let mut buckets = Buckets::even(4);
        assert_eq!(shares(&buckets), [16; 4]);
        assert!(!buckets.assign(&[0, 1, 2, 3], &NONE), "nothing has to move");
        assert!(buckets.assign(&[1, 2, 3, 9], &NONE));
        assert_eq!(shares(&buckets), [0, 22, 21, 21]);
        assert!(buckets.assign(&[1], &NONE));
        assert_eq!(shares(&buckets), [0, 64, 0, 0]);
        assert!(!buckets.assign(&[], &NONE), "nobody could take them");
        assert!(buckets.assign(&[0, 1, 2, 3], &NONE));
        assert_eq!(shares(&buckets), [16; 4]);
    }

    #[test]
    fn only_what_must_move_or_has_no_flow_moves() {
        // A small generator of test cases: an LCG with the constants of Numerical Recipes.
        let mut state = 7_u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..2_000 {
            let workers = 1 + random(6) as usize;
            let mut buckets = Buckets::even(workers);
            let set = |random: &mut dyn FnMut(u32) -> u32| -> Vec<usize> {
                (0..workers).filter(|_| random(2) == 1).collect()
            };
            buckets.assign(&set(&mut random), &NONE);
            let before = buckets.clone();
            let density = random(5);
            let live = std::array::from_fn(|_| u32::from(random(4) < density));
            let usable = set(&mut random);
            let moved = buckets.assign(&usable, &live);
            assert_eq!(moved, buckets != before);
            if usable.is_empty() {
                assert!(!moved);
                continue;
            }
            let mut pinned = vec![0; workers];
            let mut must = 0;
            for (bucket, &flows) in live.iter().enumerate() {
                let (old, new) = (before.worker(bucket), buckets.worker(bucket));
                assert!(usable.contains(&new));
                must += usize::from(!usable.contains(&old));
                if flows > 0 && usable.contains(&old) {
                    assert_eq!(old, new, "a bucket with flows keeps its worker");
                    pinned[old] += 1;
                }
            }
            // Only a worker whose share consists of buckets with flows has more than others.
            let shares = shares(&buckets);
            let least = usable.iter().map(|&w| shares[w]).min().unwrap();
            for &worker in &usable {
                assert!(shares[worker] <= (least + 1).max(pinned[worker]), "{shares:?} {pinned:?}");
            }
            if density == 0 && must == 0 {
                let again = buckets.clone();
                assert!(!buckets.assign(&usable, &live) && buckets == again);
            }
        }
    }

    #[test]
    fn neighbours_with_one_worker_are_one_run() {
        assert_eq!(Buckets::even(1).runs(), [(0, 0)]);
        assert_eq!(Buckets::even(2).runs().len(), BUCKETS);
        let mut buckets = Buckets::even(2);
        buckets.assign(&[1], &NONE);
        assert_eq!(buckets.runs(), [(0, 1)]);
    }
}
