//! The receiving direction of a stream: the bytes that arrived and were consumed, the window, the
//! end.

use crate::Instant;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::budget::{Counted, Moving, unproven};
use crate::frame::Credit;
use crate::offset::Offset;
use crate::{Budget, ResetCode, ViolationCode};

/// A CREDIT is due after so many consumed bytes, or a quarter of the window if that is less: often
/// enough that the peer's replay buffers stay in its cache, seldom enough to cost nothing.
const CREDIT_EVERY: u64 = 256 << 10;

/// A window of which not half is used in so long (or 8 round trips) is halved: it holds two
/// seconds of the stream's rate, which no path needs.
const QUIET: Duration = Duration::from_secs(1);

/// No round trip counts as shorter: the other side has to get its turn on a processor as well. More
/// of a window would lie in queues, in front of the link's other streams. (One byte beside a bulk
/// stream, all on two cores: a median of 0.9 ms, 3 ms with 250 µs.)
const TURN: Duration = Duration::from_micros(100);

/// The same while no other stream moves: then nobody waits, and larger windows make fewer turns.
/// (One bulk stream, new links, two cores: 16.5 and 18.1 Gbit/s, with 100 µs 14.1 and 14.6.)
const TURN_ALONE: Duration = Duration::from_micros(250);

/// What windows are tuned by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The least of the carrier; `None` until it is measured.
    pub(crate) round_trip: Option<Duration>,
    /// Whether other streams of the link move as well.
    pub(crate) is_shared: bool,
    /// Whether the stream has a lane of its own.
    pub(crate) is_apart: bool,
    /// Whether the transport repeats lost packets itself, as KCP does.
    pub(crate) is_repaired: bool,
}

impl Pace {
    const fn turn(self) -> Duration {
        if self.is_shared { TURN } else { TURN_ALONE }
    }

    /// A window is too small when half of it is used within this number of round trips. The bytes
    /// behind a lost packet wait a round trip for each repetition of the packet, so two round trips
    /// are too few on a lossy path. Six are allowed on a lane of its own, where no stream waits
    /// behind another stream, and on a long path whose transport repeats lost packets itself,
    /// because such a transport takes few bytes that it cannot send. On a short path other streams
    /// would wait behind a large window: a byte beside bulk over KCP on loopback took 4.5 ms (p99
    /// 9.8) with six round trips, 1.0 ms (p99 2.8) with two. One stream at 100 ms, 100 Mbit/s and
    /// 20 % of loss, mean of the first 12 s up and down: QUIC 57 and 57 Mbit/s with six round
    /// trips, 48 and 50 with four; KCP 63 and 62 with six, 57 and 38 with two.
    fn trips(self) -> u32 {
        let is_long = self.round_trip.is_some_and(|round_trip| round_trip >= LONG);
        if self.is_apart || (self.is_repaired && is_long) { 6 } else { 2 }
    }

    /// [`Pace::trips`], as a time.
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

/// With shorter round trips windows grow before anybody notices, and other streams of the link wait
/// behind the bytes of a large window.
pub(crate) const LONG: Duration = Duration::from_millis(10);

/// How the peer's direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Finished,
    Reset,
}

/// What a piece of payload at some offset is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Bytes at the front that had arrived before.
    pub(crate) known: u64,
}

/// When a CREDIT is to be sent after consumption.
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
    /// `consumed` as the last CREDIT told it.
    announced: Offset,
    granted: Offset,
    window: u64,
    /// The window that needs no budget and that the stream never goes below.
    implicit: u64,
    /// Drawn from the budget for what is granted beyond the implicit window.
    drawn: u64,
    ended: Option<Ended>,
    /// The peer waits for CREDIT before it can send more.
    awaited: bool,
    /// A CREDIT is to be sent with the next batch.
    credit_due: bool,
    /// STOP: the code, and whether it was sent.
    stop: Option<(ResetCode, bool)>,
    /// When the peer began to use the present half of the window, and from where.
    tuning: Option<(Instant, Offset)>,
    /// `drawn`, as it was counted when the stream moved last.
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

    /// The peer said that it waits for CREDIT.
    pub(crate) fn await_credit(&mut self) {
        self.awaited = true;
    }

    /// A CREDIT is to be sent with the next batch. False: it was to be sent before.
    pub(crate) fn owe_credit(&mut self) -> bool {
        !std::mem::replace(&mut self.credit_due, true)
    }

    pub(crate) const fn credit_due(&self) -> bool {
        self.credit_due
    }

    /// Whether a CREDIT was due, which is sent now or not at all.
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

    /// The distance by which credit runs ahead of what is consumed.
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// Whether as much was consumed as half of the window holds: the stream is read.
    pub(crate) fn has_used_window(&self) -> bool {
        self.consumed.since(Offset::ZERO) >= self.window / 2
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Places a DATA of `length` bytes that starts at `low`.
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

    /// `n` new bytes arrived.
    pub(crate) fn advance(&mut self, n: u64) {
        self.received = self.received.plus(n);
    }

    /// FIN at `low`. True when it is news.
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

    /// RESET. True when it is news.
    pub(crate) fn reset(&mut self) -> bool {
        let news = self.ended.is_none();
        if news {
            self.ended = Some(Ended::Reset);
        }
        news
    }

    /// We want no more bytes, not even those that came. True when that is news to the peer.
    pub(crate) fn stop(&mut self, code: ResetCode) -> bool {
        let news = self.stop.is_none();
        if news {
            self.stop = Some((code, false));
        }
        news && self.ended.is_none()
    }

    /// Whether the direction has ended and the application has, or wants, none of its bytes.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && self.held() == 0
    }

    /// Bytes that the application still holds and is to consume.
    fn held(&self) -> u64 {
        // A reset is the end of what it had as well.
        let is_lost = self.ended == Some(Ended::Reset) || self.is_stopped();
        if is_lost { 0 } else { self.received.since(self.consumed) }
    }

    /// The code of a STOP that is to be sent. Once the peer's direction has ended nothing is left
    /// to be stopped.
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

    /// A carrier was lost: a STOP may have been on it.
    pub(crate) fn resume(&mut self) {
        if let Some((_, sent)) = &mut self.stop {
            *sent = false;
        }
    }

    /// The application consumed `n` bytes (never more than it was given).
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

    /// Sets the window before the first grant: `window`, or less when little of the budget is left.
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

    /// Bytes of memory held beyond what was drawn for the window: what waits in the implicit one.
    pub(crate) fn memory(&self) -> u64 {
        self.held().saturating_sub(self.drawn).min(self.implicit)
    }

    /// The CREDIT to send now. Grows the window when half of it was used within a few round trips
    /// and shrinks it when that took four times as many, draws what is granted from the budget
    /// before it is granted.
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
        // One that is used, but slowly, grew while it was alone or while the round trip seemed
        // longer than it is: others wait behind what it lets into the queues.
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

    /// No window takes more of the budget than `share`: one above that meets it half-way, credit by
    /// credit. What was granted is kept, so it takes as much consumption.
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
            // Not more than is held already; the implicit window needs no budget.
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

    /// Nothing more will be granted: gives back what the bytes that are held do not need.
    pub(crate) fn release_unused(&mut self, budget: &dyn Budget) {
        let needed = self.held().saturating_sub(self.implicit).min(self.drawn);
        budget.release(self.drawn - needed);
        self.drawn = needed;
    }

    /// Gives back all that was drawn; the stream is forgotten.
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
        // Bytes behind a lost packet wait for its repetition.
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
        // The first round trip was measured in the rush of a log-in: ten milliseconds seem to be
        // two.
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
