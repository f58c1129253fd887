//! Detects a strained carrier: the carrier has a low rate although more bytes wait to be sent. Its
//! path may police traffic, so that another path to the same server is faster.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use crate::gauge::{Figures, Gauge};

/// The rate below which a rate counts as low, in bytes per second. Networks that limit UDP pass a
/// few hundred kbit/s to a few Mbit/s.
const LITTLE: u64 = 2_000_000;

/// The interval of the measurements while bytes move.
const EVERY: Duration = Duration::from_millis(500);

/// The maximum interval between two measurements; a longer interval gives no information about the
/// time between them.
const APART: Duration = Duration::from_secs(3);

/// How long the rate must be low. The start of a transfer is over by then.
const LASTS: Duration = Duration::from_secs(2);

/// Measures the rate of a carrier. It needs no timer, because a strained carrier moves bytes all
/// the time.
pub(crate) struct Strain {
    gauge: Gauge,
    last: Cell<Option<(Instant, Option<Figures>)>>,
    run: Cell<Option<Spell>>,
}

/// A period during which the rate was low although more bytes waited to be sent.
#[derive(Clone, Copy)]
struct Spell {
    since: Instant,
    /// Bytes per second at the beginning of the period.
    rate: u64,
}

impl Strain {
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self { gauge, last: Cell::default(), run: Cell::default() }
    }

    /// Whether nothing is known of the connection.
    pub(crate) const fn is_blind(&self) -> bool {
        matches!(self.gauge, Gauge::Nothing)
    }

    /// The rate in bytes per second, if it was low for [`LASTS`]. While the rate stays low it is
    /// returned again every [`LASTS`]. `waits`: the lane did not take all frames.
    pub(crate) fn look(&self, now: Instant, waits: bool) -> Option<u64> {
        let last = self.last.get();
        if last.is_some_and(|(at, _)| now.saturating_duration_since(at) < EVERY) {
            return None;
        }
        // The kernel is asked about a sender that waits, and about no other.
        let is_idle = matches!(self.gauge, Gauge::Kernel(_)) && !waits;
        let figures = if is_idle { None } else { self.gauge.figures() };
        self.last.set(Some((now, figures)));
        let run = self.run.take();
        let (Some((at, Some(before))), Some(figures)) = (last, figures) else { return None };
        let span = now.saturating_duration_since(at);
        let acked = figures.acked_bytes.saturating_sub(before.acked_bytes);
        let rate = per_second(acked, span);
        if span > APART || rate >= LITTLE {
            return None;
        }
        if acked == 0 {
            // A stop is no end of the period, and `Liveness` of the link handles a long stop.
            self.run.set(run);
            return None;
        }
        if !is_limited(&before, &figures) {
            return None;
        }
        // A rising rate belongs to the start of a transfer.
        let run = run.filter(|run| rate < run.rate / 2 * 3).unwrap_or(Spell { since: at, rate });
        let lasts = now.saturating_duration_since(run.since) >= LASTS;
        self.run.set(Some(if lasts { Spell { since: now, rate } } else { run }));
        lasts.then_some(rate)
    }
}

/// Whether the path limits the sender.
fn is_limited(before: &Figures, now: &Figures) -> bool {
    let acked = now.acked_bytes.saturating_sub(before.acked_bytes);
    let lost = now.lost_bytes.saturating_sub(before.lost_bytes);
    match (before.limited_bytes, now.limited_bytes) {
        // Three quarters of the bytes suffice, because the end of a stream is not limited. If a
        // third of the packets is lost, the sender exceeds the capacity of the path, whatever the
        // congestion control reports.
        (Some(before), Some(now)) => {
            now.saturating_sub(before) >= acked / 4 * 3 || lost >= acked / 2
        }
        // The sender waits. A slow path without losses has this rate for each transport.
        _ => lost >= acked / 20,
    }
}

/// Bytes per second.
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
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use transport::{ConnectionStats, Watch};

    use super::*;

    #[derive(Debug, Default)]
    struct Path {
        acked: AtomicU64,
        limited: AtomicU64,
    }

    impl Watch for Path {
        fn stats(&self) -> ConnectionStats {
            let [acked_bytes, limited_bytes] =
                [&self.acked, &self.limited].map(|count| count.load(Ordering::Relaxed));
            ConnectionStats { acked_bytes, limited_bytes, ..ConnectionStats::default() }
        }

        fn address(&self) -> Option<SocketAddr> {
            None
        }
    }

    /// Measures ten times a second. Returns the number of reports of strain, and the last rate.
    fn carried(rates: impl IntoIterator<Item = (u64, bool)>) -> (usize, Option<u64>) {
        let path = Arc::new(Path::default());
        let strain = Strain::new(Gauge::Transport(Arc::clone(&path) as Arc<dyn Watch>));
        let mut now = Instant::now();
        let mut said = (0, None);
        for (bytes_a_second, is_limited) in rates {
            let bytes = bytes_a_second / 10;
            path.acked.fetch_add(bytes, Ordering::Relaxed);
            path.limited.fetch_add(if is_limited { bytes } else { 0 }, Ordering::Relaxed);
            now += Duration::from_millis(100);
            if let Some(rate) = strain.look(now, true) {
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

    #[test]
    fn a_stop_does_not_end_the_period_of_a_low_rate() {
        let stops = (0..60).map(|turn| (if turn % 12 < 6 { 125_000 } else { 0 }, true));
        assert!(carried(stops).0 > 0, "stops of 600 ms");
    }

    #[test]
    fn a_connection_in_the_kernel_is_limited_by_losses_alone() {
        let at = |acked_bytes, lost_bytes| Figures { acked_bytes, limited_bytes: None, lost_bytes };
        assert!(!is_limited(&at(0, 0), &at(1_000_000, 0)), "a slow path");
        assert!(!is_limited(&at(0, 0), &at(1_000_000, 49_999)));
        assert!(is_limited(&at(0, 0), &at(1_000_000, 50_000)));
        assert!(!is_limited(&at(0, 900_000), &at(1_000_000, 900_000)), "losses of the past");
    }
}
