//! The four ways to decide how much may be under way, and the pacer.

use std::time::{Duration, Instant};

use congestion::{Bbr, FIRST_FLIGHT};

/// A pacer sends this much more than the window in a round trip, so that the window is what limits
/// (as quinn does; `congestion::Bbr` is made for it).
const PACE: f64 = 1.25;

/// The burst of a pacer: what leaves within this time, and at least [`BURST_LEAST`] packets. Timers
/// fire a millisecond late.
const BURST: Duration = Duration::from_millis(2);
const BURST_LEAST: u64 = 10;
const BURST_MAX: u64 = 256 << 10;

/// The shortest wait of a pacer.
const TICK: Duration = Duration::from_micros(1);

/// How fast an end sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// By a model of the path ([`congestion::Bbr`]), paced.
    Bbr,
    /// kcp-go's window with `nc = 0`: slow start, a step per round trip, half after a loss. Paced.
    Classic,
    /// So many bytes per second, whatever is lost. Unfair to others unless the rate is known to be
    /// free.
    Fixed(u64),
    /// Nothing but the two windows (`nc = 1`): a window leaves as one burst.
    Open,
}

#[derive(Debug)]
pub(crate) enum Controller {
    Bbr(Box<Bbr>),
    Classic(Classic),
    Fixed(u64),
    Open,
}

/// kcp-go's controller with `nc = 0`, in bytes.
#[derive(Debug)]
pub(crate) struct Classic {
    mtu: u64,
    window: u64,
    threshold: u64,
    /// Losses of transmissions before this one are of the same event.
    recovering: u64,
}

impl Controller {
    pub(crate) fn new(control: Control, now: Instant, mtu: u16) -> Self {
        match control {
            Control::Bbr => Self::Bbr(Box::new(Bbr::new(now, mtu))),
            Control::Classic => {
                let mtu = u64::from(mtu);
                let window = FIRST_FLIGHT * mtu;
                Self::Classic(Classic { mtu, window, threshold: u64::MAX, recovering: 0 })
            }
            Control::Fixed(rate) => Self::Fixed(rate.max(1)),
            Control::Open => Self::Open,
        }
    }

    /// Bytes that may be under way. `round_trip` is the smoothed one.
    pub(crate) fn window(&self, round_trip: Duration) -> u64 {
        match self {
            Self::Bbr(bbr) => bbr.window(),
            Self::Classic(classic) => classic.window,
            Self::Fixed(rate) => {
                // Twice what the path holds: its queue, and what waits for the repair of a loss.
                let bytes = *rate as f64 * round_trip.as_secs_f64() * 2.0;
                (bytes as u64).max(64 << 10)
            }
            Self::Open => u64::MAX,
        }
    }

    /// Bytes per second of the pacer; `None` where there is none.
    fn pace(&self, round_trip: Duration) -> Option<f64> {
        match self {
            Self::Bbr(_) | Self::Classic(_) => {
                let seconds = round_trip.as_secs_f64().max(1e-6);
                Some(PACE * self.window(round_trip) as f64 / seconds)
            }
            Self::Fixed(rate) => Some(*rate as f64),
            Self::Open => None,
        }
    }

    pub(crate) fn sent(&mut self, now: Instant, bytes: u64, number: u64) {
        if let Self::Bbr(bbr) = self {
            bbr.on_sent(now, bytes, number);
        }
    }

    pub(crate) fn arrived(
        &mut self,
        now: Instant,
        (sent, bytes, is_limited): (Instant, u64, bool),
        round_trip: Duration,
    ) {
        match self {
            Self::Bbr(bbr) => bbr.on_ack(now, sent, bytes, is_limited, round_trip),
            Self::Classic(classic) if !is_limited => classic.arrived(bytes),
            Self::Classic(_) | Self::Fixed(_) | Self::Open => {}
        }
    }

    pub(crate) fn batch_ends(
        &mut self,
        now: Instant,
        in_flight: u64,
        is_limited: bool,
        newest: Option<u64>,
    ) {
        if let Self::Bbr(bbr) = self {
            bbr.on_end_acks(now, in_flight, is_limited, newest);
        }
    }

    /// `bytes` of transmissions up to `number`, the last of which left at `sent`, are lost; `next`
    /// is the next transmission.
    pub(crate) fn lost(
        &mut self,
        now: Instant,
        (sent, bytes): (Instant, u64),
        (number, next): (u64, u64),
    ) {
        match self {
            Self::Bbr(bbr) => bbr.on_congestion_event(now, sent, false, bytes),
            Self::Classic(classic) => classic.lost(number, next),
            Self::Fixed(_) | Self::Open => {}
        }
    }

    /// The path takes packets of `mtu` bytes from now on.
    pub(crate) fn resized(&mut self, mtu: u16) {
        match self {
            Self::Bbr(bbr) => bbr.on_mtu_update(mtu),
            Self::Classic(classic) => classic.mtu = mtu.into(),
            Self::Fixed(_) | Self::Open => {}
        }
    }

    /// Gives memory back that an idle controller does not need.
    pub(crate) fn rest(&mut self) {
        if let Self::Bbr(bbr) = self {
            bbr.forget_bursts();
        }
    }

    /// Nothing arrives any more.
    pub(crate) fn path_is_void(&mut self, now: Instant) {
        match self {
            Self::Bbr(bbr) => bbr.on_congestion_event(now, now, true, 0),
            Self::Classic(classic) => classic.collapse(),
            Self::Fixed(_) | Self::Open => {}
        }
    }
}

impl Classic {
    /// A byte for each byte in slow start, a packet for each window after it.
    fn arrived(&mut self, bytes: u64) {
        self.window += if self.window < self.threshold {
            bytes
        } else {
            (self.mtu * bytes / self.window).max(1)
        };
    }

    /// Half, once for all that was under way at the loss.
    fn lost(&mut self, number: u64, next: u64) {
        if number >= self.recovering {
            self.recovering = next;
            self.threshold = (self.window / 2).max(2 * self.mtu);
            self.window = self.threshold;
        }
    }

    fn collapse(&mut self) {
        self.threshold = (self.window / 2).max(2 * self.mtu);
        self.window = self.mtu;
    }
}

/// Spreads what may leave over time: a bucket that fills at the rate of the controller.
#[derive(Debug)]
pub(crate) struct Pacer {
    bytes: f64,
    filled: Instant,
}

impl Pacer {
    /// Full, so that the first burst does not wait for a round trip that nobody has measured.
    pub(crate) const fn new(now: Instant) -> Self {
        Self { bytes: f64::MAX, filled: now }
    }

    /// `None` where `bytes` may leave now, else the time when they may.
    pub(crate) fn wait(
        &mut self,
        now: Instant,
        bytes: u64,
        controller: &Controller,
        round_trip: Duration,
    ) -> Option<Instant> {
        let rate = controller.pace(round_trip)?;
        let burst = (rate * BURST.as_secs_f64()) as u64;
        let burst = burst.clamp(BURST_LEAST * bytes, BURST_MAX.max(BURST_LEAST * bytes)) as f64;
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.bytes = (self.bytes + passed * rate).min(burst);
        self.filled = self.filled.max(now);
        let missing = bytes as f64 - self.bytes;
        // A wait that rounds to nothing would be a timer that is always due.
        let wait = || Duration::from_secs_f64(missing / rate).max(TICK);
        (missing > 0.0).then(|| now + wait())
    }

    /// `bytes` leave.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes -= bytes as f64;
    }
}
