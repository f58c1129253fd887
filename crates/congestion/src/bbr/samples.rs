//! Delivery rate: one sample per batch of acknowledgements, after
//! draft-cheng-iccrg-delivery-rate-estimation, and the best sample of the last rounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Rounds that the best is remembered for: a probe of each cycle is in it.
const ROUNDS: u64 = 10;

/// Bursts that are remembered at most. quinn tells of packets that are never acknowledged as well,
/// those with nothing but acknowledgements, and a peer may acknowledge nothing for ever. 1 Gbit/s
/// at 100 ms are 1,000.
const BURSTS: usize = 4096;

/// Packets that left at one moment, and what had been delivered until then.
#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    /// When the newest packet left that was acknowledged by then.
    first_sent: Instant,
    /// The application had nothing more to send: the rate says little of the path.
    is_limited: bool,
}

/// Counts what is delivered.
#[derive(Clone, Debug)]
pub(super) struct Deliveries {
    bursts: VecDeque<Burst>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// The newest of the batch of acknowledgements that is being read.
    newest: Option<Instant>,
}

/// One measurement.
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

    /// Packets leave. `is_idle`: none was under way.
    pub(super) fn sent(&mut self, now: Instant, is_idle: bool, is_limited: bool) {
        if is_idle {
            self.delivered_at = now;
            self.first_sent = now;
        }
        let is_new = self.bursts.back().is_none_or(|last| last.at < now);
        // Without the newest there are fewer samples; without the oldest there would be none.
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

    /// Nothing is under way: gives memory back.
    pub(super) fn rest(&mut self) {
        self.bursts.clear();
        self.bursts.shrink_to(8);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.bursts.len()
    }

    /// A packet that left at `sent` was acknowledged.
    pub(super) fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = now;
        self.newest = self.newest.max(Some(sent));
    }

    /// The batch is read: what it says.
    pub(super) fn sample(&mut self, now: Instant) -> Option<Sample> {
        let newest = self.newest.take()?;
        // Those before it were lost, or acknowledged with it.
        while self.bursts.front().is_some_and(|burst| burst.at < newest) {
            self.bursts.pop_front();
        }
        let burst = *self.bursts.front().filter(|burst| burst.at == newest)?;
        self.first_sent = self.first_sent.max(burst.at);
        let sending = burst.at.saturating_duration_since(burst.first_sent);
        let arriving = now.saturating_duration_since(burst.delivered_at);
        let span = sending.max(arriving);
        let bytes = self.delivered - burst.delivered;
        // Less than a clock tick is no time to divide by.
        (span > Duration::from_micros(50)).then(|| Sample {
            rate: bytes as f64 / span.as_secs_f64(),
            is_limited: burst.is_limited,
        })
    }
}

/// The greatest of what was measured in the last [`ROUNDS`] rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Best {
    /// Falling, with the rounds they are of.
    values: VecDeque<(u64, f64)>,
}

impl Best {
    pub(super) fn add(&mut self, round: u64, value: f64) {
        while self.values.back().is_some_and(|&(_, less)| less <= value) {
            self.values.pop_back();
        }
        // The greater one of the same round will be remembered as long.
        if self.values.back().is_none_or(|&(of, _)| of != round) {
            self.values.push_back((round, value));
        }
        while self.values.front().is_some_and(|&(of, _)| of + ROUNDS < round) {
            self.values.pop_front();
        }
    }

    /// 0 before the first.
    pub(super) fn get(&self) -> f64 {
        self.values.front().map_or(0.0, |&(_, value)| value)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Forgets all rounds before this one, but not the last one that there is.
    pub(super) fn forget_before(&mut self, round: u64) {
        while self.values.len() > 1 && self.values.front().is_some_and(|&(of, _)| of < round) {
            self.values.pop_front();
        }
    }
}
