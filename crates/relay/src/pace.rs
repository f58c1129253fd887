//! Byte rates: how many bytes a stream may move now, by the buckets of its gate ([`Gate::rates`]).
//!
//! Bytes that a stream has claimed but does not use are refunded at once, so an idle stream holds
//! no tokens.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::admit::{Gate, Way};
use crate::bucket::{Bucket, PARTS};

/// Takes `bytes` from all buckets of a gate, if they may move at once. False: nothing was taken.
/// `is_whole`: the bytes are a datagram, which moves in one piece, however large.
pub(crate) fn take_now(gate: &Gate, way: Way, bytes: usize, is_whole: bool) -> bool {
    let bytes = bytes as u64;
    let may =
        |(one, rate): (&Bucket, u64)| one.is_open() && (is_whole || bytes <= one.portion(rate));
    if !gate.rates(way).all(may) {
        return false;
    }
    for (bucket, rate) in gate.rates(way) {
        bucket.take(bytes, rate);
    }
    true
}

/// Takes up to `wanted` bytes, at least 1, from all buckets of a gate. Returns their number, and
/// the time after which they may move.
pub(crate) fn claim(gate: &Gate, way: Way, wanted: usize) -> (usize, Duration) {
    let Some(most) = gate.rates(way).map(|(one, rate)| one.portion(rate)).min() else {
        return (wanted, Duration::ZERO);
    };
    let claimed = wanted.min(usize::try_from(most).unwrap_or(usize::MAX));
    let bytes = claimed as u64;
    let wait = gate.rates(way).map(|(one, rate)| one.take(bytes, rate)).max().unwrap_or(0);
    (claimed, Duration::from_nanos(wait.div_ceil(PARTS)))
}

/// Refunds bytes that were taken and have not moved.
pub(crate) fn refund(gate: &Gate, way: Way, bytes: usize) {
    if bytes > 0 {
        gate.rates(way).for_each(|(bucket, rate)| bucket.refund(bytes as u64, rate));
    }
}

/// Whether a gate has a rate in this direction now.
pub(crate) fn is_paced(gate: &Gate, way: Way) -> bool {
    gate.rates(way).next().is_some()
}

/// The portions of one stream in one direction.
#[derive(Debug, Default)]
pub(crate) struct Portions {
    /// Bytes that were taken and are not used yet.
    taken: usize,
    /// The wait until the bytes may move.
    wait: Option<Pin<Box<Sleep>>>,
}

impl Portions {
    /// Returns how many bytes may move now, at most `wanted` and more than 0. Pending: the task is
    /// woken when its bytes may move.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        gate: &Gate,
        way: Way,
        wanted: usize,
    ) -> Poll<usize> {
        if wanted == 0 {
            return Poll::Ready(0);
        }
        if self.taken == 0 {
            self.take(gate, way, wanted);
        }
        if let Some(wait) = &mut self.wait {
            if wait.as_mut().poll(cx).is_pending() && is_paced(gate, way) {
                return Poll::Pending;
            }
            self.wait = None;
        }
        Poll::Ready(self.taken.min(wanted))
    }

    fn take(&mut self, gate: &Gate, way: Way, wanted: usize) {
        let (claimed, wait) = claim(gate, way, wanted);
        self.taken = claimed;
        if !wait.is_zero() {
            self.wait = Some(Box::pin(sleep_until(Instant::now() + wait)));
        }
    }

    /// Records that this number of bytes has moved.
    pub(crate) fn used(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes);
    }

    /// Whether taken bytes must still wait.
    pub(crate) const fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Whether no byte waits and none is taken.
    pub(crate) const fn is_idle(&self) -> bool {
        self.taken == 0 && self.wait.is_none()
    }

    /// Refunds the unused bytes.
    pub(crate) fn settle(&mut self, gate: &Gate, way: Way) {
        self.wait = None;
        refund(gate, way, std::mem::take(&mut self.taken));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::net::IpAddr;
    use std::num::NonZeroU64;
    use std::rc::Rc;
    use std::sync::Arc;

    use proptest::prelude::*;
    use proto::{Bounds, Limits};
    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    fn paused() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    }

    fn gate(rate: u64) -> Arc<Gate> {
        let all = Bounds { up: NonZeroU64::new(rate), ..Bounds::default() };
        Gate::limited(&Limits { all, ..Limits::default() }, None, None)
    }

    /// Moves bytes in pieces of these sizes, in turn, until the time is over.
    async fn moves(gate: Arc<Gate>, sizes: Vec<usize>, moved: Rc<Cell<u64>>) {
        let mut portions = Portions::default();
        for size in sizes.into_iter().cycle() {
            let mut left = size;
            while left > 0 {
                let may = poll_fn(|cx| portions.poll(cx, &gate, Way::Up, left)).await;
                moved.set(moved.get() + may as u64);
                portions.used(may);
                left -= may;
            }
            portions.settle(&gate, Way::Up);
        }
    }

    /// The bytes of `streams` streams in 2 s of virtual time, and the bytes of the stream with the
    /// fewest.
    fn in_2_s(gate: &Arc<Gate>, streams: &[Vec<usize>]) -> (u64, u64) {
        let runtime = paused();
        let all: Vec<_> = streams.iter().map(|_| Rc::new(Cell::new(0))).collect();
        LocalSet::new().block_on(&runtime, async {
            gate.bucket(Way::Up).restart();
            for (sizes, moved) in streams.iter().zip(&all) {
                spawn_local(moves(Arc::clone(gate), sizes.clone(), Rc::clone(moved)));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        });
        let sum = all.iter().map(|moved| moved.get()).sum();
        (sum, all.iter().map(|moved| moved.get()).min().unwrap_or(0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_rate_is_exact_to_a_twentieth_over_2_s_for_any_sizes(
            rate in prop_oneof![Just(10_000_u64), Just(1 << 20), 20_000..50_000_000_u64],
            streams in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![Just(1_usize), 2..100_usize, 100..2000_usize, Just(512 << 10)],
                    1..6,
                ),
                1..8,
            ),
        ) {
            // With streams of single bytes only, each byte would take a step, which is slow in a
            // test.
            let rate = if streams.iter().flatten().all(|size| *size < 100) { 10_000 } else { rate };
            let (moved, least) = in_2_s(&gate(rate), &streams);
            let wanted = 2 * rate;
            prop_assert!(moved <= wanted + wanted / 20, "{moved} of {wanted}");
            prop_assert!(moved >= wanted - wanted / 20, "{moved} of {wanted}");
            prop_assert!(least > 0, "each stream has its turn");
        }
    }

    #[test]
    fn nothing_waits_without_a_rate_and_a_change_holds_at_once() {
        let runtime = paused();
        runtime.block_on(async {
            let gate = Gate::new(None);
            let begin = Instant::now();
            let mut portions = Portions::default();
            let moved = async |portions: &mut Portions, size: usize| {
                let mut left = size;
                while left > 0 {
                    let may = poll_fn(|cx| portions.poll(cx, &gate, Way::Up, left)).await;
                    portions.used(may);
                    left -= may;
                }
            };
            moved(&mut portions, 1 << 30).await;
            assert_eq!(begin.elapsed(), Duration::ZERO);
            let all = Bounds { up: NonZeroU64::new(1000), ..Bounds::default() };
            gate.set(&Limits { all, ..Limits::default() });
            moved(&mut portions, 2000).await;
            let took = begin.elapsed().as_millis();
            assert!((1900..=2100).contains(&took), "{took}");
            // The other direction has no rate.
            assert!(take_now(&gate, Way::Down, 1 << 30, true));
            gate.set(&Limits::default());
            let begin = Instant::now();
            moved(&mut portions, 1 << 30).await;
            assert!(begin.elapsed() <= Duration::from_millis(20), "{:?}", begin.elapsed());
        });
    }

    #[test]
    fn each_source_and_each_stream_has_its_own_rate() {
        let runtime = paused();
        runtime.block_on(async {
            let rate = |rate| Bounds { up: NonZeroU64::new(rate), ..Bounds::default() };
            let limits = Limits { all: Bounds::default(), source: rate(1000), stream: rate(500) };
            let gate = Gate::limited(&limits, None, None);
            let from = |last: u8| gate.admit_from(Some(IpAddr::from([192, 0, 2, last]))).unwrap();
            let (one, two, other) = (from(1), from(1), from(2));
            let names = |permit: &crate::Permit| {
                permit.gate().rates(Way::Up).map(|(_, rate)| rate).collect::<Vec<_>>()
            };
            assert_eq!(names(&one), [1000, 500]);
            // A source that has used up its rate delays no other source.
            assert!(take_now(one.gate(), Way::Up, 1100, true));
            assert!(!take_now(two.gate(), Way::Up, 1, true));
            assert!(take_now(other.gate(), Way::Up, 1, true));
            let faster = Limits { source: rate(7000), ..limits };
            gate.set(&faster);
            assert_eq!(names(&one), [7000, 500], "the streams that live have the new rate");
        });
    }
}
