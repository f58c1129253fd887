//! A sender with quinn's pacer and loss detection over an emulated path, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use quinn::congestion::Controller;
use testkit::netem::{Datagrams, Weather};

use super::{Bbr, Mode};

const MTU: u64 = 1_452;

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    /// Share of the bottleneck's rate that arrived, after the first two seconds.
    used: f64,
    /// The same of those two seconds.
    start: f64,
    /// Of all packets, those that the queue dropped.
    dropped: f64,
    /// Mean of what the round trip was above its least, after the start.
    waited: Duration,
}

struct Sender {
    bbr: Bbr,
    now: Instant,
    next: u64,
    flight: BTreeMap<u64, Instant>,
    smoothed: Duration,
    tokens: f64,
    filled: Instant,
}

impl Sender {
    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * MTU
    }

    /// As quinn paces: when the next packet may leave.
    fn pace(&mut self) -> Instant {
        let rate = self.bbr.window() as f64 * 1.25 / self.smoothed.as_secs_f64();
        let capacity = (self.bbr.window() as f64 * 0.002 / self.smoothed.as_secs_f64())
            .clamp(10.0 * MTU as f64, 256.0 * MTU as f64);
        let elapsed = self.now.duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + rate * elapsed).min(capacity);
        self.filled = self.now;
        let lacking = (MTU as f64 - self.tokens).max(0.0);
        self.now + Duration::from_secs_f64(lacking / rate)
    }

    fn acknowledge(&mut self, number: u64) -> Option<Duration> {
        let sent = self.flight.remove(&number)?;
        let rtt = self.now.duration_since(sent);
        self.smoothed = (self.smoothed * 7 + rtt) / 8;
        self.bbr.acknowledged(self.now, sent, MTU, false);
        // Three later ones arrived (RFC 9002 section 6.1.1).
        let lost: Vec<u64> =
            self.flight.range(..number.saturating_sub(2)).map(|(n, _)| *n).collect();
        for number in &lost {
            self.flight.remove(number);
        }
        if !lost.is_empty() {
            self.bbr.on_congestion_event(self.now, sent, false, lost.len() as u64 * MTU);
        }
        let in_flight = self.in_flight();
        self.bbr.on_end_acks(self.now, in_flight, false, Some(number));
        Some(rtt)
    }
}

fn run(weather: Weather, seconds: u64) -> Outcome {
    let begin = Instant::now();
    let round_trip = weather.delay * 2;
    let rate = weather.rate.unwrap() as f64;
    let mut path = Datagrams::new(weather, 7);
    let mut acks: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut sender = Sender {
        bbr: Bbr::new(begin, 1_452),
        now: begin,
        next: 0,
        flight: BTreeMap::new(),
        smoothed: round_trip,
        tokens: 10.0 * MTU as f64,
        filled: begin,
    };
    let (end, settled) = (begin + Duration::from_secs(seconds), begin + Duration::from_secs(2));
    let (mut early, mut late, mut waited, mut waits) = (0u64, 0u64, Duration::ZERO, 0u32);
    while sender.now < end {
        while let Some(number) = path.read(sender.now) {
            acks.push_back((sender.now + round_trip / 2, number));
            *(if sender.now < settled { &mut early } else { &mut late }) += MTU;
        }
        while let Some((_, number)) = acks.pop_front_if(|(at, _)| *at <= sender.now) {
            if let Some(rtt) = sender.acknowledge(number)
                && sender.now > settled
            {
                waited += rtt - round_trip;
                waits += 1;
            }
        }
        let mut paced = sender.pace();
        while paced <= sender.now && sender.in_flight() + MTU <= sender.bbr.window() {
            let number = sender.next;
            sender.bbr.on_sent(sender.now, MTU, number);
            sender.flight.insert(number, sender.now);
            sender.next += 1;
            sender.tokens -= MTU as f64;
            path.write(sender.now, MTU as usize, || number);
            paced = sender.pace();
        }
        let may_send = sender.in_flight() + MTU <= sender.bbr.window();
        let moments = [
            may_send.then_some(paced),
            path.next_arrival(),
            acks.front().map(|&(at, _)| at),
            // A probe, where everything under way was lost.
            Some(sender.now + Duration::from_secs(1)),
        ];
        let next = moments.into_iter().flatten().min().unwrap();
        if next >= sender.now + Duration::from_secs(1) {
            sender.flight.clear();
        }
        sender.now = next.max(sender.now + Duration::from_nanos(1));
    }
    let counts = path.counts();
    Outcome {
        used: late as f64 / (rate * (seconds - 2) as f64),
        start: early as f64 / (rate * 2.0),
        dropped: counts.dropped as f64 / counts.written as f64,
        waited: waited / waits.max(1),
    }
}

/// Megabits per second, milliseconds there and back, milliseconds of queue, loss.
fn path(megabits: u64, round_trip: u64, queue: u64, loss: f64) -> Weather {
    let rate = megabits * 125_000;
    Weather {
        delay: Duration::from_millis(round_trip) / 2,
        loss,
        rate: Some(rate),
        queue: usize::try_from(rate * queue / 1000).unwrap(),
        ..Weather::default()
    }
}

#[test]
fn a_path_is_filled_at_any_loss_that_is_no_congestion() {
    for (megabits, round_trip) in [(10, 20), (100, 60), (100, 100), (1000, 100), (20, 300)] {
        for (loss, least) in [(0.0, 0.96), (0.01, 0.95), (0.05, 0.91), (0.1, 0.82), (0.2, 0.63)] {
            let weather = path(megabits, round_trip, 100, loss);
            let seconds = if megabits == 1000 { 6 } else { 15 };
            let outcome = run(weather, seconds);
            println!("{megabits} Mbit/s {round_trip} ms {loss}: {outcome:?}");
            assert!(
                outcome.used > least,
                "{megabits} Mbit/s, {round_trip} ms, {loss}: {outcome:?}"
            );
        }
    }
}

#[test]
fn queues_stay_short_and_hardly_drop_anything() {
    for (megabits, round_trip, queue) in [(10, 50, 100), (100, 60, 100), (100, 100, 50)] {
        let outcome = run(path(megabits, round_trip, queue, 0.0), 15);
        println!("{megabits} Mbit/s {round_trip} ms queue {queue} ms: {outcome:?}");
        assert!(outcome.dropped < 0.01 && outcome.start > 0.75, "{outcome:?}");
        assert!(outcome.waited < Duration::from_millis(round_trip * 4 / 10), "{outcome:?}");
    }
}

#[test]
fn a_shallow_queue_is_not_flooded() {
    let outcome = run(path(100, 60, 5, 0.0), 15);
    println!("{outcome:?}");
    assert!(outcome.used > 0.85 && outcome.dropped < 0.13, "{outcome:?}");
}

/// Whether half of the path is left empty within 30 s of round trips of so many milliseconds, after one of
/// 100, and what is believed of the path at the end.
fn looks_for_the_least(milliseconds: u64) -> (bool, Duration) {
    let begin = Instant::now();
    let mut bbr = Bbr::new(begin, 1_452);
    let mut see = |now: Instant, milliseconds: u64| {
        bbr.batch = Some(Duration::from_millis(milliseconds));
        bbr.note_round_trip(now);
        if matches!(bbr.mode, Mode::Startup) {
            bbr.mode = Mode::Cruise { phase: 2, since: now };
        }
        bbr.advance(now);
        (matches!(bbr.mode, Mode::ProbeRtt { .. }), bbr.least.unwrap().0)
    };
    let first = see(begin, 100);
    (1..=300).fold(first, |(looked, _), turn| {
        let (looks, least) = see(begin + Duration::from_millis(turn * 100), milliseconds);
        (looked || looks, least)
    })
}

#[test]
fn the_least_round_trip_is_looked_for_when_all_were_longer_for_ten_seconds() {
    assert_eq!(looks_for_the_least(103), (false, Duration::from_millis(100)));
    assert_eq!(looks_for_the_least(104), (true, Duration::from_millis(104)));
    assert_eq!(looks_for_the_least(150), (true, Duration::from_millis(150)));
}
