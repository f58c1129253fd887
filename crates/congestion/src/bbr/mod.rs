//! Congestion control by a model of the path, after BBR
//! (draft-cardwell-iccrg-bbr-congestion-control). The capacity of the path is the product of the
//! best recent delivery rate and the round trip without a queue (bandwidth-delay product). The
//! controller keeps a little more than the capacity in flight. Loss alone does not reduce the
//! window.
//!
//! quinn has a BBR controller as well. The pacer of quinn sends 1.25 windows per smoothed round
//! trip regardless of the controller, and the window of that BBR is twice the capacity. On a path
//! with a queue of 100 ms, the queue dropped more packets than the path delivered. This controller
//! therefore limits by the window alone: a window of 1.2 times the capacity paces at 1.5 times the
//! rate when the queue is empty, and queues hold at most a fifth of the capacity.
//!
//! The window grows where round-trip times vary ([`round_trips`]), acknowledgements are aggregated
//! ([`lumps`]), or packets are lost by chance ([`chance`]). After the pacer's task did not run for
//! too long, the sender catches up ([`arrears`]). A start may use the measurements of an earlier
//! connection ([`resumption`]).
//!
//! ```text
//!   Startup --no more growth, or a queue--> Drain --queue gone--> Cruise
//!   Cruise --every 8 round trips--> probes
//!   any --least round trip 5 s old--> ProbeRtt --200 ms--> Cruise
//! ```

mod arrears;
mod chance;
mod lumps;
mod resumption;
mod round_trips;
mod samples;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::FIRST_FLIGHT;
use arrears::Arrears;
use chance::Chance;
use lumps::Lumps;
pub use resumption::Measured;
use resumption::Resumption;
use round_trips::RoundTrips;
use samples::{Best, Deliveries};

/// The smallest window in packets. With it two acknowledgements are in flight.
const LEAST: u64 = 4;

/// The largest window during a start, as a multiple of the capacity at the rate so far. The draft's
/// 2.885 (section 4.3.1.1) is a gain of the pace. The pace is here 1.25 windows in a round trip.
const STARTUP_GAIN: f64 = 2.6;
/// The growth of the window for each delivered byte. The sender sends 1.25 windows in a round trip
/// while the window grows. So with a growth of 1 the window doubles in 1.06 round trips, and with
/// this growth in 0.84 round trips. In the simulation, both constants give a faster start than 1
/// and 2.885, and fewer packets are dropped at the end of the start.
const STARTUP_GROWTH: f64 = 1.5;
/// A start ends after this number of rounds in which the rate did not grow by a quarter.
const PLATEAU: u32 = 3;
const GROWTH: f64 = 1.25;

/// Windows as multiples of the capacity: usually, during a probe, and while the queue of the probe
/// drains. The drain is not deeper, because an idle tenth of the path once in a cycle cost 1.3 % of
/// the throughput.
const CRUISE_GAIN: f64 = 1.2;
const PROBE_GAIN: f64 = 1.5;
const DRAIN_GAIN: f64 = 1.0;
/// The window if more than this share is lost, as a multiple of the capacity at the least round
/// trip. If a short queue causes the loss, the queue cannot hold more. If chance causes the loss,
/// the smaller window costs little.
const LOSSY: f64 = 0.02;
const LOSSY_CRUISE_GAIN: f64 = 1.05;
/// A round trip met a queue if it exceeds the least round trip by more than this part of the least
/// round trip.
const CLEAR: u32 = 16;
/// With fewer packets in a round trip, no loss counts as chance. The pacer's bursts of ten packets
/// are then a large part of the window, and a queue of a few packets loses as much at any window.
const MANY: u64 = 100;
/// The round trips of a cycle. The first round trip probes, and the second drains the queue. At
/// least one packet that arrives before the end of [`DRAINED`] met no queue of this sender.
const CYCLE: u32 = 8;
const DRAINED: u32 = 3;

/// Half of the path stays empty for this time, or for one round trip, so that the least round trip
/// is measured again.
const PROBE_RTT: Duration = Duration::from_millis(200);
const PROBE_RTT_GAIN: f64 = 0.5;

/// If a larger share of a round with at least this number of packets is lost, the path has changed,
/// and older rounds provide no information about it.
const UPHEAVAL: f64 = 0.3;
const UPHEAVAL_PACKETS: u64 = 16;

/// A sender with little to send has few packets in a round, and a lossy path may lose a large share
/// of them by chance. So an upheaval differs from the usual share by more than this number of
/// standard deviations.
const UNLIKELY: f64 = 4.0;

/// The standard deviation of the lost share of `packets` packets if `usual` is the usual share.
fn deviation(usual: f64, packets: u64) -> f64 {
    (usual * (1.0 - usual) / packets as f64).sqrt()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Cruise {
        /// Round trip 0 probes, and round trip 1 drains the queue.
        phase: u32,
        since: Instant,
    },
    ProbeRtt {
        until: Instant,
    },
}

/// The controller of one path.
#[derive(Clone, Debug)]
pub struct Bbr {
    mtu: u64,
    deliveries: Deliveries,
    best: Best,
    mode: Mode,
    window: u64,
    in_flight: u64,
    is_limited: bool,
    /// The last round was an [`UPHEAVAL`], so the path is the limit even if there is little to
    /// send.
    is_upheaval: bool,
    round_trips: RoundTrips,
    lumps: Lumps,
    chance: Chance,
    /// Whether the last batch of acknowledgements met a queue.
    is_late: bool,
    arrears: Arrears,
    /// The round trip that quinn's pacer uses.
    smoothed: Duration,
    /// The measurements of the present batch of acknowledgements.
    batch_bytes: u64,
    round: u64,
    /// The round ends with the acknowledgement of a packet beyond this one.
    round_end: u64,
    last_sent: u64,
    round_acked: u64,
    round_lost: u64,
    /// The share of lost bytes, smoothed over eight rounds.
    loss: f64,
    /// The best rate when it last grew by a quarter, and rounds since then.
    plateau: (f64, u32),
    /// The number of successive late batches: a queue is growing.
    late: u32,
    resumption: Resumption,
    /// Bytes that were acknowledged and bytes that were lost since the path is known.
    acked: u64,
    lost: u64,
}

impl Bbr {
    /// Makes the controller of a new path that takes packets of `mtu` bytes.
    #[must_use]
    pub fn new(now: Instant, mtu: u16) -> Self {
        let mtu = u64::from(mtu);
        Self {
            mtu,
            deliveries: Deliveries::new(now),
            best: Best::default(),
            mode: Mode::Startup,
            window: FIRST_FLIGHT * mtu,
            in_flight: 0,
            is_limited: false,
            is_upheaval: false,
            round_trips: RoundTrips::default(),
            lumps: Lumps::new(now),
            chance: Chance::default(),
            is_late: false,
            arrears: Arrears::new(now),
            smoothed: Duration::ZERO,
            batch_bytes: 0,
            round: 0,
            round_end: 0,
            last_sent: 0,
            round_acked: 0,
            round_lost: 0,
            loss: 0.0,
            plateau: (0.0, 0),
            late: 0,
            resumption: Resumption::Fresh,
            acked: 0,
            lost: 0,
        }
    }

    /// The capacity of the path in bytes at its least round trip, times `gain`.
    fn fitting(&self, gain: f64) -> u64 {
        self.carried(self.round_trips.least(), gain)
    }

    /// The capacity of the path in bytes at its usual round trip, times `gain`, and at least the
    /// next lump.
    fn fitting_usually(&self, gain: f64) -> u64 {
        let round_trip =
            if self.loss > LOSSY { self.round_trips.least() } else { self.round_trips.usual() };
        let lump = self.lumps.largest(self.best.get()) as u64;
        self.carried(round_trip, gain).max(self.carried(round_trip, 1.0) + lump)
    }

    /// The bytes per round trip that make the best rate arrive despite the loss, times `gain`.
    fn carried(&self, round_trip: Duration, gain: f64) -> u64 {
        // Rates and gains are small enough for exact arithmetic.
        let arriving = self.best.get() * round_trip.as_secs_f64();
        let by_chance =
            if arriving < (MANY * self.mtu) as f64 { 0.0 } else { self.chance.share(self.mtu) };
        let bytes = (arriving * gain / (1.0 - by_chance)) as u64;
        bytes.max(LEAST * self.mtu)
    }

    /// Whether a round trip of this length contained a queue.
    fn met_queue(&self, took: Duration) -> bool {
        let least = self.round_trips.least();
        took > least + least / CLEAR + Duration::from_millis(1)
    }

    const fn is_full(&self) -> bool {
        self.in_flight + self.mtu >= self.window
    }

    /// Ends a round, one round trip after the end of the round before. The end of a start is
    /// detected here.
    fn end_round(&mut self, now: Instant) {
        self.round += 1;
        self.round_end = self.last_sent;
        let all = self.round_acked + self.round_lost;
        if all > 0 {
            let loss = self.round_lost as f64 / all as f64;
            let packets = all / self.mtu;
            self.is_upheaval = packets >= UPHEAVAL_PACKETS
                && loss > UPHEAVAL
                && (!self.is_limited
                    || loss > self.loss + UNLIKELY * deviation(self.loss, packets));
            self.loss = (self.loss * 7.0 + loss) / 8.0;
            if self.is_upheaval {
                self.is_limited = false;
                self.best.forget_before(self.round.saturating_sub(1));
                self.lumps = Lumps::new(now);
            }
        }
        (self.round_acked, self.round_lost) = (0, 0);
        let (before, rounds) = self.plateau;
        self.plateau = if self.best.get() >= before * GROWTH {
            (self.best.get(), 0)
        } else {
            (before, rounds + u32::from(!self.is_limited))
        };
    }

    /// Whether the batch came later than lumps explain. If the path is not full, a late batch is
    /// not significant.
    fn note_round_trip(&mut self, now: Instant) {
        let Some(took) = self.round_trips.end_batch(now) else { return };
        self.is_late = self.met_queue(took);
        let usual = self.round_trips.usual();
        let rate = self.best.get();
        let lump = self.lumps.largest(rate) / rate;
        let lump = Duration::try_from_secs_f64(lump).unwrap_or_default();
        let is_late = took > usual + lump.max(usual / 4 + Duration::from_millis(4));
        self.late = if is_late && !self.is_limited { self.late + 1 } else { 0 };
    }

    fn advance(&mut self, now: Instant) {
        let round_trip = self.round_trips.usual();
        match self.mode {
            Mode::Startup => {
                if self.plateau.1 >= PLATEAU || self.late >= 8 {
                    self.mode = Mode::Drain;
                }
            }
            Mode::Drain => {
                if self.in_flight <= self.fitting(DRAIN_GAIN) {
                    self.cruise_on(now);
                }
            }
            Mode::Cruise { phase, since } => {
                let is_drained = phase == 1 && self.in_flight <= self.fitting(DRAIN_GAIN);
                if is_drained || now.saturating_duration_since(since) >= round_trip {
                    if phase == DRAINED {
                        self.round_trips.drain_ends();
                    }
                    let next = (phase + 1) % CYCLE;
                    self.mode = Mode::Cruise { phase: next, since: now };
                    match next {
                        0 => self.chance.probe_begins(now),
                        1 => self.drain_probe(now),
                        _ => self.chance.cruise_begins(now),
                    }
                }
            }
            Mode::ProbeRtt { until } => {
                if now >= until {
                    self.round_trips.probe_rtt_ends(now);
                    self.cruise_on(now);
                }
            }
        }
        let may_age = !matches!(self.mode, Mode::ProbeRtt { .. } | Mode::Startup);
        if may_age && self.round_trips.is_probe_rtt_due(now) {
            self.round_trips.probe_rtt_begins();
            self.mode = Mode::ProbeRtt { until: now + PROBE_RTT.max(round_trip) };
        }
    }

    /// The queue of a probe begins to drain.
    fn drain_probe(&mut self, now: Instant) {
        self.round_trips.drain_begins();
        self.chance.probe_ends(now);
        self.mode = Mode::Cruise { phase: 1, since: now };
    }

    /// Runs in the middle of a cycle, when there is no queue. The measurements stay valid for a
    /// while.
    fn cruise_on(&mut self, now: Instant) {
        self.round_trips.drain_begins();
        self.chance.cruise_begins(now);
        self.mode = Mode::Cruise { phase: 2, since: now };
    }

    fn set_window(&mut self) {
        self.window = match self.mode {
            Mode::Startup => {
                let grown = self.window + (self.batch_bytes as f64 * STARTUP_GROWTH) as u64;
                grown.min(self.fitting(STARTUP_GAIN).max(self.window)).max(FIRST_FLIGHT * self.mtu)
            }
            Mode::Drain => self.fitting(DRAIN_GAIN),
            Mode::Cruise { phase: 0, .. } => self.fitting_usually(PROBE_GAIN),
            Mode::Cruise { phase: 1, .. } => self.fitting(DRAIN_GAIN),
            Mode::Cruise { .. } => {
                let gain = if self.loss > LOSSY { LOSSY_CRUISE_GAIN } else { CRUISE_GAIN };
                self.fitting_usually(gain) + LEAST * self.mtu
            }
            Mode::ProbeRtt { .. } => self.fitting(PROBE_RTT_GAIN),
        };
        self.batch_bytes = 0;
    }

    /// The sender has sent `bytes` in packets up to the number `last_packet_number`.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.deliveries.sent(now, self.in_flight == 0, self.is_limited);
        self.arrears.pass(now, self.window, self.smoothed);
        self.arrears.sent(bytes);
        self.in_flight += bytes;
        self.last_sent = last_packet_number;
        if self.is_full() {
            self.arrears.hold(true);
        }
    }

    /// The peer has acknowledged a packet of `bytes` bytes that was sent at `sent`. `app_limited`
    /// says that the application had no more data to send. `smoothed` is the smoothed round trip of
    /// the pacer.
    pub fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        smoothed: Duration,
    ) {
        self.smoothed = smoothed;
        self.is_limited = app_limited && !self.is_upheaval;
        self.deliveries.acknowledged(now, sent, bytes);
        self.batch_bytes += bytes;
        self.round_acked += bytes;
        self.acked += bytes;
        let took = now.saturating_duration_since(sent);
        self.chance.acknowledged(sent, bytes, self.met_queue(took));
        self.round_trips.acknowledged(took);
    }

    /// Ends a batch of acknowledgements. `in_flight` is the number of bytes in flight after the
    /// batch.
    pub fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.arrears.pass(now, self.window, self.smoothed);
        self.in_flight = in_flight;
        self.is_limited = app_limited && !self.is_upheaval;
        if let Some(sample) = self.deliveries.sample(now)
            && (!sample.is_limited || sample.rate > self.best.get())
        {
            self.best.add(self.round, sample.rate);
        }
        if largest_packet_num_acked.is_some_and(|acked| acked > self.round_end) {
            self.end_round(now);
        }
        self.lumps.acknowledged(now, self.batch_bytes, self.best.get(), self.round);
        self.note_round_trip(now);
        self.advance(now);
        self.set_window();
        self.validate(largest_packet_num_acked.unwrap_or_default());
        self.arrears.hold(app_limited || self.is_full());
    }

    /// Packets with `lost_bytes` bytes were lost. The last of these packets was sent at `sent`. 0
    /// bytes mean that the path marked a packet (ECN).
    pub fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.round_lost += lost_bytes;
        self.lost += lost_bytes;
        self.chance.lost(sent, lost_bytes, self.is_late);
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        if is_persistent_congestion {
            // No packet arrived for a long time, so the measurements may belong to a different
            // path.
            let mtu = u16::try_from(self.mtu).unwrap_or(u16::MAX);
            let (last_sent, resumption) = (self.last_sent, Resumption::Over);
            *self = Self { last_sent, resumption, ..Self::new(now, mtu) };
            self.round_end = self.last_sent;
            self.window = LEAST * self.mtu;
        } else if self.is_refused() {
            self.retreat();
        } else if lost_bytes == 0 && matches!(self.mode, Mode::Cruise { phase: 0, .. }) {
            // A queue marked the packet instead of dropping it (RFC 3168). The mark ends the start
            // or the probe.
            self.drain_probe(now);
        }
    }

    /// The path takes packets of `new_mtu` bytes from now on.
    pub fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
        self.window = self.window.max(LEAST * self.mtu);
    }

    /// Bytes that may be in flight.
    #[must_use]
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Whether the pacer has sent less than its rate allowed and the window has room for more than
    /// `batch` packets. The sender sends without pacing until it has caught up.
    #[must_use]
    pub fn is_in_arrears(&self, batch: u64) -> bool {
        let has_room = self.in_flight + batch * self.mtu < self.window;
        has_room && self.arrears.are_due(self.window, self.smoothed, self.mtu)
    }

    /// Releases the memory of bursts that are no longer in flight. Called by an idle sender.
    pub fn forget_bursts(&mut self) {
        self.deliveries.rest();
    }

    /// The best recent delivery rate, bytes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.best.get()
    }

    /// The window of a new path, bytes.
    #[must_use]
    pub const fn initial_window(&self) -> u64 {
        FIRST_FLIGHT * self.mtu
    }
}
