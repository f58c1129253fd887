//! What happens to packets on one direction of a path, and which of them are lost.

use std::time::Duration;

use super::Rng;

/// What a path is like. Shares and chances are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// One-way delay.
    pub delay: Duration,
    /// Up to so much more, at random; order is kept.
    pub jitter: Duration,
    /// Share that vanishes, each packet for itself; outside of bursts.
    pub loss: f64,
    /// Losses in a row.
    pub burst: Option<Burst>,
    /// Share that arrives twice.
    pub duplicate: f64,
    /// Share that is held back by up to another delay (at least 1 ms), so that later ones overtake it.
    pub reorder: f64,
    /// Bytes per second; `None`: as fast as one likes.
    pub rate: Option<u64>,
    /// Bytes that may wait in front of the bottleneck, the packet on its way through included. What
    /// does not fit is dropped, but an idle bottleneck takes any packet.
    pub queue: usize,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: None,
            duplicate: 0.0,
            reorder: 0.0,
            rate: None,
            queue: 1 << 20,
        }
    }
}

/// Losses in a row: the path is good or bad, and turns by chance before each packet (Gilbert 1960,
/// Elliott 1963).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Chance that a good path turns bad.
    pub enter: f64,
    /// Chance that a bad path turns good: a bad time lasts `1 / leave` packets on average.
    pub leave: f64,
    /// Share that a bad path loses.
    pub loss: f64,
}

impl Burst {
    /// Loses this share of all packets (below 1), in runs of so many (at least 1) on average.
    #[must_use]
    pub fn runs(share: f64, packets: f64) -> Self {
        let leave = 1.0 / packets.max(1.0);
        // In balance as many packets enter as leave: (1 - share) enter = share leave.
        let enter = (leave * share / (1.0 - share)).min(1.0);
        Self { enter, leave, loss: 1.0 }
    }
}

/// Decides which packets vanish. The fate of the n-th packet depends on the seed and the weather, and on
/// nothing that happens to others.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    rng: Rng,
    is_bad: bool,
}

impl Losses {
    pub(super) const fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), is_bad: false }
    }

    /// Whether the next packet is lost.
    pub(super) fn next(&mut self, weather: &Weather) -> bool {
        let mut share = weather.loss;
        if let Some(burst) = weather.burst {
            let turn = if self.is_bad { burst.leave } else { burst.enter };
            self.is_bad ^= self.rng.within(turn);
            if self.is_bad {
                share = burst.loss;
            }
        }
        self.rng.within(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(weather: &Weather, seed: u64) -> Vec<bool> {
        let mut losses = Losses::new(seed);
        (0..200_000).map(|_| losses.next(weather)).collect()
    }

    fn share(fates: &[bool]) -> f64 {
        fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
    }

    #[test]
    fn a_seed_loses_the_same_packets_again() {
        let weather = Weather { loss: 0.01, ..Weather::default() };
        assert_eq!(fates(&weather, 5), fates(&weather, 5));
        assert_ne!(fates(&weather, 5), fates(&weather, 6));
        let lost = share(&fates(&weather, 5));
        assert!((0.009..0.011).contains(&lost), "{lost}");
        assert_eq!(share(&fates(&Weather::default(), 5)), 0.0);
    }

    #[test]
    fn bursts_lose_the_asked_share_in_runs_of_the_asked_length() {
        let weather = Weather { burst: Some(Burst::runs(0.05, 8.0)), ..Weather::default() };
        let fates = fates(&weather, 1);
        let runs = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let lost = share(&fates);
        let length = lost * fates.len() as f64 / runs as f64;
        assert!((0.045..0.055).contains(&lost), "{lost}");
        assert!((7.0..9.0).contains(&length), "{length}");
    }
}
