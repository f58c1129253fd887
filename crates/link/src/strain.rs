//! A carrier that takes less than there is to send, and takes little: the path may be one that polices what
//! it carries, so that another way to the same server is quicker.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use transport::{Fares, Watch};

/// Less than this, bytes a second, is little: networks that limit UDP let some hundred kbit/s to a few
/// Mbit/s through.
const LITTLE: u64 = 2_000_000;

/// How often it is looked at, while anything moves.
const EVERY: Duration = Duration::from_millis(500);

/// What lies further apart says nothing of what was between.
const APART: Duration = Duration::from_secs(3);

/// How long it has to last: a start is over by then.
const LASTS: Duration = Duration::from_secs(2);

/// Looks at how a carrier fares. Nobody has to wake it: a strained carrier moves all the time.
pub(crate) struct Strain {
    watch: Option<Arc<dyn Watch>>,
    last: Cell<Option<(Instant, Fares)>>,
    run: Cell<Option<Spell>>,
}

/// Little was carried, though there was more, since then.
#[derive(Clone, Copy)]
struct Spell {
    since: Instant,
    /// Bytes a second, at the beginning.
    rate: u64,
}

impl Strain {
    pub(crate) fn new(watch: Option<Arc<dyn Watch>>) -> Self {
        Self { watch, last: Cell::default(), run: Cell::default() }
    }

    /// Whether the transport tells nothing of its path.
    pub(crate) fn is_blind(&self) -> bool {
        self.watch.is_none()
    }

    /// The bytes a second that it takes, if they are few and were so for [`LASTS`]; said again after as
    /// long.
    pub(crate) fn look(&self, now: Instant) -> Option<u64> {
        let watch = self.watch.as_ref()?;
        let last = self.last.get();
        if last.is_some_and(|(at, _)| now.saturating_duration_since(at) < EVERY) {
            return None;
        }
        let fares = watch.fares();
        self.last.set(Some((now, fares)));
        let (at, before) = last?;
        let run = self.run.take();
        let span = now.saturating_duration_since(at);
        let acked = fares.acked_bytes.saturating_sub(before.acked_bytes);
        let limited = fares.limited_bytes.saturating_sub(before.limited_bytes);
        let rate = per_second(acked, span);
        let lost = fares.lost_bytes.saturating_sub(before.lost_bytes);
        // Three quarters: what ends a stream is not limited. Where a third is lost there is more to send than
        // the path takes, whatever the congestion control thinks.
        let is_limited = limited >= acked / 4 * 3 || lost >= acked / 2;
        if span > APART || acked == 0 || !is_limited || rate >= LITTLE {
            return None;
        }
        // One that becomes quicker has only begun.
        let run = run.filter(|run| rate < run.rate / 2 * 3).unwrap_or(Spell { since: at, rate });
        let lasts = now.saturating_duration_since(run.since) >= LASTS;
        self.run.set(Some(if lasts { Spell { since: now, rate } } else { run }));
        lasts.then_some(rate)
    }
}

/// Bytes a second.
pub(crate) fn per_second(bytes: u64, span: Duration) -> u64 {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1_000_000) / micros
}

impl fmt::Debug for Strain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strain").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Path {
        acked: AtomicU64,
        limited: AtomicU64,
    }

    impl Watch for Path {
        fn fares(&self) -> Fares {
            let [acked_bytes, limited_bytes] =
                [&self.acked, &self.limited].map(|count| count.load(Ordering::Relaxed));
            Fares { acked_bytes, limited_bytes, ..Fares::default() }
        }
    }

    /// Looked at ten times a second: how often it was said to be strained, and the last rate.
    fn carried(rates: impl IntoIterator<Item = (u64, bool)>) -> (usize, Option<u64>) {
        let path = Arc::new(Path::default());
        let strain = Strain::new(Some(Arc::clone(&path) as Arc<dyn Watch>));
        let mut now = Instant::now();
        let mut said = (0, None);
        for (bytes_a_second, is_limited) in rates {
            let bytes = bytes_a_second / 10;
            path.acked.fetch_add(bytes, Ordering::Relaxed);
            path.limited.fetch_add(if is_limited { bytes } else { 0 }, Ordering::Relaxed);
            now += Duration::from_millis(100);
            if let Some(rate) = strain.look(now) {
                said = (said.0 + 1, Some(rate));
            }
        }
        said
    }

    #[test]
    fn a_path_that_takes_little_of_what_there_is_is_strained() {
        assert_eq!(carried([(125_000, true); 20]).0, 0, "not before it has lasted");
        let (count, rate) = carried([(125_000, true); 70]);
        assert_eq!(count, 3, "and every two seconds then");
        assert!((100_000..=150_000).contains(&rate.unwrap()), "{rate:?}");
    }

    #[test]
    fn one_that_is_quick_or_has_nothing_to_carry_is_not() {
        assert_eq!(carried([(5_000_000, true); 100]).0, 0);
        assert_eq!(carried([(125_000, false); 100]).0, 0);
        assert_eq!(carried([(0, true); 100]).0, 0);
        let starts = (0..40).map(|turn| (20_000 << (turn / 5), true));
        assert_eq!(carried(starts).0, 0, "a start of a second for each doubling");
        let pauses = (0..200).map(|turn| (125_000, turn % 20 < 10));
        assert_eq!(carried(pauses).0, 0, "short transfers");
    }
}
