//! One direction of a packet path: loss, reordering, duplication. For transports over UDP.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Rng;

/// What happens to packets; probabilities in per mille.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// One-way delay.
    pub delay: Duration,
    /// Vanish.
    pub loss: u32,
    /// Arrive twice.
    pub duplicate: u32,
    /// Are held back by up to another delay (at least 1 ms), so that later ones overtake them.
    pub reorder: u32,
}

/// One direction of a packet path.
#[derive(Debug)]
pub struct Datagrams {
    weather: Weather,
    rng: Rng,
    flight: BTreeMap<(Instant, u64), Bytes>,
    serial: u64,
}

impl Datagrams {
    /// A path of this weather.
    #[must_use]
    pub const fn new(weather: Weather, seed: u64) -> Self {
        Self { weather, rng: Rng::new(seed), flight: BTreeMap::new(), serial: 0 }
    }

    /// Takes a packet.
    pub fn write(&mut self, now: Instant, packet: &Bytes) {
        let copies = 1 + u32::from(self.rng.chance(self.weather.duplicate));
        for _ in 0..copies {
            if self.rng.chance(self.weather.loss) {
                continue;
            }
            let mut at = now + self.weather.delay;
            if self.rng.chance(self.weather.reorder) {
                let most = self.weather.delay.max(Duration::from_millis(1)).as_micros();
                at += Duration::from_micros(self.rng.below(u64::try_from(most).unwrap_or(1)));
            }
            self.serial += 1;
            self.flight.insert((at, self.serial), packet.clone());
        }
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.flight.keys().next().map(|&(at, _)| at)
    }

    /// The next packet that has arrived.
    pub fn read(&mut self, now: Instant) -> Option<Bytes> {
        let entry = self.flight.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_duplication_and_reordering_come_in_the_asked_measure() {
        let start = crate::pair::epoch();
        let weather =
            Weather { delay: Duration::from_millis(10), loss: 100, duplicate: 50, reorder: 200 };
        let mut path = Datagrams::new(weather, 3);
        for n in 0..10_000u32 {
            let now = start + Duration::from_micros(n.into());
            path.write(now, &Bytes::copy_from_slice(&n.to_be_bytes()));
        }
        let (mut count, mut swaps, mut last) = (0, 0, 0);
        while let Some(packet) = path.read(start + Duration::from_secs(1)) {
            let n = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
            swaps += u32::from(n < last);
            last = n;
            count += 1;
        }
        assert!((9300..=9600).contains(&count), "{count} of 10,500 copies less a tenth");
        assert!(swaps > 500, "{swaps} packets were overtaken");
    }
}
