//! The choice among the links of a session whose client spreads them over several paths: by the
//! round trip for interactive streams, and by the goodput for bulk streams.
//!
//! The goodput of a path is not known before the path is used. So the goodput of a link is the
//! highest rate of its recent past. A stream that is slow by itself says little about its path: a
//! link without a bulk stream for [`FORGOTTEN`] counts as the best of the others, and so is tried
//! again. The score of a link is what one more stream may expect there: the unused part of the
//! goodput, or a fair share of the whole.

use std::time::Duration;

/// The interval of the measurements.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The highest rate loses 1/64 with each measurement, which is half of it in 44 s: a path that has
/// become slow is avoided soon, and a pause between two downloads changes little.
const DECAY: u64 = 64;

/// The number of measurements without a bulk stream after which the goodput counts as unknown. A
/// slow path is tried with one of the bulk streams of half a minute.
const FORGOTTEN: u32 = 30;

/// The goodput of links that have carried nothing, in bytes per interval: with any value they take
/// turns.
const NOTHING_KNOWN: u64 = 1 << 20;

/// Round trips that differ by less than this time, or by a quarter, count as equal: a stream in the
/// way of another one costs more.
const EQUAL: Duration = Duration::from_millis(1);

/// The goodput of a link, in bytes per interval of [`LOOK`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Goodput {
    /// Payload bytes of both directions until the last measurement.
    carried: u64,
    /// The rate at the last measurement.
    now: u64,
    /// The highest recent rate.
    highest: u64,
    /// The bulk streams since the last measurement, whose bytes are not part of it yet.
    assigned: u64,
    /// The number of measurements since the last bulk stream.
    idle: u32,
}

impl Goodput {
    /// Measures. `carried` are the payload bytes of both directions so far.
    pub(super) fn look(&mut self, carried: u64) {
        self.now = carried.saturating_sub(self.carried);
        self.carried = carried;
        self.highest = self.now.max(self.highest - self.highest / DECAY);
        self.assigned = 0;
        self.idle = self.idle.saturating_add(1);
    }

    /// Records that the link was chosen for a bulk stream.
    pub(super) fn assign(&mut self) {
        self.assigned = self.assigned.saturating_add(1);
        self.idle = 0;
    }

    /// What one more stream may expect. `unknown` is the goodput of a link whose goodput is not
    /// known, and `streams` the number of its streams.
    fn expected(&self, unknown: u64, streams: u64) -> u64 {
        let is_unknown = self.highest == 0 || self.idle >= FORGOTTEN;
        let highest = if is_unknown { unknown } else { self.highest };
        let free = highest.saturating_sub(self.now) / self.assigned.saturating_add(1);
        free.max(highest / streams.saturating_add(1))
    }
}

/// Chooses a link for an interactive stream: the first of those with the least round trip. `None`:
/// no round trip is known.
pub(super) fn least_round_trip(
    links: impl Iterator<Item = Option<Duration>> + Clone,
) -> Option<usize> {
    let least = links.clone().flatten().min()?;
    let equal = least + EQUAL.max(least / 4);
    links.enumerate().find(|(_, time)| time.is_some_and(|time| time <= equal)).map(|(nth, _)| nth)
}

/// Chooses a link for a bulk stream: the first of those on which it may expect the highest goodput.
/// `links` are the goodput and the number of streams of each link.
pub(super) fn most_goodput(links: impl Iterator<Item = (Goodput, u64)> + Clone) -> Option<usize> {
    let best = links.clone().map(|(goodput, _)| goodput.highest).max()?.max(NOTHING_KNOWN);
    let expected = links.map(|(goodput, streams)| goodput.expected(best, streams));
    let mut chosen = None;
    for (nth, expected) in expected.enumerate() {
        if chosen.is_none_or(|(_, most)| expected > most) {
            chosen = Some((nth, expected));
        }
    }
    chosen.map(|(nth, _)| nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn goodput(highest: u64, now: u64) -> Goodput {
        Goodput { highest, now, ..Goodput::default() }
    }

    fn bulk(links: &[(Goodput, u64)]) -> Option<usize> {
        most_goodput(links.iter().copied())
    }

    #[test]
    fn an_interactive_stream_takes_the_link_with_the_least_round_trip() {
        let chosen = |millis: &[Option<u32>]| {
            least_round_trip(millis.iter().map(|time| time.map(|time| MILLI * time)))
        };
        assert_eq!(chosen(&[Some(80), Some(20), None, Some(21)]), Some(1));
        assert_eq!(chosen(&[Some(24), Some(20)]), Some(0), "equal: the link whose turn it is");
        assert_eq!(chosen(&[Some(26), Some(20)]), Some(1));
        assert_eq!(chosen(&[Some(1), Some(0)]), Some(0));
        assert_eq!(chosen(&[None, None]), None);
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn a_bulk_stream_takes_the_link_with_the_most_unused_goodput() {
        const MB: u64 = 1_000_000;
        assert_eq!(bulk(&[(goodput(10 * MB, 0), 0), (goodput(50 * MB, 0), 0)]), Some(1));
        let busy = goodput(50 * MB, 45 * MB);
        assert_eq!(bulk(&[(goodput(10 * MB, 0), 0), (busy, 9)]), Some(0));
        // A fair share of a fast path is more than all of a slow path.
        assert_eq!(bulk(&[(goodput(10 * MB, 0), 0), (goodput(50 * MB, 50 * MB), 1)]), Some(1));
        assert_eq!(bulk(&[]), None);
    }

    #[test]
    fn links_of_unknown_goodput_take_turns() {
        let mut links = [(Goodput::default(), 0); 2];
        for turn in 0..10 {
            let chosen = bulk(&links).unwrap();
            links[chosen].0.assign();
            links[chosen].1 += 1;
            assert_eq!(chosen, turn % 2);
        }
        // A path that was not used yet is tried while the other path is busy.
        assert_eq!(bulk(&[(goodput(9_000_000, 8_000_000), 2), (Goodput::default(), 0)]), Some(1));
    }

    #[test]
    fn a_burst_of_streams_is_divided_by_the_goodput() {
        let mut links = [(goodput(30_000_000, 0), 0), (goodput(10_000_000, 0), 0)];
        for _ in 0..8 {
            let chosen = bulk(&links).unwrap();
            links[chosen].0.assign();
            links[chosen].1 += 1;
        }
        assert_eq!(links.map(|(_, streams)| streams), [6, 2]);
    }

    #[test]
    fn a_path_that_was_not_used_for_long_is_tried_again() {
        let fast = goodput(50_000_000, 0);
        let mut slow = goodput(1_000, 0);
        assert_eq!(bulk(&[(slow, 0), (fast, 0)]), Some(1));
        (0..FORGOTTEN).for_each(|_| slow.look(0));
        assert_eq!(bulk(&[(slow, 0), (fast, 0)]), Some(0));
        slow.assign();
        assert_eq!(bulk(&[(slow, 0), (fast, 0)]), Some(1), "once");
    }

    #[test]
    fn the_highest_rate_is_forgotten_slowly() {
        let mut goodput = Goodput::default();
        goodput.look(64_000_000);
        assert_eq!((goodput.now, goodput.highest), (64_000_000, 64_000_000));
        goodput.look(64_000_000);
        assert_eq!((goodput.now, goodput.highest), (0, 63_000_000));
        (0..43).for_each(|_| goodput.look(64_000_000));
        assert!((31_000_000..33_000_000).contains(&goodput.highest), "{}", goodput.highest);
        goodput.look(164_000_000);
        assert_eq!(goodput.highest, 100_000_000);
    }
}
