//! Compares a silent active carrier with its standby, so that a dead path is left long before the
//! time-outs of `liveness.rs`, which have to be longer than any queue.
//!
//! ```text
//!            a reply is outstanding on the active carrier, and there is a standby
//!   0.2 s    PING on the active carrier (or after 3 RTT). A stream that rests is told apart so
//!   + 0.05 s PING on both carriers (or after 2 RTT)
//!   + 0.1 s  nothing on the active carrier, but a reply on the standby (or after 3 RTT of the
//!            slower of both): the driver asks the transport of the active carrier whether the
//!            peer's transport sent anything since the second PING. If not, the standby takes over
//! ```
//! A path with a long queue or with losses is slow as well, but acknowledgements still arrive. A
//! carrier is given up in this way at most once in [`APART`]: between two bad paths a link would
//! otherwise send its unacknowledged bytes over and over.

use std::time::Duration;

use super::liveness::Liveness;
use crate::{CarrierNumber, Instant};

/// The silence after which the active carrier is compared with its standby. A sender over TCP
/// retransmits for the first time after at least 200 ms (Linux, `TCP_RTO_MIN`).
const SILENCE: Duration = Duration::from_millis(200);
/// The minimum time in which the peer has to answer the first PING.
const PONG: Duration = Duration::from_millis(50);
/// The minimum time in which the peer has to answer the PINGs on both carriers.
const ANSWER: Duration = Duration::from_millis(100);
/// The minimum time between two carriers that are given up by a comparison.
const APART: Duration = Duration::from_secs(10);

/// What the link does at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// A PING is sent on the active carrier.
    AskActive,
    /// A PING is sent on both carriers.
    AskBoth(CarrierNumber),
    /// Only the standby has answered.
    Unanswered(CarrierNumber),
    /// The comparison has no result.
    Nothing,
}

/// The comparison of a link, of which there is at most one at a time.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    current: Option<Comparison>,
    /// The time at which a carrier was given up last.
    gave_up: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Comparison {
    carrier: CarrierNumber,
    /// The begin of the silence.
    since: Instant,
    /// The time of the last step.
    asked: Instant,
    round: Round,
}

#[derive(Clone, Copy, Debug)]
enum Round {
    /// The active carrier was asked.
    Active,
    /// Both carriers were asked.
    Both,
    Over,
}

/// The active carrier and its standby.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared<'a> {
    pub(super) carrier: CarrierNumber,
    pub(super) active: &'a Liveness,
    pub(super) standby: &'a Liveness,
}

/// Some round trips, at least `least`.
fn trips(round_trip: Option<Duration>, count: u32, least: Duration) -> Duration {
    round_trip.map_or(least, |time| least.max(time * count))
}

impl Doubt {
    /// The comparison of the present silence of this carrier.
    fn of(&self, carrier: CarrierNumber, since: Instant) -> Option<Comparison> {
        self.current.filter(|now| now.carrier == carrier && now.since == since)
    }

    /// The time of the next step.
    pub(super) fn poll_timeout(&self, pair: Compared<'_>) -> Option<Instant> {
        let since = pair.active.waiting()?;
        let round_trip = pair.active.round_trip();
        let Some(current) = self.of(pair.carrier, since) else {
            let at = since + trips(round_trip, 3, SILENCE);
            return Some(self.gave_up.map_or(at, |last| at.max(last + APART)));
        };
        match current.round {
            Round::Active => Some(current.asked + trips(round_trip, 2, PONG)),
            Round::Both => {
                let slower = round_trip.max(pair.standby.round_trip());
                Some(current.asked + trips(slower, 3, ANSWER))
            }
            Round::Over => None,
        }
    }

    /// Takes the step that is due.
    pub(super) fn handle_timeout(&mut self, pair: Compared<'_>, now: Instant) -> Advice {
        if self.poll_timeout(pair).is_none_or(|at| now < at) {
            return Advice::Nothing;
        }
        let Some(since) = pair.active.waiting() else { return Advice::Nothing };
        let carrier = pair.carrier;
        let current = self.of(carrier, since);
        let (round, advice) = match current.map(|current| (current.round, current.asked)) {
            None => (Round::Active, Advice::AskActive),
            Some((Round::Active, _)) => (Round::Both, Advice::AskBoth(carrier)),
            Some((Round::Both, asked)) if pair.standby.heard() >= asked => {
                (Round::Over, Advice::Unanswered(carrier))
            }
            Some((Round::Both | Round::Over, _)) => (Round::Over, Advice::Nothing),
        };
        self.current = Some(Comparison { carrier, since, asked: now, round });
        advice
    }

    /// Records that the carrier was given up.
    pub(super) const fn gave_up(&mut self, now: Instant) {
        self.gave_up = Some(now);
        self.current = None;
    }
}
