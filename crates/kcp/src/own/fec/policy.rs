//! Decides the amount of parity from the loss measured by packet numbers.
//!
//! There are two cases. A bulk transfer always has a next packet, so parity displaces data. Its
//! parity equals the average loss of the path (`k * p / (1 - p)`), and missing shards that the
//! parity cannot rebuild are retransmitted. Sparse traffic leaves the path idle, so parity takes no
//! capacity from data. Its parity makes retransmissions rare, within a budget.

use std::time::{Duration, Instant};

use super::code::{DATA_MAX, PARITY_MAX};

/// The number of acknowledged or lost packets in a window of the estimate.
const WINDOW: u32 = 100;

/// The weight of a window after the first windows.
const WEIGHT: f64 = 0.15;

/// The assumed loss of an unknown path.
const PRIOR: f64 = 0.01;

/// Below this loss a path counts as lossless and gets no parity.
const CLEAN: f64 = 0.002;

/// The share of sparse packets that may stay lost.
const RESIDUAL: f64 = 0.001;

/// Bytes of parity per second that sparse traffic may add, without UDP and IP headers: 128 kbit/s.
const BUDGET: f64 = 16_000.0;

/// The part of the budget that may accumulate: parity for a few packets.
const SAVED: f64 = 6_000.0;

/// The limit of data shards in a group of sparse traffic, because a receiver must keep them.
const SPARSE: usize = 32;

/// The additional parity of any traffic, as a share of the data above `p / (1 - p)`.
const MARGIN: f64 = 0.15;

/// The protection of the data of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Protection {
    /// No parity.
    Off,
    /// A fixed number of parity shards after a fixed number of data shards. A group that a timer
    /// closes has parity in the same proportion, and at least one parity shard.
    Fixed {
        /// Data shards of a group: 1 to 64.
        data: u8,
        /// Parity shards of a group: 1 to 48.
        parity: u8,
    },
    /// The parity follows the loss.
    Adaptive {
        /// Maximum number of parity shards of a group of 64 data shards: up to 48.
        most: u8,
    },
}

/// Decides the parity of one direction.
#[derive(Debug)]
pub struct Policy {
    protection: Protection,
    loss: f64,
    windows: u32,
    ended: u32,
    lost: u32,
    /// Bytes of parity that sparse traffic may send.
    tokens: f64,
    filled: Instant,
    /// The fraction of a parity shard that rounding has left over from earlier groups.
    carry: f64,
}

impl Policy {
    /// A policy for an unknown path.
    #[must_use]
    pub const fn new(protection: Protection, now: Instant) -> Self {
        Self {
            protection,
            loss: PRIOR,
            windows: 1,
            ended: 0,
            lost: 0,
            tokens: SAVED,
            filled: now,
            carry: 0.0,
        }
    }

    /// The estimated share of packets that the path loses, 0 to 1.
    #[must_use]
    pub const fn loss(&self) -> f64 {
        self.loss
    }

    /// A packet has arrived, or was lost.
    pub fn ended(&mut self, is_lost: bool) {
        self.ended += 1;
        self.lost += u32::from(is_lost);
        if self.ended >= WINDOW {
            self.windows = self.windows.saturating_add(1);
            let weight = (1.0 / f64::from(self.windows)).max(WEIGHT);
            self.loss += (f64::from(self.lost) / f64::from(self.ended) - self.loss) * weight;
            (self.ended, self.lost) = (0, 0);
        }
    }

    /// The numbers of data and parity shards of a new group of a bulk transfer. `None`: no group.
    pub fn bulk(&mut self) -> Option<(usize, usize)> {
        match self.protection {
            Protection::Off => None,
            Protection::Fixed { data, parity } => Some((data.into(), parity.into())),
            Protection::Adaptive { .. } if self.loss < CLEAN => None,
            Protection::Adaptive { most } => {
                let loss = self.loss.min(0.9);
                let wanted = DATA_MAX as f64 * loss / (1.0 - loss) + self.carry;
                let parity = wanted.floor().min(most.into());
                self.carry = (wanted - parity).clamp(0.0, 1.0);
                (parity >= 1.0).then_some((DATA_MAX, parity as usize))
            }
        }
    }

    /// Whether the ratio is fixed, for all kinds of traffic.
    #[must_use]
    pub const fn is_fixed(&self) -> bool {
        matches!(self.protection, Protection::Fixed { .. })
    }

    /// The number of parity shards for `data` data shards of sparse traffic that has become a bulk
    /// transfer.
    pub fn share(&mut self, data: u8) -> u8 {
        let loss = self.loss.min(0.5);
        let wanted = f64::from(data) * loss / (1.0 - loss) + self.carry;
        self.carry = wanted.fract();
        wanted as u8
    }

    /// The numbers of data and parity shards of a new group of sparse traffic, which may request
    /// less parity, and more often ([`sparse`](Self::sparse)).
    #[must_use]
    pub fn sparse_group(&self) -> Option<(usize, usize)> {
        match self.protection {
            Protection::Off => None,
            Protection::Fixed { data, .. } => Some((data.into(), PARITY_MAX)),
            Protection::Adaptive { .. } if self.loss < CLEAN => None,
            Protection::Adaptive { .. } => Some((SPARSE, PARITY_MAX)),
        }
    }

    /// A packet with `bytes` bytes of data was sent.
    pub fn sent(&mut self, bytes: usize) {
        let loss = self.loss.min(0.5);
        let bytes = bytes as f64;
        self.tokens = (self.tokens + bytes * (loss / (1.0 - loss) + MARGIN)).min(SAVED);
    }

    /// The number of parity shards, of `bytes` bytes each, for `data` packets that have no
    /// protection yet and are not followed by another packet at once. The shards are charged to the
    /// budget. `is_last`: no later parity can protect these packets, so the budget may become
    /// negative.
    pub fn sparse(&mut self, now: Instant, data: u8, bytes: usize, is_last: bool) -> u8 {
        let most = match self.protection {
            Protection::Off => return 0,
            Protection::Fixed { data: of, parity } => {
                let share = u16::from(data) * u16::from(parity);
                return u8::try_from(share.div_ceil(u16::from(of.max(1)))).unwrap_or(u8::MAX);
            }
            Protection::Adaptive { most } => most,
        };
        if self.loss < CLEAN {
            return 0;
        }
        let passed = now.saturating_duration_since(self.filled).min(Duration::from_secs(1));
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * BUDGET).min(SAVED);
        let loss = self.loss.min(0.5);
        let wanted = self.needed(data).min(most);
        // If little of the budget is left, one parity shard is sent at a time. Each parity shard
        // covers all data before it.
        let scarce = !is_last && self.tokens < SAVED / 2.0 + f64::from(wanted) * bytes as f64;
        let average = (f64::from(data) * loss / (1.0 - loss)).ceil() as u8;
        let wanted = if scarce { wanted.min(average.max(1)) } else { wanted };
        let affordable = (self.tokens / bytes.max(1) as f64).max(0.0) as u8;
        let parity = wanted.min(if is_last { affordable.max(2) } else { affordable });
        self.tokens -= f64::from(parity) * bytes as f64;
        parity
    }

    /// The smallest number of parity shards with which at most the share [`RESIDUAL`] of `data`
    /// packets stays lost.
    fn needed(&self, data: u8) -> u8 {
        let loss = self.loss.min(0.9);
        let enough = |parity: &u8| residual(data, *parity, loss) <= RESIDUAL;
        let most = data.saturating_mul(2).saturating_add(1);
        (0..most).find(enough).unwrap_or(most)
    }
}

/// The share of data packets that stays lost. A packet stays lost if at least `parity` of the other
/// packets are lost with it.
fn residual(data: u8, parity: u8, loss: f64) -> f64 {
    let others = u32::from(data) + u32::from(parity) - 1;
    let mut chance = (1.0 - loss).powi(others.cast_signed());
    let mut fewer = 0.0;
    for n in 0..u32::from(parity).min(others + 1) {
        fewer += chance;
        chance *= f64::from(others - n) / f64::from(n + 1) * loss / (1.0 - loss);
    }
    loss * (1.0 - fewer).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    fn policy(lost_of_100: u32) -> Policy {
        let mut policy = Policy::new(Protection::Adaptive { most: 32 }, epoch());
        for n in 0..5_000 {
            policy.ended(n % 100 < lost_of_100);
        }
        policy
    }

    #[test]
    fn parity_of_bulk_follows_the_loss_from_nothing_to_the_cap() {
        for (lost, least, most) in
            [(0, 0, 0), (1, 0, 1), (5, 3, 4), (10, 7, 8), (20, 15, 17), (60, 32, 32)]
        {
            let mut policy = policy(lost);
            for _ in 0..20 {
                let (_, parity) = policy.bulk().unwrap_or((0, 0));
                assert!((least..=most).contains(&parity), "{lost} of 100: {parity}");
            }
        }
    }

    #[test]
    fn sparse_traffic_gets_what_the_budget_allows_and_a_clean_path_nothing() {
        let mut clean = policy(0);
        assert_eq!(clean.sparse(clean.filled, 1, 1_000, false), 0);
        let mut lossy = policy(10);
        let begin = lossy.filled;
        let mut bytes = 0.0;
        for n in 0..1_000 {
            let now = begin + Duration::from_millis(10) * n;
            bytes += 1_400.0 * f64::from(lossy.sparse(now, 1, 1_400, false));
        }
        let rate = bytes / 10.0;
        assert!((15_000.0..=16_700.0).contains(&rate), "{rate}");
        assert_eq!(lossy.sparse(begin + Duration::from_secs(20), 1, 100, false), 2, "one of 1,000");
    }

    #[test]
    fn a_fixed_ratio_stays_whatever_is_lost() {
        let mut policy = Policy::new(Protection::Fixed { data: 10, parity: 3 }, epoch());
        assert_eq!(policy.bulk(), Some((10, 3)));
        assert_eq!(policy.sparse(policy.filled, 10, 1_000_000, false), 3);
        assert_eq!(policy.sparse(policy.filled, 1, 1_000_000, false), 1);
        for _ in 0..10_000 {
            policy.ended(true);
        }
        assert_eq!(policy.bulk(), Some((10, 3)));
    }
}
