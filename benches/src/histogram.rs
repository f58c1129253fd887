//! Latencies in bounded memory: a histogram with buckets of equal relative width, like Gil Tene's
//! HdrHistogram. Values below [`PARTS`] have a bucket each. Beyond that, each power of two is
//! divided into [`PARTS`] buckets, so that a percentile is wrong by less than one part in
//! [`PARTS`].

use std::time::Duration;

use serde::Serialize;

/// Parts per power of two: percentiles within 0.8 %, in 58 KiB.
pub const PARTS: u64 = 128;

/// Values below this are kept exactly.
const EXACT: u64 = PARTS;

/// One bucket for each exact value, [`PARTS`] for each higher power of two that a `u64` has.
const BUCKETS: usize = (PARTS * (64 - PARTS.trailing_zeros() as u64 + 1)) as usize;

/// Counted latencies, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    /// The sum for the mean; 128 bits do not overflow.
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_nanos(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    fn record_nanos(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// The number of counted latencies.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least value that `fraction` (0 to 1) of all values do not exceed, in nanoseconds. The
    /// result is the upper end of that value's bucket, limited to the largest value. 0 if nothing
    /// was counted.
    #[must_use]
    pub fn quantile(&self, fraction: f64) -> u64 {
        // The rank is at least 1: the quantile 0 is the least value.
        let rank = ((self.count as f64 * fraction).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(bucket).min(self.max);
            }
        }
        self.max
    }

    /// The summary for a report.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        Latency {
            count: self.count,
            mean: if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 / 1e3 },
            p50: micros(self.quantile(0.5)),
            p90: micros(self.quantile(0.9)),
            p99: micros(self.quantile(0.99)),
            p999: micros(self.quantile(0.999)),
            max: micros(self.max),
        }
    }
}

/// A summary of latencies in microseconds. Percentiles are within 0.8 %, `mean` and `max` are
/// exact. All values are 0 if `count` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The number of measured latencies.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half of the latencies are at most this.
    pub p50: f64,
    /// 90 % of the latencies are at most this.
    pub p90: f64,
    /// 99 % of the latencies are at most this.
    pub p99: f64,
    /// 99.9 % of the latencies are at most this.
    pub p999: f64,
    /// The longest latency.
    pub max: f64,
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    // The highest set bit selects the power of two, the bits below it select the part.
    let power = u64::from(value.ilog2() - EXACT.ilog2());
    let part = (value >> power) - PARTS;
    (EXACT + power * PARTS + part) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (power, part) = ((bucket - EXACT) / PARTS, (bucket - EXACT) % PARTS);
    // In 128 bits: the end of the last bucket is one less than 2^64.
    let end = (u128::from(PARTS + part + 1) << power) - 1;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        let mut next = 0u64;
        for index in 0..BUCKETS {
            assert_eq!(bucket(next), index, "{next} begins a bucket");
            assert_eq!(bucket(upper_end(index)), index);
            let Some(after) = upper_end(index).checked_add(1) else {
                assert_eq!(index, BUCKETS - 1, "the last bucket ends with the type");
                return;
            };
            next = after;
        }
        panic!("u64::MAX has no bucket");
    }

    #[test]
    fn a_value_is_told_within_one_part_too_high_and_never_too_low() {
        let mut value = 1u64;
        while value < u64::MAX / 3 {
            for value in [value - 1, value, value + 1, value + value / 3] {
                let estimate = upper_end(bucket(value));
                assert!(estimate >= value, "{value} became {estimate}");
                assert!(estimate - value <= value / PARTS, "{value} became {estimate}");
            }
            value *= 2;
        }
    }

    #[test]
    fn percentiles_agree_with_sorting() {
        let mut histogram = Histogram::default();
        // Latencies from 1 µs to 10 s, spread over all magnitudes by a multiplicative generator.
        let mut values = Vec::new();
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            values.push(1000 + (state >> 40) * (state >> 60));
        }
        values.iter().for_each(|value| histogram.record(Duration::from_nanos(*value)));
        values.sort_unstable();
        for fraction in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((values.len() as f64 * fraction).ceil() as usize).max(1);
            let (exact, estimate) = (values[rank - 1], histogram.quantile(fraction));
            assert!(
                estimate >= exact && estimate - exact <= exact / PARTS,
                "{fraction}: {exact}, {estimate}"
            );
        }
        let latency = histogram.latency();
        assert_eq!(latency.count, 100_000);
        assert_eq!(latency.max, *values.last().unwrap() as f64 / 1e3);
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64 / 1e3;
        assert!((latency.mean - mean).abs() < 0.01, "{} {mean}", latency.mean);
    }

    #[test]
    fn nothing_counted_is_all_zero() {
        assert_eq!(Histogram::default().latency(), Latency::default());
    }

    #[test]
    fn the_longest_duration_has_a_place() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::MAX);
        assert_eq!(histogram.quantile(0.5), u64::MAX);
    }
}
