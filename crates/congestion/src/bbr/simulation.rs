//! Senders with quinn's pacer and loss detection over an emulated path, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use testkit::netem::{Datagrams, Rng, Weather};

use super::{Bbr, Measured};
use crate::pacing::fires;
use crate::testing::epoch;

const MTU: u64 = 1_452;
const MS: Duration = Duration::from_millis(1);

/// The largest number of packets that quinn builds at once, and a window that quinn does not pace.
const BATCH: u64 = 10;
const UNPACED: u64 = 1 << 33;

/// The length of a start in seconds. Its results are reported separately.
const START: u64 = 2;

/// The additional delay of acknowledgements by the time since the start. Acknowledgements keep
/// their order.
pub(super) type Wait = fn(Duration) -> Duration;

/// The results of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Share of the bottleneck's rate that arrived after the start, of each sender.
    shares: Vec<f64>,
    /// The share of the bottleneck's rate during the start, of all senders together.
    pub(super) start: f64,
    /// The share of packets that the queue dropped.
    pub(super) dropped: f64,
    /// The mean excess of the round trip over the least round trip, after the start.
    pub(super) waited: Duration,
    /// Packets that the queue dropped.
    pub(super) dropped_packets: u64,
    /// Round trips until 80 % of the rate arrived within one.
    pub(super) filled_after: Option<usize>,
    /// The measurements of the first sender.
    pub(super) measured: Option<Measured>,
}

impl Outcome {
    /// Share of the bottleneck's rate that arrived after the start.
    pub(super) fn used(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// The rate of the slowest sender as a share of the fair rate.
    pub(super) fn fairness(&self) -> f64 {
        self.shares.iter().copied().fold(1.0, f64::min) * self.shares.len() as f64
    }
}

/// A path by its rate in Mbit/s, its round trip in milliseconds, its queue in milliseconds, and its
/// loss.
pub(super) fn path(megabits: u64, round_trip: u64, queue: u64, loss: f64) -> Weather {
    let rate = megabits * 125_000;
    Weather {
        delay: Duration::from_millis(round_trip) / 2,
        loss,
        rate: Some(rate),
        queue: usize::try_from(rate * queue / 1000).unwrap(),
        ..Weather::default()
    }
}

/// Runs one sender for this number of seconds.
pub(super) fn run(weather: Weather, seconds: u64) -> Outcome {
    World::new(weather, 1, |_| Duration::ZERO).run(seconds)
}

/// Runs one sender that knows the measurements of an earlier sender.
pub(super) fn run_resumed(weather: Weather, seconds: u64, past: Measured) -> Outcome {
    let mut world = World::new(weather, 1, |_| Duration::ZERO);
    world.senders.iter_mut().for_each(|sender| sender.past = Some(past));
    world.run(seconds)
}

/// Runs one sender whose receiver first grants this number of bytes, and doubles the window
/// whenever half of it arrived.
pub(super) fn run_granted(
    weather: Weather,
    seconds: u64,
    window: u64,
    past: Option<Measured>,
) -> Outcome {
    let mut world = World::new(weather, 1, |_| Duration::ZERO);
    world.grant = Some(Grant { window, arrived: 0, from: 0, announced: window });
    world.senders.iter_mut().for_each(|sender| (sender.past, sender.limit) = (past, window));
    world.run(seconds)
}

/// Runs one sender on a machine that stops. `stopped` returns the length of a stop by the time
/// since the start.
pub(super) fn run_stopped(weather: Weather, seconds: u64, stopped: Wait) -> Outcome {
    World { stopped, ..World::new(weather, 1, |_| Duration::ZERO) }.run(seconds)
}

/// Runs one sender whose acknowledgements are delayed.
pub(super) fn run_waiting(weather: Weather, seconds: u64, wait: Wait) -> Outcome {
    World::new(weather, 1, wait).run(seconds)
}

/// Runs this number of senders at one bottleneck. Each sender starts a quarter of a second after
/// the sender before.
pub(super) fn run_many(weather: Weather, seconds: u64, senders: u32) -> Outcome {
    World::new(weather, senders, |_| Duration::ZERO).run(seconds)
}

/// The credit of a receiver.
struct Grant {
    window: u64,
    arrived: u64,
    /// When the present window began to be used.
    from: u64,
    /// The latest limit that the sender knows. It grows by at least a quarter of the window.
    announced: u64,
}

impl Grant {
    /// A packet arrived. Returns the limit that its acknowledgement carries.
    fn arrive(&mut self) -> u64 {
        self.arrived += MTU;
        if self.arrived - self.from >= self.window / 2 {
            self.window *= 2;
            self.from = self.arrived;
        }
        if self.arrived + self.window >= self.announced + self.window / 4 {
            self.announced = self.arrived + self.window;
        }
        self.announced
    }
}

struct Sender {
    bbr: Bbr,
    next: u64,
    flight: BTreeMap<u64, Instant>,
    smoothed: Duration,
    tokens: f64,
    filled: Instant,
    /// The sender looks for data to send when acknowledgements come, and at this time.
    wakes: Instant,
    early_bytes: u64,
    late_bytes: u64,
    /// The measurements of an earlier connection over the path.
    past: Option<Measured>,
    /// The limit that the receiver has granted.
    limit: u64,
    /// The last attempt to send ended at that limit.
    is_limited: bool,
}

impl Sender {
    fn new(starts: Instant, round_trip: Duration) -> Self {
        Self {
            bbr: Bbr::new(starts, 1_452),
            next: 0,
            flight: BTreeMap::new(),
            smoothed: round_trip,
            tokens: 10.0 * MTU as f64,
            filled: starts,
            wakes: starts,
            early_bytes: 0,
            late_bytes: 0,
            past: None,
            limit: u64::MAX,
            is_limited: false,
        }
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * MTU
    }

    /// The window that quinn sees.
    fn window(&self) -> u64 {
        if self.bbr.is_in_arrears(BATCH) { UNPACED } else { self.bbr.window() }
    }

    fn may_send(&self) -> bool {
        self.in_flight() + MTU <= self.window()
    }

    /// The wait for the next packet by the rules of quinn's pacer. The wait lasts until a whole
    /// burst may be sent. Its timer fires at the full millisecond before that time
    /// ([`crate::pacing`]).
    fn pace(&mut self, now: Instant, begin: Instant) -> Option<Instant> {
        let round_trip = self.smoothed.as_secs_f64();
        let window = self.window() as f64;
        let rate = window * 1.25 / round_trip;
        let capacity = (window * 0.002 / round_trip).clamp(10.0 * MTU as f64, 256.0 * MTU as f64);
        let elapsed = now.duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + rate * elapsed).min(capacity);
        self.filled = now;
        if self.tokens >= MTU as f64 || self.window() > u64::from(u32::MAX) {
            return None;
        }
        let wait = Duration::from_secs_f64((capacity - self.tokens) / rate);
        let fires = fires(now, now + wait).duration_since(begin);
        let ticks = fires.as_micros().div_ceil(1000);
        Some(begin + MS * u32::try_from(ticks).unwrap())
    }

    fn acknowledge(&mut self, now: Instant, number: u64) -> Option<Duration> {
        self.wakes = now;
        let sent = self.flight.remove(&number)?;
        let took = now.duration_since(sent);
        self.smoothed = (self.smoothed * 7 + took) / 8;
        self.bbr.on_ack(now, sent, MTU, self.is_limited, self.smoothed);
        // Three later packets arrived (RFC 9002 section 6.1.1).
        let lost: Vec<u64> =
            self.flight.range(..number.saturating_sub(2)).map(|(n, _)| *n).collect();
        let last = lost.iter().filter_map(|number| self.flight.remove(number)).max();
        if let Some(sent) = last {
            self.bbr.on_congestion_event(now, sent, false, lost.len() as u64 * MTU);
        }
        let in_flight = self.in_flight();
        self.bbr.on_end_acks(now, in_flight, self.is_limited, Some(number));
        if self.bbr.is_starting()
            && let Some(past) = self.past.take()
        {
            self.bbr.resume(past);
        }
        Some(took)
    }

    /// The number of a packet that is sent now.
    fn send(&mut self, now: Instant) -> u64 {
        let number = self.next;
        self.bbr.on_sent(now, MTU, number);
        self.flight.insert(number, now);
        self.next += 1;
        self.tokens = (self.tokens - MTU as f64).max(0.0);
        number
    }
}

struct World {
    weather: Weather,
    wait: Wait,
    stopped: Wait,
    begin: Instant,
    senders: Vec<Sender>,
    path: Datagrams<(usize, u64)>,
    /// Acknowledgements in flight: the time of arrival, the sender, the packet.
    acks: VecDeque<(Instant, usize, u64, u64)>,
    grant: Option<Grant>,
    rng: Rng,
    waited: Duration,
    waits: u32,
    /// Bytes that arrived in each round trip.
    arrived: Vec<u64>,
}

impl World {
    fn new(weather: Weather, senders: u32, wait: Wait) -> Self {
        let begin = epoch();
        let sender = |n| Sender::new(begin + 250 * MS * n, weather.delay * 2);
        Self {
            weather,
            wait,
            stopped: |_| Duration::ZERO,
            begin,
            senders: (0..senders).map(sender).collect(),
            path: Datagrams::new(weather, 7),
            acks: VecDeque::new(),
            grant: None,
            rng: Rng::new(3),
            waited: Duration::ZERO,
            waits: 0,
            arrived: Vec::new(),
        }
    }

    fn run(mut self, seconds: u64) -> Outcome {
        let end = self.begin + Duration::from_secs(seconds);
        let mut now = self.begin;
        while now < end {
            self.arrive(now);
            let stopped = (self.stopped)(now - self.begin);
            if !stopped.is_zero() {
                let arrives = self.path.next_arrival();
                now = arrives.map_or(now + stopped, |at| at.min(now + stopped));
                continue;
            }
            self.acknowledge(now);
            let wakes = self.send(now);
            let acked = self.acks.front().map(|&(at, ..)| at);
            // If all packets in flight were lost, the sender sends a probe.
            let probe = now + Duration::from_secs(1);
            let next = [wakes, acked, self.path.next_arrival()].into_iter().flatten().min();
            if next.is_none_or(|next| next >= probe) {
                self.senders.iter_mut().for_each(|sender| sender.flight.clear());
                self.senders.iter_mut().for_each(|sender| sender.wakes = sender.wakes.min(probe));
            }
            now = next.map_or(probe, |next| next.min(probe)).max(now + Duration::from_nanos(1));
        }
        self.outcome(seconds)
    }

    fn is_started(&self, now: Instant) -> bool {
        now >= self.begin + Duration::from_secs(START)
    }

    /// Packets reach the far end, which acknowledges each packet.
    fn arrive(&mut self, now: Instant) {
        while let Some((of, number)) = self.path.read(now) {
            let is_started = self.is_started(now);
            let trip = (now - self.begin).as_nanos() / (self.weather.delay * 2).as_nanos().max(1);
            let trip = usize::try_from(trip).unwrap();
            self.arrived.resize(self.arrived.len().max(trip + 1), 0);
            self.arrived[trip] += MTU;
            let sender = &mut self.senders[of];
            *(if is_started { &mut sender.late_bytes } else { &mut sender.early_bytes }) += MTU;
            let jitter = u64::try_from(self.weather.jitter.as_micros()).unwrap();
            let jitter = Duration::from_micros(self.rng.below(jitter + 1));
            let at = now + self.weather.delay + jitter + (self.wait)(now - self.begin);
            let at = self.acks.back().map_or(at, |&(last, ..)| last.max(at));
            let limit = self.grant.as_mut().map_or(u64::MAX, Grant::arrive);
            self.acks.push_back((at, of, number, limit));
        }
    }

    fn acknowledge(&mut self, now: Instant) {
        while let Some((_, of, number, limit)) = self.acks.pop_front_if(|(at, ..)| *at <= now) {
            self.senders[of].limit = limit;
            let took = self.senders[of].acknowledge(now, number);
            if let Some(took) = took
                && self.is_started(now)
            {
                self.waited += took - self.weather.delay * 2;
                self.waits += 1;
            }
        }
    }

    /// Each sender that is awake sends as many packets as it may. Returns the next time at which a
    /// sender wakes.
    fn send(&mut self, now: Instant) -> Option<Instant> {
        for (of, sender) in self.senders.iter_mut().enumerate() {
            while sender.wakes <= now {
                sender.is_limited = sender.may_send() && (sender.next + 1) * MTU > sender.limit;
                if sender.is_limited || !sender.may_send() {
                    // Acknowledgements wake the sender.
                    sender.wakes = now + Duration::from_secs(3600);
                } else if let Some(at) = sender.pace(now, self.begin) {
                    sender.wakes = at.max(now + Duration::from_nanos(1));
                } else {
                    let number = sender.send(now);
                    self.path.write(now, MTU as usize, || (of, number));
                }
            }
        }
        self.senders.iter().map(|sender| sender.wakes).min()
    }

    fn outcome(&self, seconds: u64) -> Outcome {
        let rate = self.weather.rate.unwrap() as f64;
        let share = |sender: &Sender| sender.late_bytes as f64 / (rate * (seconds - START) as f64);
        let early: u64 = self.senders.iter().map(|sender| sender.early_bytes).sum();
        let counts = self.path.counts();
        let fits = rate * (self.weather.delay * 2).as_secs_f64();
        Outcome {
            shares: self.senders.iter().map(share).collect(),
            start: early as f64 / (rate * START as f64),
            dropped: counts.dropped as f64 / counts.written as f64,
            waited: self.waited / self.waits.max(1),
            dropped_packets: counts.dropped,
            filled_after: self.arrived.iter().position(|bytes| *bytes as f64 >= 0.8 * fits),
            measured: self.senders[0].bbr.measured(),
        }
    }
}
