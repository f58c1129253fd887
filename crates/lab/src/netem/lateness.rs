//! The lateness of packets, which tells how far a measurement on a busy machine can be trusted.

use std::time::Duration;

/// The width of a bucket.
const STEP: Duration = Duration::from_micros(20);

/// The buckets reach to 20 ms; a later packet counts in the last bucket.
const BUCKETS: usize = 1000;

/// A histogram of lateness.
#[derive(Clone, Debug)]
pub(super) struct Lateness {
    buckets: Vec<u64>,
    most: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], most: Duration::ZERO }
    }
}

impl Lateness {
    pub(super) fn add(&mut self, late: Duration) {
        let bucket = (late.as_nanos() / STEP.as_nanos()).min(BUCKETS as u128 - 1);
        self.buckets[bucket as usize] += 1;
        self.most = self.most.max(late);
    }

    /// The lateness that this share of all packets (0 to 1) does not exceed, rounded up to 20 µs.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let wanted = self.buckets.iter().sum::<u64>() as f64 * share;
        let mut sum = 0;
        for (index, count) in (1u32..).zip(&self.buckets) {
            sum += count;
            if sum as f64 >= wanted {
                return (STEP * index).min(self.most);
            }
        }
        self.most
    }

    pub(super) const fn most(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_packets() {
        let mut lateness = Lateness::default();
        for micros in 1..=1000 {
            lateness.add(Duration::from_micros(micros));
        }
        lateness.add(Duration::from_secs(1));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(520));
        assert_eq!(lateness.quantile(0.99), Duration::from_micros(1000));
        assert_eq!(lateness.most(), Duration::from_secs(1));
        assert_eq!(Lateness::default().quantile(0.5), Duration::ZERO);
    }
}
