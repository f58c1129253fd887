//! Detects silence on a carrier. A carrier is idle if nothing was *received*: sent frames do not
//! prove that the peer is alive.
//!
//! ```text
//!            no reply is outstanding                    a reply is outstanding
//!   0        -                                          -
//!   1 s      -                                          PING at once (or after 3 RTT)
//!   1 s, 2 RTT                                          silent: new streams may go elsewhere
//!   3 s      -                                          the standby takes over, or without one:
//!                                                       try the next path in parallel
//!   5 s      -                                          dead
//!   15 s     PING (keepalive), again every 10 s
//!   35 s     two PINGs unanswered, a third due: dead
//! ```
//! `doubt.rs` compares a silent carrier with its standby earlier than that.
//!
//! Every frame but PONG waits for a reply: DATA for a CREDIT, a CREDIT for more DATA. If no reply
//! arrives within a second, a PING requests a PONG.

use crate::Instant;
use std::time::Duration;

/// Silence after which a PING probes for an outstanding reply (or 3 round trips, if longer).
const ASK: Duration = Duration::from_secs(1);
/// The minimum timeout of that PING.
const LEAST_ANSWER: Duration = Duration::from_millis(20);
/// Silence after which the next path is tried in parallel.
const PROBE: Duration = Duration::from_secs(3);
/// Silence after which a carrier with an outstanding reply is dead.
const DEAD: Duration = Duration::from_secs(5);
/// Interval between unanswered keepalive PINGs.
const IDLE_RETRY: Duration = Duration::from_secs(10);
/// Delays before the round trip is measured again. The first measurement coincides with the load of
/// the log-in and is several times too long (8 ms on loopback instead of 0.1 ms); windows are tuned
/// by it.
const MEASURE_AGAIN: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(2)];
/// Number of unanswered keepalive PINGs after which a carrier is dead.
const IDLE_MISSES: u32 = 2;

/// The reaction to silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Probe,
    Dead,
}

#[derive(Debug)]
pub(super) struct Liveness {
    heard: Instant,
    /// The time since which a sent frame waits for a reply.
    waiting: Option<Instant>,
    /// Whether a PING was sent for the current wait.
    asked: bool,
    probed: bool,
    /// Whether the PING of the current wait was not answered in time.
    silent: bool,
    /// Number of unanswered keepalive PINGs, and the time at which the last one was due.
    misses: u32,
    pinged: Option<Instant>,
    /// Whether a PING must be sent.
    due: bool,
    /// Value and time of the last PING.
    last: Option<(u64, Instant)>,
    values: u64,
    round_trip: Option<Duration>,
    /// The time of the next measurement of the round trip, and the number of repeated measurements
    /// so far.
    measure_at: Option<Instant>,
    measured: usize,
}

impl Liveness {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            heard: now,
            waiting: None,
            asked: false,
            probed: false,
            silent: false,
            misses: 0,
            pinged: None,
            // The first PING measures the round trip.
            due: true,
            last: None,
            values: 0,
            round_trip: None,
            measure_at: None,
            measured: 0,
        }
    }

    pub(super) const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The time since which a sent frame waits for a reply.
    pub(super) const fn waiting(&self) -> Option<Instant> {
        self.waiting
    }

    /// The last time at which bytes arrived.
    pub(super) const fn heard(&self) -> Instant {
        self.heard
    }

    /// Records that bytes arrived. Returns whether they end a silence.
    pub(super) fn received(&mut self, now: Instant) -> bool {
        self.heard = now;
        self.waiting = None;
        self.asked = false;
        self.probed = false;
        self.misses = 0;
        self.pinged = None;
        std::mem::take(&mut self.silent)
    }

    /// Whether a reply is overdue, and the PING that probed for it is unanswered.
    pub(super) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Records that a frame was sent that waits for a reply.
    pub(super) fn sent(&mut self, now: Instant) {
        self.waiting.get_or_insert(now);
    }

    /// Takes the value of a PING to send now.
    pub(super) fn take_ping(&mut self, now: Instant) -> Option<u64> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        self.values += 1;
        self.last = Some((self.values, now));
        // A keepalive PING has its own, longer timeout.
        if self.pinged.is_none() {
            self.sent(now);
        }
        Some(self.values)
    }

    /// Sends a PING now.
    pub(super) const fn ask(&mut self) {
        self.due = true;
    }

    pub(super) const fn has_ping(&self) -> bool {
        self.due
    }

    /// Whether nothing has arrived for a keepalive interval.
    pub(super) const fn is_quiet(&self) -> bool {
        self.misses > 0
    }

    pub(super) fn pong(&mut self, now: Instant, value: u64) {
        if let Some((_, at)) = self.last.take_if(|(last, _)| *last == value) {
            let sample = now.saturating_duration_since(at);
            self.round_trip = Some(self.round_trip.map_or(sample, |least| least.min(sample)));
            if let Some(pause) = MEASURE_AGAIN.get(self.measured) {
                self.measured += 1;
                self.measure_at = Some(now + *pause);
            }
        }
    }

    fn ask_after(&self) -> Duration {
        self.round_trip.map_or(ASK, |rtt| ASK.max(rtt * 3)).min(PROBE)
    }

    /// The wait after which the carrier counts as silent. In normal traffic a CREDIT may stay
    /// unanswered because the peer has nothing to send: only the following PING distinguishes a
    /// silent carrier from an idle one.
    fn silent_after(&self) -> Duration {
        let answer = self.round_trip.map_or(LEAST_ANSWER, |rtt| LEAST_ANSWER.max(rtt * 2));
        (self.ask_after() + answer).min(PROBE)
    }

    pub(super) fn poll_timeout(&self, keepalive: Duration) -> Instant {
        let silence = self.silence_at(keepalive);
        self.measure_at.map_or(silence, |at| at.min(silence))
    }

    fn silence_at(&self, keepalive: Duration) -> Instant {
        let Some(since) = self.waiting else {
            return self.pinged.map_or_else(|| self.heard + keepalive, |at| at + IDLE_RETRY);
        };
        let step = if !self.asked {
            self.ask_after()
        } else if !self.silent {
            self.silent_after()
        } else if !self.probed {
            PROBE
        } else {
            DEAD
        };
        // While a reply is outstanding, its own timeouts precede the keepalive.
        since + step
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, keepalive: Duration) -> Verdict {
        if self.measure_at.take_if(|at| *at <= now).is_some() {
            self.due = true;
        }
        if let Some(since) = self.waiting {
            let silent = now.saturating_duration_since(since);
            if silent >= DEAD {
                return Verdict::Dead;
            }
            if silent >= self.ask_after() && !self.asked {
                self.asked = true;
                self.due = true;
            }
            if silent >= self.silent_after() {
                self.silent = true;
            }
            if silent >= PROBE && !self.probed {
                self.probed = true;
                return Verdict::Probe;
            }
            return Verdict::Fine;
        }
        let due = match self.pinged {
            None => now.saturating_duration_since(self.heard) >= keepalive,
            Some(at) => now.saturating_duration_since(at) >= IDLE_RETRY,
        };
        if due {
            if self.misses == IDLE_MISSES {
                return Verdict::Dead;
            }
            self.misses += 1;
            self.pinged = Some(now);
            self.due = true;
        }
        Verdict::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPALIVE: Duration = Duration::from_secs(15);

    /// Runs the state machine by its own deadlines in silence. Returns the events with their
    /// seconds.
    fn silence(
        mut machine: Liveness,
        start: Instant,
        outstanding: bool,
    ) -> Vec<(u64, &'static str)> {
        let mut seen = Vec::new();
        if outstanding {
            machine.sent(start);
        }
        loop {
            let now = machine.poll_timeout(KEEPALIVE);
            let second = (now - start).as_secs();
            match machine.handle_timeout(now, KEEPALIVE) {
                Verdict::Probe => seen.push((second, "probe")),
                Verdict::Dead => {
                    seen.push((second, "dead"));
                    return seen;
                }
                Verdict::Fine => {}
            }
            if machine.take_ping(now).is_some() {
                seen.push((second, "ping"));
            }
        }
    }

    #[test]
    fn silence_by_table() {
        let start = crate::testing::epoch();
        let fresh = || {
            let mut machine = Liveness::new(start);
            machine.take_ping(start);
            machine.received(start);
            machine
        };
        assert_eq!(silence(fresh(), start, true), [(1, "ping"), (3, "probe"), (5, "dead")]);
        assert_eq!(silence(fresh(), start, false), [(15, "ping"), (25, "ping"), (35, "dead")]);
    }

    #[test]
    fn the_round_trip_is_measured_again_when_the_rush_of_the_log_in_is_over() {
        let start = crate::testing::epoch();
        let mut machine = Liveness::new(start);
        let mut now = start;
        let mut pings = Vec::new();
        for trip in [8, 4, 2, 1, 5] {
            let Some(value) = machine.take_ping(now) else { break };
            pings.push((now - start).as_millis());
            now += Duration::from_millis(trip);
            machine.received(now);
            machine.pong(now, value);
            now = machine.poll_timeout(KEEPALIVE);
            assert_eq!(machine.handle_timeout(now, KEEPALIVE), Verdict::Fine);
        }
        assert_eq!(pings, [0, 28, 232, 2234, 17_235], "then only the keepalive");
        assert_eq!(machine.round_trip(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn the_least_round_trip_counts_and_strange_pongs_do_not() {
        let start = crate::testing::epoch();
        let mut machine = Liveness::new(start);
        let value = machine.take_ping(start).unwrap();
        machine.pong(start + Duration::from_millis(1), value + 7);
        assert_eq!(machine.round_trip(), None);
        machine.pong(start + Duration::from_millis(40), value);
        assert_eq!(machine.round_trip(), Some(Duration::from_millis(40)));
    }
}
