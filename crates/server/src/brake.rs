//! Failed log-ins are delayed per client name and source address. Guessing is slow, and another
//! client behind the same address is not locked out. A repeated failure is logged once and not per
//! attempt.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use link::GreetError;
use logging::RepeatLimit;
use net::brake::Failures;
use net::source::prefix;
use proto::greeting::GreetingError;
use transport::CarrierError;

/// The number of doublings of the pause: up to 3.2 s, which is well below the deadline of a
/// greeting.
const DOUBLINGS: u32 = 5;

/// The maximum number of remembered pairs of name and source; an attacker may invent both. A full
/// table without outdated pairs is cleared. An attacker of one name needs 4,096 connections to
/// reset the pause in this way.
const KEYS: usize = 4096;

/// A claimed client name, which is empty before a name was claimed, and the source (see
/// [`prefix`]).
type Key = (String, IpAddr);

/// The kind of a log-in failure. A client that makes two mistakes in succession gets a log line for
/// each kind. Text that a peer writes into the reason does not create a new kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind(
    Option<Discriminant<CarrierError>>,
    Option<Discriminant<GreetError>>,
    Option<Discriminant<GreetingError>>,
    Option<&'static str>,
);

impl Kind {
    pub(super) fn of(why: &anyhow::Error) -> Self {
        let greet: Option<&GreetError> = why.downcast_ref();
        let greeting = greet.and_then(|error| match error {
            GreetError::Greeting(error) => Some(error),
            GreetError::Io(_) | GreetError::Handshake(_) | GreetError::Timeout => None,
        });
        Self(
            why.downcast_ref().map(discriminant),
            greet.map(discriminant),
            greeting.map(discriminant),
            None,
        )
    }

    /// Distinguishes several mistakes that share one error.
    pub(super) const fn because(self, reason: Option<&'static str>) -> Self {
        let Self(carrier, greet, greeting, _) = self;
        Self(carrier, greet, greeting, reason)
    }
}

/// Delays and counts failed log-ins; see the module. A server has one brake.
#[derive(Debug)]
pub(super) struct Brake {
    failures: Mutex<Failures<Key>>,
    lines: Mutex<RepeatLimit<(Key, Kind)>>,
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
}

/// The outcome of a log-in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome<'a> {
    Accepted,
    Resumed,
    Enrolled,
    Failed(&'a anyhow::Error),
}

impl Outcome<'_> {
    fn name(self) -> &'static str {
        let error = match self {
            Self::Accepted => return "accepted",
            Self::Resumed => return "resumed",
            Self::Enrolled => return "enrolled",
            Self::Failed(error) => error,
        };
        if error.is::<CarrierError>() {
            return "no_handshake";
        }
        match error.downcast_ref::<GreetError>().map(GreetError::refusal) {
            Some(Some(refusal)) => refusal.name(),
            Some(None) => "no_greeting",
            None => "lost",
        }
    }
}

impl Brake {
    /// Counts an outcome for the status.
    pub(super) fn count(&self, outcome: Outcome<'_>) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        *outcomes.entry(outcome.name()).or_default() += 1;
    }

    /// The number of log-ins by outcome.
    pub(super) fn outcomes(&self) -> BTreeMap<String, u64> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    pub(super) fn new() -> Self {
        let lines = Mutex::new(RepeatLimit::new().with_quota());
        let failures = Mutex::new(Failures::new(KEYS, DOUBLINGS));
        Self { failures, lines, outcomes: Mutex::default() }
    }

    /// Counts a failure and returns the time for which its refusal must wait, from 100 ms to 3.2 s.
    pub(super) fn penalty(&self, name: &str, source: IpAddr, now: Instant) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.count((name.to_owned(), prefix(source)), now)
    }

    /// Whether to log a failure of this kind, name and source now. `Some` gives the number of
    /// failures that were not logged since the last line.
    pub(super) fn tell(&self, name: &str, source: IpAddr, kind: Kind, now: Instant) -> Option<u64> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.pass(((name.to_owned(), prefix(source)), kind), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn each_failure_waits_twice_as_long_and_a_neighbour_does_not() {
        let (brake, now) = (Brake::new(), Instant::now());
        let pauses: Vec<u128> = (0..8).map(|_| brake.penalty("a", HERE, now).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 3200, 3200]);
        let (first, quiet) = (Duration::from_millis(100), Duration::from_secs(60));
        assert_eq!(brake.penalty("b", HERE, now), first, "another name behind the same address");
        assert_eq!(brake.penalty("a", HERE, now + quiet), first, "after a quiet minute");
    }

    #[test]
    fn another_mistake_of_the_same_source_is_told_as_well() {
        let (brake, now) = (Brake::new(), Instant::now());
        let certificate = |text: &str| CarrierError::Certificate(text.into()).into();
        let mistakes: [anyhow::Error; 4] = [
            certificate("of an unknown authority"),
            CarrierError::Tls("without TLS".into()).into(),
            GreetError::from(GreetingError::Tls).into(),
            GreetError::from(GreetingError::Magic).into(),
        ];
        let tell = |why: &anyhow::Error| brake.tell("", HERE, Kind::of(why), now);
        assert_eq!(mistakes.each_ref().map(tell), [Some(0); 4]);
        assert_eq!(tell(&certificate("with other words in it")), None);
    }

    #[test]
    fn a_source_that_invents_names_hides_no_line_about_another_source() {
        let (brake, now) = (Brake::new(), Instant::now());
        let why = GreetError::from(GreetingError::Magic).into();
        let tell = |name: &str, source: IpAddr| brake.tell(name, source, Kind::of(&why), now);
        for n in 0..3 * KEYS {
            tell(&n.to_string(), HERE);
        }
        let others = (1..=9).filter(|n| tell("home", IpAddr::from([192, 0, 2, *n])).is_some());
        assert_eq!(others.count(), 9);
    }

    #[test]
    fn invented_names_cost_bounded_memory() {
        let (brake, now) = (Brake::new(), Instant::now());
        for n in 0..3 * KEYS {
            brake.penalty(&n.to_string(), HERE, now);
        }
        assert!(brake.failures.lock().unwrap().len() <= KEYS);
    }
}
