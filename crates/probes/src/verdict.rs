//! Derives the limit that bounded a transfer from the counts of its streams.

use std::time::Duration;

use proto::Tally;

use super::busy;
use ops::measure::Limit;

/// The share (in thousandths) from which a thread counts as fully busy. A worker that also serves
/// other tasks never reaches 1000.
const FULL: u32 = 950;

/// When nothing else blocked the sender for most of the time, a thread that is busy for this share
/// (in thousandths) is the limit. The threads of a transfer work in sequence, so each is idle for a
/// part of the time.
const HARDLY_IDLE: u32 = 700;

/// A sender out of credit is limited by its window only if the window is at most this multiple of
/// the bandwidth-delay product. Credit arrives in quarters of the window and up to 50 ms late,
/// which leaves about 60 % of a window per round trip of 100 ms. Windows grow to four times the
/// bandwidth-delay product, so a larger window is full of bytes that queue on the path.
const WINDOW_SLACK: f64 = 2.0;

/// The counts of one stream of a test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The sender's tally.
    pub(super) tally: Tally,
    /// The number of bytes received.
    pub(super) bytes: u64,
    /// The microseconds in which they arrived.
    pub(super) micros: u64,
    /// The minimum round-trip time of the carrier.
    pub(super) round_trip: Option<Duration>,
}

/// Returns the limit that bounded the `streams` of one direction. `busiest` is the share of the
/// busiest thread that took part, in thousandths.
pub(super) fn limit(streams: &[Seen], busiest: Option<u32>) -> Limit {
    let busy = busiest.filter(|busy| *busy != busy::UNKNOWN).unwrap_or(0);
    if busy >= FULL {
        return Limit::Cpu;
    }
    let (mut looks, mut window, mut path, mut memory) = (0u64, 0u64, 0u64, 0u64);
    for seen in streams {
        let Tally { looks: all, credit, carrier, memory: budget, .. } = seen.tally;
        looks += u64::from(all);
        path += u64::from(carrier);
        memory += u64::from(budget);
        *if seen.is_held_by_its_window() { &mut window } else { &mut path } += u64::from(credit);
    }
    let most = |n: u64| n * 2 > looks;
    if most(window) {
        Limit::Window
    } else if most(path) {
        Limit::Path
    } else if most(memory) {
        Limit::Memory
    } else if busy >= HARDLY_IDLE {
        Limit::Cpu
    } else {
        Limit::Unclear
    }
}

impl Seen {
    fn is_held_by_its_window(&self) -> bool {
        let Some(round_trip) = self.round_trip else { return true };
        let rate = self.bytes as f64 / (self.micros.max(1) as f64 / 1e6);
        self.tally.window as f64 <= rate * round_trip.as_secs_f64() * WINDOW_SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Ten seconds at `rate` MiB/s over a path with a round trip of 100 ms.
    fn seen(rate: u64, window: u64, [credit, carrier, memory]: [u32; 3]) -> Seen {
        let tally = Tally { looks: 1000, credit, carrier, memory, window, ..Tally::default() };
        let (bytes, micros) = (rate * MIB * 10, 10_000_000);
        Seen { tally, bytes, micros, round_trip: Some(Duration::from_millis(100)) }
    }

    #[test]
    fn what_held_the_sender_most_of_the_time_is_the_limit() {
        // 10 MiB/s times 100 ms: the bandwidth-delay product is 1 MiB.
        for (window, stalls, limit_is) in [
            (MIB, [900, 50, 0], Limit::Window),
            (MIB, [50, 900, 0], Limit::Path),
            (MIB, [50, 0, 900], Limit::Memory),
            (MIB, [300, 300, 0], Limit::Unclear),
            (MIB, [0, 0, 0], Limit::Unclear),
            // Four times the bandwidth-delay product: most of it waits in queues on the path.
            (4 * MIB, [900, 50, 0], Limit::Path),
            (4 * MIB, [300, 300, 0], Limit::Path),
        ] {
            assert_eq!(limit(&[seen(10, window, stalls)], Some(500)), limit_is, "{stalls:?}");
        }
    }

    #[test]
    fn a_worker_without_time_comes_before_all_else_and_an_unknown_one_does_not_count() {
        let held = [seen(10, MIB, [900, 0, 0])];
        assert_eq!(limit(&held, Some(FULL)), Limit::Cpu);
        for busy in [None, Some(FULL - 1), Some(busy::UNKNOWN)] {
            assert_eq!(limit(&held, busy), Limit::Window);
        }
        let free = [seen(10, MIB, [100, 100, 100])];
        assert_eq!(limit(&free, Some(HARDLY_IDLE)), Limit::Cpu, "nothing else held it");
        for busy in [None, Some(HARDLY_IDLE - 1), Some(busy::UNKNOWN)] {
            assert_eq!(limit(&free, busy), Limit::Unclear);
        }
    }

    #[test]
    fn streams_count_by_their_looks_each_with_its_own_window() {
        let path = seen(10, MIB, [0, 900, 0]);
        let window = seen(10, MIB, [900, 0, 0]);
        assert_eq!(limit(&[path, path, window], None), Limit::Path);
        assert_eq!(limit(&[path, window, window], None), Limit::Window);
        assert_eq!(limit(&[path, window], None), Limit::Unclear);
        assert_eq!(limit(&[], None), Limit::Unclear);
    }
}
