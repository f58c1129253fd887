//! How fast bytes arrive at the far end: a sample for each batch of acknowledgements, by the draft
//! draft-cheng-iccrg-delivery-rate-estimation, and the best of the last rounds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Rounds that the best rate is remembered for: a probe of each cycle is in it.
const ROUNDS: u64 = 10;

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
        if self.bursts.back().is_none_or(|last| last.at < now) {
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

/// The best rate of the last [`ROUNDS`] rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Best {
    /// Falling rates with the rounds they are of.
    rates: VecDeque<(u64, f64)>,
}

impl Best {
    pub(super) fn add(&mut self, round: u64, rate: f64) {
        while self.rates.back().is_some_and(|&(_, less)| less <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((round, rate));
        while self.rates.front().is_some_and(|&(of, _)| of + ROUNDS < round) {
            self.rates.pop_front();
        }
    }

    /// Bytes per second; 0 before the first sample.
    pub(super) fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |&(_, rate)| rate)
    }

    /// Forgets all rounds before this one.
    pub(super) fn forget_before(&mut self, round: u64) {
        self.rates.retain(|&(of, _)| of >= round);
    }
}
