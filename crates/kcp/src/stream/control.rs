//! The four controllers of the bytes in flight, and the pacer.

use std::time::{Duration, Instant};

use congestion::{Bbr, FIRST_FLIGHT};

/// A pacer sends this multiple of the window in a round trip, so that the window is the limit.
/// quinn does the same, and `congestion::Bbr` expects it.
const PACE: f64 = 1.25;

/// The burst of a pacer: the bytes sent in this time, and at least [`BURST_LEAST`] packets. Timers
/// fire up to a millisecond late.
const BURST: Duration = Duration::from_millis(2);
const BURST_LEAST: u64 = 10;
const BURST_MAX: u64 = 256 << 10;

/// The shortest wait of a pacer.
const TICK: Duration = Duration::from_micros(1);

/// The congestion control of an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// Follows a model of the path ([`congestion::Bbr`]), paced.
    Bbr,
    /// The window of kcp-go with `nc = 0`: slow start, then one additional packet per round trip,
    /// and halved after a loss. Paced.
    Classic,
    /// A fixed rate in bytes per second, regardless of loss. It is unfair to other senders unless
    /// the capacity is known to be available.
    Fixed(u64),
    /// Limited only by the send window and the peer's window (`nc = 1`). A window is sent as one
    /// burst.
    Open,
}

/// A controller of the bytes in flight, one for each [`Control`].
#[derive(Debug)]
pub enum Controller {
    /// A model of the path.
    Bbr(Box<Bbr>),
    /// The window of kcp-go.
    Classic(Classic),
    /// A rate in bytes per second.
    Fixed(u64),
    /// No limit.
    Open,
}

/// kcp-go's controller with `nc = 0`, in bytes.
#[derive(Debug)]
pub struct Classic {
    mtu: u64,
    window: u64,
    threshold: u64,
    /// Losses of transmissions before this number belong to the same congestion event.
    recovering: u64,
}

impl Controller {
    /// The controller of a path that takes packets of `mtu` bytes.
    #[must_use]
    pub fn new(control: Control, now: Instant, mtu: u16) -> Self {
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

    /// Bytes that may be in flight. `round_trip` is the smoothed round trip.
    pub fn window(&self, round_trip: Duration) -> u64 {
        match self {
            Self::Bbr(bbr) => bbr.window(),
            Self::Classic(classic) => classic.window,
            Self::Fixed(rate) => {
                // Twice the bandwidth-delay product, because of the queue and of bytes that wait
                // for a retransmission.
                let bytes = *rate as f64 * round_trip.as_secs_f64() * 2.0;
                (bytes as u64).max(64 << 10)
            }
            Self::Open => u64::MAX,
        }
    }

    /// The rate of the pacer in bytes per second. `None` if there is no pacing.
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

    /// Transmission `number` with this many bytes is sent.
    pub fn sent(&mut self, now: Instant, bytes: u64, number: u64) {
        if let Self::Bbr(bbr) = self {
            bbr.on_sent(now, bytes, number);
        }
    }

    /// A transmission that was sent at `sent` has arrived. `is_limited`: the sender had no more
    /// data to send.
    pub fn arrived(
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

    /// All acknowledgements of a packet are handled. `newest` is the newest transmission that has
    /// arrived.
    pub fn batch_ends(
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

    /// `bytes` bytes of transmissions up to `number` are lost. The last of these transmissions was
    /// sent at `sent`. `next` is the next transmission.
    pub fn lost(
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
    pub fn resized(&mut self, mtu: u16) {
        match self {
            Self::Bbr(bbr) => bbr.on_mtu_update(mtu),
            Self::Classic(classic) => classic.mtu = mtu.into(),
            Self::Fixed(_) | Self::Open => {}
        }
    }

    /// Releases the memory that an idle controller does not need.
    pub fn rest(&mut self) {
        if let Self::Bbr(bbr) = self {
            bbr.forget_bursts();
        }
    }

    /// No packet arrives any more.
    pub fn path_is_void(&mut self, now: Instant) {
        match self {
            Self::Bbr(bbr) => bbr.on_congestion_event(now, now, true, 0),
            Self::Classic(classic) => classic.collapse(),
            Self::Fixed(_) | Self::Open => {}
        }
    }
}

impl Classic {
    /// The window grows by one byte for each byte in slow start, and then by one packet for each
    /// window.
    fn arrived(&mut self, bytes: u64) {
        self.window += if self.window < self.threshold {
            bytes
        } else {
            (self.mtu * bytes / self.window).max(1)
        };
    }

    /// Halves the window, once for all transmissions that were in flight at the loss.
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

/// Spreads packets over time: a token bucket that fills at the rate of the controller.
#[derive(Debug)]
pub struct Pacer {
    bytes: f64,
    filled: Instant,
}

impl Pacer {
    /// A full bucket, so that the first burst does not wait for a measured round trip.
    pub const fn new(now: Instant) -> Self {
        Self { bytes: f64::MAX, filled: now }
    }

    /// `None` if `bytes` bytes may be sent now, else the time at which they may be sent.
    pub fn wait(
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
        // A wait that rounds to zero would be a timer that is always due.
        let wait = || Duration::from_secs_f64(missing / rate).max(TICK);
        (missing > 0.0).then(|| now + wait())
    }

    /// `bytes` bytes are sent.
    pub fn sent(&mut self, bytes: u64) {
        self.bytes -= bytes as f64;
    }
}
