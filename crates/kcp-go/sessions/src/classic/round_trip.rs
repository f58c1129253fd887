//! The estimator of the round trip: RFC 6298 in whole milliseconds. One difference is that the
//! range narrows slowly when samples fall below it.

/// The time-out before the first sample, and the longest time-out, in milliseconds.
const FIRST_TIMEOUT: u32 = 200;
const GREATEST_TIMEOUT: u32 = 60_000;

/// The smoothed round trip, its variation, and the resulting time-out, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    smoothed: i32,
    variation: i32,
    timeout: u32,
    least_timeout: u32,
    interval: u32,
}

impl RoundTrip {
    /// An estimator without a sample. `least_timeout` is the shortest time-out, and `interval` the
    /// longest delay of the peer's acknowledgement, both in milliseconds.
    #[must_use]
    pub const fn new(least_timeout: u32, interval: u32) -> Self {
        Self { smoothed: 0, variation: 0, timeout: FIRST_TIMEOUT, least_timeout, interval }
    }

    /// Takes a sample in milliseconds. A negative sample is ignored.
    pub fn sample(&mut self, millis: i32) {
        if millis < 0 {
            return;
        }
        if self.smoothed == 0 {
            self.smoothed = millis;
            self.variation = millis >> 1;
        } else {
            let difference = millis - self.smoothed;
            self.smoothed += difference >> 3;
            let distance = difference.abs();
            let shift = if millis < self.smoothed - self.variation { 5 } else { 2 };
            self.variation += (distance - self.variation) >> shift;
        }
        let variation = self.variation.cast_unsigned().saturating_mul(4);
        let timeout = self.smoothed.cast_unsigned().saturating_add(variation.max(self.interval));
        self.timeout = timeout.max(self.least_timeout).min(GREATEST_TIMEOUT);
    }

    /// The smoothed round trip (`srtt`); 0 before the first sample.
    #[must_use]
    pub const fn smoothed(&self) -> u32 {
        self.smoothed.cast_unsigned()
    }

    /// The mean deviation of the samples (`rttvar`).
    #[must_use]
    pub const fn variation(&self) -> u32 {
        self.variation.cast_unsigned()
    }

    /// The time-out of a segment (`rto`), at most 60,000.
    #[must_use]
    pub const fn timeout(&self) -> u32 {
        self.timeout
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_sequence_of_samples_leaves_the_range(
            samples in proptest::collection::vec(prop_oneof![any::<i32>(), 0..1000], 1..50)
        ) {
            let mut round_trip = RoundTrip::new(30, 10);
            for sample in samples {
                round_trip.sample(sample);
                prop_assert!(round_trip.smoothed >= 0 && round_trip.variation >= 0);
                prop_assert!((30..=GREATEST_TIMEOUT).contains(&round_trip.timeout()));
            }
        }
    }
}
