//! The receiving direction of a stream: the bytes that arrived and were consumed, the window, the
//! end.

use crate::Instant;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::budget::{Counted, Moving, unproven};
use crate::frame::Credit;
use crate::offset::Offset;
use crate::{Budget, ResetCode, ViolationCode};

/// Consumed bytes after which a CREDIT is due, or a quarter of the window if that is less: often
/// enough that the peer's replay buffers stay in its cache, rarely enough to cost nothing.
const CREDIT_EVERY: u64 = 256 << 10;

/// The time after which a window is halved if less than half of it was used (or a multiple of the
/// round trip, if longer): it holds two seconds of the stream's rate, which no path needs.
const QUIET: Duration = Duration::from_secs(1);

/// Minimum round trip for the tuning: the other side must be scheduled on a processor as well. A
/// larger value would leave more of a window in queues, in front of the link's other streams. (One
/// byte beside a bulk stream, all on two cores: a median of 0.9 ms, 3 ms with 250 µs.)
const TURN: Duration = Duration::from_micros(100);

/// The same while no other stream moves: then no stream waits, and larger windows cause fewer
/// context switches. (One bulk stream, new links, two cores: 16.5 and 18.1 Gbit/s, with 100 µs 14.1
/// and 14.6.)
const TURN_ALONE: Duration = Duration::from_micros(250);

/// The inputs for the tuning of windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The minimum round trip of the carrier; `None` until it is measured.
    pub(crate) round_trip: Option<Duration>,
    /// Whether other streams of the link move as well.
    pub(crate) is_shared: bool,
    /// Whether streams have their own lanes.
    pub(crate) is_apart: bool,
    /// Whether the transport retransmits lost packets itself, as KCP does.
    pub(crate) is_repaired: bool,
}

impl Pace {
    const fn turn(self) -> Duration {
        if self.is_shared { TURN } else { TURN_ALONE }
    }

    /// A window is too small when half of it is used within this number of round trips. The bytes
    /// after a lost packet wait a round trip for each retransmission, so two round trips are too
    /// few on a lossy path. Six are allowed if streams have their own lanes, where no stream waits
    /// for another, and on a long path whose transport retransmits lost packets itself, because
    /// such a transport accepts few bytes that it cannot send. On a short path a large window would
    /// delay other streams: a byte beside bulk over KCP on loopback took 4.5 ms (p99 9.8) with six
    /// round trips, 1.0 ms (p99 2.8) with two. One stream at 100 ms, 100 Mbit/s and 20 % of loss,
    /// mean of the first 12 s up and down: QUIC 57 and 57 Mbit/s with six round trips, 48 and 50
    /// with four; KCP 63 and 62 with six, 57 and 38 with two.
    fn trips(self) -> u32 {
        let is_long = self.round_trip.is_some_and(|round_trip| round_trip >= LONG);
        if self.is_apart || (self.is_repaired && is_long) { 6 } else { 2 }
    }

    /// The time of [`Pace::trips`] round trips.
    fn short(self) -> Option<Duration> {
        self.round_trip.map(|rtt| rtt.saturating_mul(self.trips()).max(self.turn() * 2))
    }

    /// A window is too large if consuming half of it takes longer than this: four times
    /// [`Pace::short`].
    fn long(self) -> Duration {
        let trips = self.trips() * 4;
        self.round_trip.map_or(QUIET, |rtt| rtt.saturating_mul(trips).max(self.turn() * 5))
    }
}

/// Round trip from which a path counts as long. With shorter round trips windows grow quickly
/// anyway, and the bytes of a large window delay other streams of the link.
pub(crate) const LONG: Duration = Duration::from_millis(10);

/// How the peer's direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Finished,
    Reset,
}

/// The outcome of placing a payload at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Bytes at the front that are duplicates.
    pub(crate) known: u64,
}

/// When a CREDIT is due after consumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    /// With the next sweep.
    Soon,
}

#[derive(Debug)]
pub(crate) struct Recv {
    received: Offset,
    consumed: Offset,
    /// The value of `consumed` in the last CREDIT.
    announced: Offset,
    granted: Offset,
    window: u64,
    /// The minimum window of the stream, which needs no budget.
    implicit: u64,
    /// Bytes drawn from the budget for credit beyond the implicit window.
    drawn: u64,
    ended: Option<Ended>,
    /// The peer waits for CREDIT before it can send more.
    awaited: bool,
    /// Whether a CREDIT is due with the next batch.
    credit_due: bool,
    /// STOP: the code, and whether it was sent.
    stop: Option<(ResetCode, bool)>,
    /// The time and the offset at which the peer began to use the current half of the window.
    tuning: Option<(Instant, Offset)>,
    /// The value of `drawn` that was counted when the stream last moved.
    moving: Counted,
}

impl Recv {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            received: Offset::ZERO,
            consumed: Offset::ZERO,
            announced: Offset::ZERO,
            granted: Offset::new(window),
            window,
            implicit: window,
            drawn: 0,
            ended: None,
            awaited: false,
            credit_due: false,
            stop: None,
            tuning: None,
            moving: Counted::default(),
        }
    }

    /// Records that the peer waits for CREDIT.
    pub(crate) fn await_credit(&mut self) {
        self.awaited = true;
    }

    /// Makes a CREDIT due with the next batch. Returns `false` if it was already due.
    pub(crate) fn owe_credit(&mut self) -> bool {
        !std::mem::replace(&mut self.credit_due, true)
    }

    pub(crate) const fn credit_due(&self) -> bool {
        self.credit_due
    }

    /// Clears a due CREDIT. Returns whether one was due.
    pub(crate) fn take_credit_due(&mut self) -> bool {
        std::mem::take(&mut self.credit_due)
    }

    pub(crate) const fn received(&self) -> Offset {
        self.received
    }

    pub(crate) const fn consumed(&self) -> Offset {
        self.consumed
    }

    pub(crate) const fn granted(&self) -> Offset {
        self.granted
    }

    /// The distance by which credit runs ahead of the consumed bytes.
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// Whether at least half of a window was consumed, which shows that the stream is read.
    pub(crate) fn has_used_window(&self) -> bool {
        self.consumed.since(Offset::ZERO) >= self.window / 2
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Checks a DATA of `length` bytes that starts at `low`.
    pub(crate) fn place(&self, low: u32, length: u64) -> Result<Arrival, ViolationCode> {
        let start = self.received.near(low);
        if start > self.received {
            return Err(ViolationCode::Gap);
        }
        if start.plus(length) > self.granted {
            return Err(ViolationCode::Credit);
        }
        Ok(Arrival { known: self.received.since(start).min(length) })
    }

    /// Records that `n` new bytes arrived.
    pub(crate) fn advance(&mut self, n: u64) {
        self.received = self.received.plus(n);
    }

    /// Handles a FIN at `low`. Returns whether it is new.
    pub(crate) fn finish(&mut self, low: u32) -> Result<bool, ViolationCode> {
        let end = self.received.near(low);
        match self.ended {
            None if end == self.received => {
                self.ended = Some(Ended::Finished);
                Ok(true)
            }
            None if end > self.received => Err(ViolationCode::Gap),
            Some(Ended::Finished) if end != self.received => Err(ViolationCode::Contradiction),
            None => Err(ViolationCode::Contradiction),
            Some(_) => Ok(false),
        }
    }

    /// Handles a RESET. Returns whether it is new.
    pub(crate) fn reset(&mut self) -> bool {
        let news = self.ended.is_none();
        if news {
            self.ended = Some(Ended::Reset);
        }
        news
    }

    /// Stops the direction: further bytes and those already received are discarded. Returns whether
    /// the peer must be informed.
    pub(crate) fn stop(&mut self, code: ResetCode) -> bool {
        let news = self.stop.is_none();
        if news {
            self.stop = Some((code, false));
        }
        news && self.ended.is_none()
    }

    /// Whether the direction has ended and the application holds, or needs, none of its bytes.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && self.held() == 0
    }

    /// Bytes that the application has not consumed yet.
    fn held(&self) -> u64 {
        // A reset also discards the bytes that were received.
        let is_lost = self.ended == Some(Ended::Reset) || self.is_stopped();
        if is_lost { 0 } else { self.received.since(self.consumed) }
    }

    /// The code of a STOP that must be sent. Once the peer's direction has ended, no STOP is
    /// needed.
    pub(crate) fn stop_due(&self) -> Option<ResetCode> {
        match self.stop {
            Some((code, false)) if self.ended.is_none() => Some(code),
            Some(_) | None => None,
        }
    }

    pub(crate) fn stop_sent(&mut self) {
        if let Some((_, sent)) = &mut self.stop {
            *sent = true;
        }
    }

    /// Marks a STOP as unsent after the loss of a carrier, on which it may have been.
    pub(crate) fn resume(&mut self) {
        if let Some((_, sent)) = &mut self.stop {
            *sent = false;
        }
    }

    /// Records that the application consumed `n` bytes (at most the bytes that it received).
    pub(crate) fn consume(&mut self, n: u64) -> Due {
        self.consumed = self.consumed.plus(n).min(self.received);
        let enough = (self.window / 4).min(CREDIT_EVERY);
        let everything = self.awaited && self.consumed == self.received;
        if everything || self.consumed.since(self.announced) >= enough {
            Due::Now
        } else {
            Due::Soon
        }
    }

    /// Sets the window before the first grant: `window`, or less if little of the budget is left.
    pub(crate) fn open_window(&mut self, window: u64, budget: &dyn Budget) {
        let window = window.min(unproven(budget)).max(self.implicit);
        let extra = window - self.implicit;
        if !budget.draw(extra) {
            return;
        }
        self.drawn = extra;
        self.window = window;
        self.granted = self.consumed.plus(window);
    }

    /// Bytes that were drawn from the budget for the window.
    pub(crate) const fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Memory in addition to `drawn`, in bytes: unconsumed bytes in the implicit window.
    pub(crate) fn memory(&self) -> u64 {
        self.held().saturating_sub(self.drawn).min(self.implicit)
    }

    /// The CREDIT to send now. Grows the window if half of it was used within a few round trips,
    /// and shrinks it if that took four times as long. Draws from the budget before it grants.
    pub(crate) fn credit(
        &mut self,
        now: Instant,
        pace: Pace,
        range: RangeInclusive<u64>,
        budget: &dyn Budget,
        moving: &mut Moving,
    ) -> Credit {
        self.tune(now, pace, *range.start(), *range.end());
        if self.consumed > self.announced {
            moving.moved(now, &mut self.moving, self.drawn);
        }
        self.yield_to_others(moving.share(&self.moving, budget));
        self.grant(budget);
        moving.holds(&mut self.moving, self.drawn);
        self.announced = self.consumed;
        self.awaited = false;
        Credit { limit: self.granted, consumed: self.consumed, ack_end: self.has_ended() }
    }

    fn tune(&mut self, now: Instant, pace: Pace, floor: u64, max: u64) {
        let Some((since, from)) = self.tuning else {
            self.tuning = Some((now, self.consumed));
            return;
        };
        let took = now.saturating_duration_since(since);
        let is_used = self.consumed.since(from) >= self.window / 2;
        // A window that is used slowly has grown while its stream was alone or while the measured
        // round trip was too long: the bytes that it allows into the queues delay other streams.
        let too_long = if is_used { pace.long() } else { pace.long().max(QUIET) };
        if took > too_long {
            self.window = (self.window / 2).max(floor.max(self.implicit)).min(self.window);
        } else if !is_used {
            return;
        } else if pace.short().is_some_and(|short| took <= short) {
            self.window = (self.window * 2).min(max).max(self.window);
        }
        self.tuning = Some((now, self.consumed));
    }

    /// Limits the budget of the window to `share`: a window above it approaches it by half with
    /// each credit. Granted credit is never revoked, so shrinking takes effect with consumption.
    fn yield_to_others(&mut self, share: u64) {
        let fair = self.implicit.saturating_add(self.drawn / 2 + share / 2);
        self.window = self.window.min(fair);
    }

    fn grant(&mut self, budget: &dyn Budget) {
        if self.has_ended() || self.is_stopped() {
            return self.release_unused(budget);
        }
        let mut limit = self.granted.max(self.consumed.plus(self.window));
        let mut extra = limit.since(self.consumed).saturating_sub(self.implicit);
        if extra > self.drawn && !budget.draw(extra - self.drawn) {
            // No more than was drawn already; the implicit window needs no budget.
            limit = self.granted.max(self.consumed.plus(self.drawn + self.implicit));
            extra = limit.since(self.consumed).saturating_sub(self.implicit);
            self.window = self.window.min(self.drawn + self.implicit);
        }
        if extra < self.drawn {
            budget.release(self.drawn - extra);
        }
        self.drawn = extra;
        self.granted = limit;
    }

    /// Returns to the budget what unconsumed bytes do not need, because no more credit will be
    /// granted.
    pub(crate) fn release_unused(&mut self, budget: &dyn Budget) {
        let needed = self.held().saturating_sub(self.implicit).min(self.drawn);
        budget.release(self.drawn - needed);
        self.drawn = needed;
    }

    /// Returns all drawn bytes to the budget when the stream is forgotten.
    pub(crate) fn release(&mut self, budget: &dyn Budget, moving: &mut Moving) {
        moving.left(&mut self.moving);
        budget.release(std::mem::take(&mut self.drawn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unlimited;
    use crate::stream::IMPLICIT_WINDOW;

    const fn shared(round_trip: Option<Duration>) -> Pace {
        Pace { round_trip, is_shared: true, is_apart: false, is_repaired: false }
    }

    #[test]
    fn a_piece_is_placed_by_table() {
        let mut recv = Recv::new(100);
        recv.advance(10);
        let table = [
            (10, 5, Ok(0)),
            (10, 90, Ok(0)),
            (10, 91, Err(ViolationCode::Credit)),
            (5, 10, Ok(5)),
            (0, 10, Ok(10)),
            (0, 3, Ok(3)),
            (11, 1, Err(ViolationCode::Gap)),
            (u32::MAX, 1, Err(ViolationCode::Gap)),
        ];
        for (low, length, expected) in table {
            let placed = recv.place(low, length).map(|arrival| arrival.known);
            assert_eq!(placed, expected, "{length} bytes at {low}");
        }
    }

    #[test]
    fn the_end_of_the_peers_direction_by_table() {
        type Step = fn(&mut Recv) -> Result<bool, ViolationCode>;
        let table: &[(&str, &[Step], Result<bool, ViolationCode>)] = &[
            ("fin", &[|r| r.finish(10)], Ok(true)),
            ("fin twice", &[|r| r.finish(10), |r| r.finish(10)], Ok(false)),
            ("fin early", &[|r| r.finish(9)], Err(ViolationCode::Contradiction)),
            ("fin late", &[|r| r.finish(11)], Err(ViolationCode::Gap)),
            ("fin moved", &[|r| r.finish(10), |r| r.finish(11)], Err(ViolationCode::Contradiction)),
            ("reset", &[|r| Ok(r.reset())], Ok(true)),
            ("reset after fin", &[|r| r.finish(10), |r| Ok(r.reset())], Ok(false)),
            ("fin after reset", &[|r| Ok(r.reset()), |r| r.finish(3)], Ok(false)),
            ("stop", &[|r| Ok(r.stop(ResetCode::Aborted))], Ok(true)),
            ("stop after fin", &[|r| r.finish(10), |r| Ok(r.stop(ResetCode::Aborted))], Ok(false)),
        ];
        for (name, steps, expected) in table {
            let mut recv = Recv::new(100);
            recv.advance(10);
            let mut last = Ok(false);
            for step in *steps {
                last = step(&mut recv);
            }
            assert_eq!(last, *expected, "{name}");
        }
    }

    #[test]
    fn the_window_doubles_only_when_half_is_used_within_a_few_round_trips() {
        let start = crate::testing::epoch();
        // Bytes after a lost packet wait for its retransmission.
        for (is_apart, is_repaired, trips) in
            [(false, false, 2), (true, false, 6), (false, true, 6)]
        {
            let pace = Pace { is_apart, is_repaired, ..shared(Some(Duration::from_millis(100))) };
            let (in_time, too_late) = (trips * 100, trips * 100 + 10);
            let use_half = |milliseconds: u64| {
                let mut recv = Recv::new(IMPLICIT_WINDOW);
                recv.credit(start, pace, 0..=1 << 20, &Unlimited, &mut Moving::default());
                recv.advance(8 << 10);
                recv.consume(8 << 10);
                let now = start + Duration::from_millis(milliseconds);
                recv.credit(now, pace, 0..=1 << 20, &Unlimited, &mut Moving::default());
                recv.window
            };
            assert_eq!(use_half(in_time), 2 * IMPLICIT_WINDOW);
            assert_eq!(use_half(too_late), IMPLICIT_WINDOW, "too slow to be worth more");
        }
    }

    #[test]
    fn a_window_that_is_used_slowly_shrinks_at_once() {
        let start = crate::testing::epoch();
        let [long, short] = [8, 1].map(|ms| shared(Some(Duration::from_millis(ms))));
        let mut recv = Recv::new(IMPLICIT_WINDOW);
        recv.credit(start, long, 0..=1 << 20, &Unlimited, &mut Moving::default());
        let mut now = start;
        let mut use_half = |pace: Pace| {
            now += Duration::from_millis(10);
            let half = recv.window / 2;
            recv.advance(half);
            recv.consume(half);
            recv.credit(now, pace, 0..=1 << 20, &Unlimited, &mut Moving::default());
            recv.window
        };
        // The first round trip was measured under the load of a log-in: ten milliseconds seem to be
        // two round trips.
        assert_eq!([(); 3].map(|()| use_half(long)), [32 << 10, 64 << 10, 128 << 10]);
        assert_eq!([(); 3].map(|()| use_half(short)), [64 << 10, 32 << 10, IMPLICIT_WINDOW]);
        assert_eq!(use_half(short), IMPLICIT_WINDOW, "that is the least");
    }

    #[test]
    fn a_window_that_grew_alone_shrinks_when_others_move() {
        let mut now = crate::testing::epoch();
        let mut recv = Recv::new(IMPLICIT_WINDOW);
        recv.window = 1 << 20;
        // A gigabyte a second on a path without delay.
        let mut run = |is_shared: bool| {
            let pace = Pace { is_shared, ..shared(Some(Duration::ZERO)) };
            for _ in 0..100 {
                now += Duration::from_micros(256);
                recv.advance(256 << 10);
                recv.consume(256 << 10);
                recv.credit(now, pace, 0..=16 << 20, &Unlimited, &mut Moving::default());
            }
            recv.window
        };
        let alone = run(false);
        assert!(alone >= 1 << 20, "{alone}");
        let shared = run(true);
        assert!(shared <= 1 << 20 && shared < alone, "{shared}");
        assert_eq!(run(false), alone);
    }

    #[test]
    fn nothing_is_granted_that_the_budget_does_not_hold() {
        #[derive(Debug)]
        struct Empty;
        impl Budget for Empty {
            fn draw(&self, bytes: u64) -> bool {
                bytes == 0
            }
            fn charge(&self, _: u64) {}
            fn release(&self, _: u64) {}
            fn left(&self) -> u64 {
                0
            }
            fn total(&self) -> u64 {
                0
            }
        }
        let mut recv = Recv::new(IMPLICIT_WINDOW);
        recv.open_window(1 << 18, &Empty);
        assert_eq!(recv.granted(), Offset::new(IMPLICIT_WINDOW));
        recv.advance(100);
        recv.consume(100);
        let credit = recv.credit(
            crate::testing::epoch(),
            shared(None),
            0..=1 << 24,
            &Empty,
            &mut Moving::default(),
        );
        assert_eq!(
            credit.limit,
            Offset::new(100 + IMPLICIT_WINDOW),
            "the implicit window moves on"
        );
    }
}
