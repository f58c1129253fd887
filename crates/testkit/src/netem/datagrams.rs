//! One direction of a packet path: loss, reordering, duplication, and a bottleneck with a queue.
//! Transports over UDP use it in virtual time; the wire between real network stacks uses it too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::weather::Losses;
use super::{Rng, Weather};

/// The maximum number of bytes in flight, under any weather. A packet beyond this limit is dropped
/// as if the queue were full. 1 Gbit/s for 300 ms is 37.5 MB.
const LINE_MAX: usize = 256 << 20;

/// Counters of a path's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets written.
    pub written: u64,
    /// Packets lost in transit.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets that arrived, duplicates included.
    pub arrived: u64,
    /// Bytes of the packets that arrived.
    pub arrived_bytes: u64,
}

/// One direction of a packet path. The caller chooses the type that holds a packet.
///
/// A packet passes the queue, then the bottleneck, then the delay line, where it may be lost. A
/// lost packet has used the bottleneck, as on a radio link.
#[derive(Debug)]
pub struct Datagrams<P> {
    weather: Weather,
    losses: Losses,
    /// Draws everything but losses, so that losses do not depend on the rest of the weather.
    rng: Rng,
    flight: BTreeMap<(Instant, u64), (usize, P)>,
    in_flight: usize,
    serial: u64,
    /// When the bottleneck is free again.
    busy_until: Option<Instant>,
    /// Arrival time of the last packet that no other packet overtakes.
    last_arrival: Option<Instant>,
    counts: Counts,
}

impl<P> Datagrams<P> {
    /// A path with the given weather.
    #[must_use]
    pub const fn new(weather: Weather, seed: u64) -> Self {
        Self {
            weather,
            losses: Losses::new(seed),
            rng: Rng::new(!seed),
            flight: BTreeMap::new(),
            in_flight: 0,
            serial: 0,
            busy_until: None,
            last_arrival: None,
            counts: Counts { written: 0, lost: 0, dropped: 0, arrived: 0, arrived_bytes: 0 },
        }
    }

    /// Writes a packet of `size` bytes. `make` is called once for each copy that is sent.
    pub fn write(&mut self, now: Instant, size: usize, mut make: impl FnMut() -> P) {
        self.counts.written += 1;
        let is_lost = self.losses.next(&self.weather);
        let Some(sent) = self.pass_bottleneck(now, size) else {
            self.counts.dropped += 1;
            return;
        };
        if is_lost {
            self.counts.lost += 1;
            return;
        }
        let copies = 1 + usize::from(self.rng.within(self.weather.duplicate));
        for _ in 0..copies {
            let at = self.arrival(sent);
            self.serial += 1;
            self.in_flight += size;
            self.flight.insert((at, self.serial), (size, make()));
        }
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.flight.keys().next().map(|&(at, _)| at)
    }

    /// The next packet that has arrived, if any.
    pub fn read(&mut self, now: Instant) -> Option<P> {
        let entry = self.flight.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let (size, packet) = entry.remove();
        self.in_flight -= size;
        self.counts.arrived += 1;
        self.counts.arrived_bytes += size as u64;
        Some(packet)
    }

    /// Bytes that wait in front of the bottleneck, including the packet that passes through it now.
    #[must_use]
    pub fn backlog(&self, now: Instant) -> usize {
        let (Some(rate), Some(until)) = (self.weather.rate, self.busy_until) else { return 0 };
        let wait = until.saturating_duration_since(now).as_nanos();
        usize::try_from((wait * u128::from(rate)).div_ceil(1_000_000_000)).unwrap_or(usize::MAX)
    }

    /// The counters of the path's packets up to now.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The time when a packet's last byte leaves the bottleneck. `None` if the queue is full.
    fn pass_bottleneck(&mut self, now: Instant, size: usize) -> Option<Instant> {
        if self.in_flight + size > LINE_MAX {
            return None;
        }
        let Some(rate) = self.weather.rate else { return Some(now) };
        let backlog = self.backlog(now);
        if backlog > 0 && backlog + size > self.weather.queue {
            return None;
        }
        let free = self.busy_until.map_or(now, |until| until.max(now));
        let nanos = size as u128 * 1_000_000_000 / u128::from(rate.max(1));
        let sent = free + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.busy_until = Some(sent);
        Some(sent)
    }

    fn arrival(&mut self, sent: Instant) -> Instant {
        let at = sent + self.weather.delay;
        if self.rng.within(self.weather.reorder) {
            return at + self.up_to(self.weather.delay.max(Duration::from_millis(1)));
        }
        let at = at + self.up_to(self.weather.jitter);
        let at = self.last_arrival.map_or(at, |last| last.max(at));
        self.last_arrival = Some(at);
        at
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.rng.below(micros + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netem::Burst;
    use crate::pair::epoch;

    const MS: Duration = Duration::from_millis(1);

    /// Writes packets of 1,000 bytes at intervals of `gap` and returns the packets that arrive,
    /// with their times.
    fn sent(weather: Weather, seed: u64, count: u32, gap: Duration) -> Vec<(Duration, u32)> {
        let mut path = Datagrams::new(weather, seed);
        for n in 0..count {
            path.write(epoch() + gap * n, 1000, || n);
        }
        let mut arrived = Vec::new();
        while let Some(at) = path.next_arrival() {
            arrived.extend(path.read(at).map(|n| (at - epoch(), n)));
        }
        assert_eq!(path.in_flight, 0);
        arrived
    }

    #[test]
    fn loss_duplication_and_reordering_come_in_the_asked_measure() {
        let weather = Weather {
            delay: 10 * MS,
            loss: 0.1,
            duplicate: 0.05,
            reorder: 0.2,
            ..Weather::default()
        };
        let arrived = sent(weather, 3, 10_000, Duration::from_micros(1));
        let swaps = arrived.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
        let count = arrived.len();
        assert!((9300..=9600).contains(&count), "{count} of 10,500 copies less a tenth");
        assert!(swaps > 500, "{swaps} packets were overtaken");
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let weather = Weather { delay: 10 * MS, rate: Some(1_000_000), ..Weather::default() };
        let arrived = sent(weather, 1, 3, Duration::ZERO);
        assert_eq!(arrived, [(11 * MS, 0), (12 * MS, 1), (13 * MS, 2)]);
        let arrived = sent(weather, 1, 3, 5 * MS);
        assert_eq!(arrived, [(11 * MS, 0), (16 * MS, 1), (21 * MS, 2)]);
    }

    #[test]
    fn a_full_queue_drops_what_comes_last_and_is_exact_to_the_byte() {
        for (queue, kept) in [(0, 1), (1999, 1), (2000, 2), (5000, 5), (5999, 5)] {
            let weather = Weather { rate: Some(1_000_000), queue, ..Weather::default() };
            let arrived = sent(weather, 1, 20, Duration::ZERO);
            let numbers: Vec<_> = arrived.iter().map(|packet| packet.1).collect();
            assert_eq!(numbers, (0..kept).collect::<Vec<_>>(), "queue of {queue}");
        }
        // The packets arrive twice as fast as the bottleneck: each second packet finds room in a
        // full queue.
        let weather = Weather { rate: Some(1_000_000), queue: 3000, ..Weather::default() };
        let arrived = sent(weather, 1, 1000, MS / 2);
        assert!((500..=503).contains(&arrived.len()), "{}", arrived.len());
    }

    #[test]
    fn jitter_delays_within_its_bounds_and_keeps_the_order() {
        let weather = Weather { delay: 10 * MS, jitter: 5 * MS, ..Weather::default() };
        let arrived = sent(weather, 1, 1000, MS);
        assert!(arrived.is_sorted_by_key(|packet| packet.1));
        let extra = |&(at, n): &(Duration, u32)| at - MS * n - 10 * MS;
        assert!(arrived.iter().all(|packet| extra(packet) <= 5 * MS));
        assert!(arrived.iter().any(|packet| extra(packet) > 4 * MS));
        assert!(arrived.iter().any(|packet| extra(packet) < MS));
    }

    #[test]
    fn what_is_lost_depends_on_the_seed_and_not_on_queues_or_timing() {
        let weather = Weather {
            loss: 0.02,
            burst: Some(Burst::runs(0.03, 5.0)),
            delay: MS,
            ..Weather::default()
        };
        let numbers = |weather, gap| {
            let arrived = sent(weather, 9, 5000, gap);
            let mut numbers: Vec<_> = arrived.into_iter().map(|packet| packet.1).collect();
            numbers.sort_unstable();
            numbers
        };
        let plain = numbers(weather, Duration::ZERO);
        let other = Weather { jitter: 9 * MS, reorder: 0.3, rate: Some(1 << 30), ..weather };
        assert_eq!(plain, numbers(Weather { queue: usize::MAX, ..other }, MS));
        let narrow = numbers(Weather { rate: Some(1_000_000), queue: 2000, ..weather }, MS / 2);
        assert!(narrow.len() < plain.len() * 6 / 10);
        assert!(narrow.iter().all(|n| plain.contains(n)));
    }

    #[test]
    fn a_line_without_a_rate_is_bounded_too() {
        let mut path = Datagrams::new(Weather { delay: MS, ..Weather::default() }, 1);
        for _ in 0..300 {
            path.write(epoch(), 1 << 20, || ());
        }
        assert_eq!((path.in_flight, path.counts().dropped), (LINE_MAX, 44));
    }
}
