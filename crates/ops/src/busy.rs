//! The busiest streams and flows.

use std::collections::HashMap;
use std::time::Instant;

use crate::status::{Stream, Streams};

/// The number of streams among which the busiest are found, where a daemon lists them for a status.
pub(crate) const SEEN: usize = 5_000;

/// A stream with its rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusyStream {
    pub stream: Stream,
    /// Bytes per second since the previous sample: from the visitor to the target, and back. 0 at
    /// the first sample.
    pub rate: (f64, f64),
}

/// The busiest streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusyStreams {
    /// The number of all streams and flows.
    pub total: u64,
    /// The busiest stream first. Streams without a rate follow, if there is room for them.
    pub list: Vec<BusyStream>,
}

/// The byte counts of each stream at the last sample.
#[derive(Debug)]
pub(crate) struct Notes {
    at: Instant,
    bytes: HashMap<String, (u64, u64)>,
}

impl BusyStreams {
    /// Finds the busiest streams of a list that was read at `at`, compared with the notes of the
    /// previous sample. Returns the notes of this sample.
    pub(crate) fn among(
        all: Streams,
        at: Instant,
        before: Option<&Notes>,
        most: usize,
    ) -> (Self, Notes) {
        let mut now = Notes { at, bytes: HashMap::new() };
        let seconds = before.map_or(0.0, |before| (now.at - before.at).as_secs_f64());
        let mut list = Vec::new();
        for stream in all.list {
            let bytes = (stream.bytes_in, stream.bytes_out);
            let last = before.and_then(|before| before.bytes.get(&stream.id));
            let rate = last.map_or((0.0, 0.0), |last| rate(*last, bytes, seconds));
            now.bytes.insert(stream.id.clone(), bytes);
            list.push(BusyStream { stream, rate });
        }
        Self::sort(&mut list);
        list.truncate(most);
        (Self { total: all.total, list }, now)
    }

    /// Sorts the busiest streams first. Streams with equal rates keep their order.
    pub fn sort(list: &mut [BusyStream]) {
        let sum = |one: &BusyStream| one.rate.0 + one.rate.1;
        list.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    }
}

/// The rate between two readings that are `seconds` apart.
pub fn rate(last: (u64, u64), now: (u64, u64), seconds: f64) -> (f64, f64) {
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let of = |last: u64, now: u64| now.saturating_sub(last) as f64 / seconds;
    (of(last.0, now.0), of(last.1, now.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_found_by_their_bytes_since_the_look_before() {
        let stream = |id: &str, bytes_in| Stream { id: id.into(), bytes_in, ..Stream::default() };
        let streams = |list: Vec<Stream>| Streams { total: 3, list };
        let all = streams(vec![stream("1/1", 9), stream("1/2", 9), stream("1/3", 9)]);
        let at = Instant::now();
        let (first, notes) = BusyStreams::among(all, at, None, 2);
        assert!(first.list.iter().all(|one| one.rate == (0.0, 0.0)) && first.total == 3);
        let all = streams(vec![stream("1/1", 9), stream("1/2", 19), stream("1/3", 1_009)]);
        let at = at + std::time::Duration::from_secs(2);
        let (next, _) = BusyStreams::among(all, at, Some(&notes), 2);
        let ids: Vec<_> = next.list.iter().map(|one| one.stream.id.as_str()).collect();
        assert_eq!(ids, ["1/3", "1/2"]);
        assert_eq!(next.list[0].rate, (500.0, 0.0));
        assert_eq!(rate((5, 5), (3, 9), 2.0), (0.0, 2.0));
        assert_eq!(rate((5, 5), (9, 9), 0.0), (0.0, 0.0));
    }
}
