//! Delivery rate: one sample per batch of acknowledgements, after
//! draft-cheng-iccrg-delivery-rate-estimation, and the best sample of the last rounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of rounds for which the best sample is remembered. It includes a probe of each cycle.
const ROUNDS: u64 = 10;

/// The largest number of remembered bursts. quinn also reports packets that are never acknowledged,
/// because they contain acknowledgements alone, and a peer may never acknowledge a packet. 1 Gbit/s
/// at 100 ms has 1,000 bursts.
const BURSTS: usize = 4096;

/// Packets that were sent at one moment, and the number of bytes delivered until then.
#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    /// When the newest packet was sent that was acknowledged by then.
    first_sent: Instant,
    /// The application had no more data to send, so the rate says little about the path.
    is_limited: bool,
}

/// Counts delivered bytes.
#[derive(Clone, Debug)]
pub(super) struct Deliveries {
    bursts: VecDeque<Burst>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// The newest burst of the present batch of acknowledgements.
    newest: Option<Instant>,
}

/// One measurement of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Bytes per second.
    pub(super) rate: f64,
    pub(super) is_limited: bool,
}

impl Deliveries {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            bursts: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            newest: None,
        }
    }

    /// Packets are sent. `is_idle`: no packet was in flight.
    pub(super) fn sent(&mut self, now: Instant, is_idle: bool, is_limited: bool) {
        if is_idle {
            self.delivered_at = now;
            self.first_sent = now;
        }
        let is_new = self.bursts.back().is_none_or(|last| last.at < now);
        // Without the newest bursts there are fewer samples. Without the oldest bursts there would
        // be no sample.
        if is_new && self.bursts.len() < BURSTS {
            let Self { delivered, delivered_at, first_sent, .. } = *self;
            self.bursts.push_back(Burst {
                at: now,
                delivered,
                delivered_at,
                first_sent,
                is_limited,
            });
        }
    }

    /// Releases memory while no packet is in flight.
    pub(super) fn rest(&mut self) {
        self.bursts.clear();
        self.bursts.shrink_to(8);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.bursts.len()
    }

    /// A packet that was sent at `sent` was acknowledged.
    pub(super) fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = now;
        self.newest = self.newest.max(Some(sent));
    }

    /// Ends the batch. Returns its sample.
    pub(super) fn sample(&mut self, now: Instant) -> Option<Sample> {
        let newest = self.newest.take()?;
        // Earlier bursts were lost, or were acknowledged together with this burst.
        while self.bursts.front().is_some_and(|burst| burst.at < newest) {
            self.bursts.pop_front();
        }
        let burst = *self.bursts.front().filter(|burst| burst.at == newest)?;
        self.first_sent = self.first_sent.max(burst.at);
        let sending = burst.at.saturating_duration_since(burst.first_sent);
        let arriving = now.saturating_duration_since(burst.delivered_at);
        let span = sending.max(arriving);
        let bytes = self.delivered - burst.delivered;
        // An interval below a clock tick would make the quotient meaningless.
        (span > Duration::from_micros(50)).then(|| Sample {
            rate: bytes as f64 / span.as_secs_f64(),
            is_limited: burst.is_limited,
        })
    }
}

/// The largest sample of the last [`ROUNDS`] rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Best {
    /// Samples in falling order, with their rounds.
    values: VecDeque<(u64, f64)>,
}

impl Best {
    pub(super) fn add(&mut self, round: u64, value: f64) {
        while self.values.back().is_some_and(|&(_, less)| less <= value) {
            self.values.pop_back();
        }
        // A larger sample of the same round is remembered for the same time.
        if self.values.back().is_none_or(|&(of, _)| of != round) {
            self.values.push_back((round, value));
        }
        while self.values.front().is_some_and(|&(of, _)| of + ROUNDS < round) {
            self.values.pop_front();
        }
    }

    /// The largest sample. 0 before the first sample.
    pub(super) fn get(&self) -> f64 {
        self.values.front().map_or(0.0, |&(_, value)| value)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Forgets all rounds before this round, and keeps at least the latest sample.
    pub(super) fn forget_before(&mut self, round: u64) {
        while self.values.len() > 1 && self.values.front().is_some_and(|&(of, _)| of < round) {
            self.values.pop_front();
        }
    }
}
