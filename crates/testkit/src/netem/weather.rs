//! The weather of one direction of a packet path, and the choice of the packets that are lost.

use std::time::Duration;

use super::Rng;

/// The properties of a packet path. Shares and chances are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// One-way delay.
    pub delay: Duration,
    /// The maximum random addition to the delay. The order of packets is kept.
    pub jitter: Duration,
    /// Share of packets lost outside bursts, each packet independently.
    pub loss: f64,
    /// Runs of losses.
    pub burst: Option<Burst>,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets held back by up to one more delay (at least 1 ms), so that later packets
    /// overtake them.
    pub reorder: f64,
    /// Bytes per second. `None` is no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait in front of the bottleneck, including the packet that passes through it
    /// now. A packet that does not fit is dropped, but an idle bottleneck accepts any packet.
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

/// Runs of losses: the path is good or bad, and may change its state by chance before each packet
/// (Gilbert 1960, Elliott 1963).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Chance that a good path turns bad.
    pub enter: f64,
    /// Chance that a bad path turns good. A bad state lasts `1 / leave` packets on average.
    pub leave: f64,
    /// Share of packets that a bad path loses.
    pub loss: f64,
}

impl Burst {
    /// Loses `share` of all packets (below 1) in runs of `packets` packets (at least 1) on average.
    #[must_use]
    pub fn runs(share: f64, packets: f64) -> Self {
        let leave = 1.0 / packets.max(1.0);
        // In balance as many packets enter the bad state as leave it: (1 - share) enter = share
        // leave.
        let enter = (leave * share / (1.0 - share)).min(1.0);
        Self { enter, leave, loss: 1.0 }
    }
}

/// Decides which packets are lost. The fate of the n-th packet depends only on the seed and the
/// weather, not on the fate of other packets.
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
