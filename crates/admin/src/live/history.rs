//! Past rates: rings of a bounded number of values, for a bounded number of series.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// The steps in seconds, and the number of values of each: 5 minutes, an hour, a day.
pub(super) const RINGS: [(u64, usize); 3] = [(1, 300), (10, 360), (60, 1_440)];

/// Most series. A full series has 17 KB.
pub(super) const SERIES: usize = 64;

/// After this time without a byte, a series gives way to another with traffic.
const QUIET: Duration = Duration::from_secs(600);

/// The series of all visitors together.
pub(super) const TOTAL: &str = "total";

/// Bytes since the start: from visitors to targets, and back.
pub(super) type Bytes = (u64, u64);

/// Bytes per second from visitors to targets, and back.
pub(super) type Rate = (f64, f64);

/// The bytes of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: Bytes,
    /// The number of services that are added up.
    pub(super) parts: u32,
}

impl From<Bytes> for Sum {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, parts: 1 }
    }
}

/// All series by their names: `total`, `service:NAME`, `client:NAME`.
#[derive(Debug, Default)]
pub(super) struct History(BTreeMap<String, Series>);

#[derive(Debug)]
struct Series {
    rings: [VecDeque<[f32; 2]>; RINGS.len()],
    /// The reading at the last value of each ring.
    last: [Option<(Instant, Bytes)>; RINGS.len()],
    /// When the last bytes were moved.
    moved: Instant,
}

/// The values of a ring, oldest first. The last value ends now.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    pub(super) step_seconds: u64,
    /// Bytes per second from visitors to targets; `null` where no reading was taken.
    #[serde(rename = "in")]
    incoming: Vec<Option<f32>>,
    #[serde(rename = "out")]
    outgoing: Vec<Option<f32>>,
}

impl Series {
    fn new(now: Instant) -> Self {
        Self { rings: Default::default(), last: [None; RINGS.len()], moved: now }
    }

    /// Adds a value to each ring that is due in this second. `None`: no reading was taken.
    fn push(&mut self, second: u64, now: Instant, read: Option<Bytes>) {
        for (n, (step, room)) in RINGS.into_iter().enumerate() {
            if !second.is_multiple_of(step) {
                continue;
            }
            let value = match (read, self.last[n]) {
                (Some(read), Some(last)) => {
                    let (incoming, outgoing) = rate(last, (now, read));
                    if incoming + outgoing > 0.0 {
                        self.moved = now;
                    }
                    [incoming as f32, outgoing as f32]
                }
                (None, _) | (_, None) => [f32::NAN; 2],
            };
            self.last[n] = read.map(|read| (now, read));
            // The first reading has no rate, and a series begins with its first rate.
            if self.rings[n].is_empty() && value[0].is_nan() {
                continue;
            }
            if self.rings[n].len() >= room {
                self.rings[n].pop_front();
            }
            self.rings[n].push_back(value);
        }
    }
}

/// The rate between two readings. The bytes of a service that ended leave the sum, which is not
/// traffic.
pub(super) fn rate(last: (Instant, Bytes), now: (Instant, Bytes)) -> Rate {
    let seconds = (now.0 - last.0).as_secs_f64();
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let of = |last: u64, now: u64| now.saturating_sub(last) as f64 / seconds;
    (of(last.1.0, now.1.0), of(last.1.1, now.1.1))
}

impl History {
    /// Adds the readings of a second. A series without a reading gets a gap.
    pub(super) fn push(&mut self, second: u64, now: Instant, read: &BTreeMap<String, Sum>) {
        for (name, series) in &mut self.0 {
            series.push(second, now, read.get(name).map(|sum| sum.bytes));
        }
        // A server may have thousands of clients, whose names are examined only while there is
        // room.
        let mut room = self.has_room(now);
        // The total comes first, regardless of the other names.
        for (name, Sum { bytes, .. }) in read.get_key_value(TOTAL).into_iter().chain(read) {
            if !room {
                break;
            }
            let is_full = self.0.len() >= SERIES;
            if is_full && *bytes == (0, 0) || self.0.contains_key(name) {
                continue;
            }
            if is_full && let Some(quiet) = self.quiet(now) {
                self.0.remove(&quiet);
            }
            let mut series = Series::new(now);
            series.push(second, now, Some(*bytes));
            self.0.insert(name.clone(), series);
            room = self.has_room(now);
        }
    }

    /// Whether there is room for another series, possibly by evicting one.
    fn has_room(&self, now: Instant) -> bool {
        self.0.len() < SERIES || self.quiet(now).is_some()
    }

    /// The series that was quiet longest and is evicted for one with bytes.
    fn quiet(&self, now: Instant) -> Option<String> {
        let others = self.0.iter().filter(|(name, _)| *name != TOTAL);
        let quietest = others.min_by_key(|(_, series)| series.moved);
        let quietest = quietest.filter(|(_, series)| now - series.moved >= QUIET);
        quietest.map(|(name, _)| name.clone())
    }

    /// The names of all series.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// The rings of a series; `step`: only this ring. `None`: no such series.
    pub(super) fn of(&self, name: &str, step: Option<u64>) -> Option<Vec<Shown>> {
        let series = self.0.get(name)?;
        let rings = RINGS.into_iter().zip(&series.rings);
        let wanted = rings.filter(|((own, _), _)| step.is_none_or(|step| step == *own));
        let shown = |((step_seconds, _), ring): ((u64, usize), &VecDeque<[f32; 2]>)| {
            let side = |n: usize| {
                let number = |value: &[f32; 2]| Some(value[n]).filter(|value| value.is_finite());
                ring.iter().map(number).collect()
            };
            Shown { step_seconds, incoming: side(0), outgoing: side(1) }
        };
        Some(wanted.map(shown).collect())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn one(name: &str, bytes: Bytes) -> BTreeMap<String, Sum> {
        BTreeMap::from([(name.to_owned(), bytes.into())])
    }

    #[tokio::test(start_paused = true)]
    async fn each_ring_has_the_rate_of_its_step_and_a_bound() {
        let mut history = History::default();
        for second in 0..100_000 {
            history.push(second, Instant::now(), &one(TOTAL, (second * 100, second * 50)));
            advance(Duration::from_secs(1)).await;
        }
        let shown = history.of(TOTAL, None).unwrap();
        for (shown, (step, room)) in shown.iter().zip(RINGS) {
            assert_eq!((shown.step_seconds, shown.incoming.len()), (step, room));
            assert!(shown.incoming.iter().all(|value| *value == Some(100.0)), "{shown:?}");
            assert!(shown.outgoing.iter().all(|value| *value == Some(50.0)));
        }
        assert_eq!(history.of(TOTAL, Some(10)).unwrap().len(), 1);
        assert!(history.of("service:none", None).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_without_a_reading_is_a_gap_and_an_end_is_no_traffic() {
        let mut history = History::default();
        for (second, bytes) in
            [Some(10), Some(20), None, Some(90), Some(95), Some(0), Some(5)].into_iter().enumerate()
        {
            let read = bytes.map(|bytes| one("service:web", (bytes, 0))).unwrap_or_default();
            history.push(second as u64 + 1, Instant::now(), &read);
            advance(Duration::from_secs(1)).await;
        }
        let shown = history.of("service:web", Some(1)).unwrap();
        let rates = [Some(10.0), None, None, Some(5.0), Some(0.0), Some(5.0)];
        assert_eq!(shown[0].incoming, rates);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_series_is_bounded_and_quiet_ones_give_way() {
        let mut history = History::default();
        let read = |from: usize, bytes: u64| -> BTreeMap<String, Sum> {
            let names =
                (from..from + 100).map(|n| (format!("client:{n:03}"), (bytes, bytes).into()));
            names.chain([(TOTAL.to_owned(), (1, 1).into())]).collect()
        };
        history.push(1, Instant::now(), &one(TOTAL, (0, 0)));
        history.push(1, Instant::now(), &read(0, 1));
        assert_eq!(history.names().len(), SERIES);
        history.push(2, Instant::now(), &read(500, 1));
        assert!(history.of("client:500", None).is_none(), "the others were quiet for no time yet");
        advance(QUIET).await;
        history.push(3, Instant::now(), &read(700, 0));
        assert!(history.of("client:700", None).is_none(), "it has no bytes");
        history.push(4, Instant::now(), &read(500, 1));
        assert_eq!(history.names().len(), SERIES);
        assert!(history.of("client:500", None).is_some() && history.of(TOTAL, None).is_some());
        let values: usize = RINGS.iter().map(|(_, room)| room).sum();
        assert!(values * size_of::<[f32; 2]>() * SERIES < 1_100_000);
    }
}
