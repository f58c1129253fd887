//! The smoothed round trip (RFC 6298), with a higher resolution than the milliseconds of kcp-go.

use std::time::Duration;

/// The assumed round trip before the first sample: kcp-go's initial timeout.
const FIRST: Duration = Duration::from_millis(200);

/// Longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// The smoothed round trip of a path.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
}

impl Rtt {
    pub(crate) const fn new() -> Self {
        Self { smoothed: None, variation: Duration::from_millis(100), latest: FIRST }
    }

    /// A round trip has taken this time.
    pub fn sample(&mut self, took: Duration) {
        self.latest = took;
        self.smoothed = Some(match self.smoothed {
            None => {
                self.variation = took / 2;
                took
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(took)) / 4;
                (smoothed * 7 + took) / 8
            }
        });
    }

    /// The smoothed round trip.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(FIRST)
    }

    /// The larger of the smoothed and the latest round trip: the wait for an overtaken segment (RFC
    /// 9002 section 6.1.2).
    pub fn longer(&self) -> Duration {
        self.smoothed().max(self.latest)
    }

    /// The wait for an acknowledgement by the formula of kcp-go. `interval` is the longest delay of
    /// the peer.
    pub fn timeout(&self, interval: Duration, least: Duration) -> Duration {
        let wait = self.smoothed() + (self.variation * 4).max(interval);
        wait.clamp(least, TIMEOUT_MAX)
    }
}
