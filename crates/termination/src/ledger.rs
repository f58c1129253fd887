//! The names that services publish now, and which of them is ordered next. Pure: the time comes in.
//!
//! Each name has a state of its own:
//!
//! ```text
//! wanted ──► ordered ──► has a certificate ──► a third of its life is left ──► ordered …
//!               │                                                                ▲
//!               └──► failed: a pause of 1 min, doubled up to 6 h ────────────────┘
//! ```
//!
//! The pauses of a name outlast its service, because a client must not order at will by publishing
//! a name again and again.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The pause after the first failure, and the longest pause. An authority may permit five failed
/// checks of a name in an hour.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(6 * 3600);

/// The longest pause for all names, after the authority itself failed.
const OUTAGE_MAX: Duration = Duration::from_secs(3600);

/// The longest pause that the authority can ask for. Limits of a week are usual.
const ASKED_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

/// The least time between two successful orders of a name, so that a wrong clock or certificates
/// that are born expired do not cause orders in a loop.
const SETTLED: Duration = Duration::from_secs(600);

/// The longest sleep. The dates of certificates are compared with the wall clock, which may jump.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Most names that may wait for their first order, see [`Ledger::is_full`].
pub(crate) const WAITING_MAX: usize = 100;

/// What a failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The name: other names may succeed.
    Name,
    /// The authority or the account: other names would fail as well.
    Authority,
}

/// The state of a name.
#[derive(Debug, Default)]
struct Name {
    /// The number of services that publish the name.
    wants: u32,
    failures: u32,
    /// No order before this moment.
    not_before: Option<Instant>,
    /// The order in which names came.
    serial: u64,
    error: Option<String>,
    /// An order was made.
    tried: bool,
}

/// The state of all names.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    names: HashMap<Box<str>, Name>,
    serial: u64,
    outage: Outage,
}

/// Failures of the authority itself.
#[derive(Debug, Default)]
struct Outage {
    failures: u32,
    not_before: Option<Instant>,
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Order a certificate for this name.
    Order(Box<str>),
    /// Look again at this moment, or when names change.
    Sleep(Instant),
}

/// A name as its order sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No order: a file covers the name, or it cannot be ordered.
    Nothing,
    /// The name has no certificate.
    First,
    /// The certificate is renewed from this second of the wall clock on.
    Renewal(u64),
}

impl Ledger {
    /// A service publishes the name.
    pub(crate) fn want(&mut self, host: &str) {
        self.serial += 1;
        let serial = self.serial;
        let new = || Name { serial, ..Name::default() };
        let name = self.names.entry(host.into()).or_insert_with(new);
        if name.wants == 0 {
            name.serial = serial;
        }
        name.wants += 1;
    }

    /// A service no longer publishes the name.
    pub(crate) fn drop_want(&mut self, host: &str) {
        let Some(name) = self.names.get_mut(host) else { return };
        name.wants = name.wants.saturating_sub(1);
        if name.wants == 0 && name.not_before.is_none() {
            self.names.remove(host);
        }
    }

    /// The published names in the order in which they came.
    pub(crate) fn wanted(&self) -> Vec<Box<str>> {
        let mut names: Vec<_> = self.names.iter().filter(|(_, name)| name.wants > 0).collect();
        names.sort_unstable_by_key(|(_, name)| name.serial);
        names.into_iter().map(|(host, _)| host.clone()).collect()
    }

    /// Whether so many names wait for their first order that a further name would wait too long.
    /// `need` tells what a name needs.
    pub(crate) fn is_full(&self, host: &str, need: impl Fn(&str) -> Need) -> bool {
        let waiting = self
            .names
            .iter()
            .filter(|(host, name)| name.wants > 0 && !name.tried && need(host) == Need::First);
        self.names.get(host).is_none_or(|name| name.wants == 0)
            && waiting.take(WAITING_MAX).count() == WAITING_MAX
    }

    /// What the driver does next at the moment `now`, which is the second `wall` by the wall clock.
    /// The name whose turn came first is ordered first.
    pub(crate) fn next(&mut self, now: Instant, wall: u64, need: impl Fn(&str) -> Need) -> Next {
        // A name that nobody publishes is remembered for the longest pause after its own pause.
        self.names.retain(|_, name| {
            name.wants > 0 || name.not_before.is_some_and(|until| until + PAUSE_MAX > now)
        });
        let mut first: Option<(Instant, u64, &str)> = None;
        for (host, name) in self.names.iter().filter(|(_, name)| name.wants > 0) {
            let begin = match need(host) {
                Need::Nothing => continue,
                Need::First => now,
                Need::Renewal(at) => {
                    now + Duration::from_secs(at.saturating_sub(wall)).min(SLEEP_MAX)
                }
            };
            let due = [name.not_before, self.outage.not_before]
                .into_iter()
                .flatten()
                .fold(begin, Instant::max);
            if first.is_none_or(|(at, serial, _)| (due, name.serial) < (at, serial)) {
                first = Some((due, name.serial, host));
            }
        }
        match first {
            Some((due, _, host)) if due <= now => Next::Order(host.into()),
            Some((due, ..)) => Next::Sleep(due.min(now + SLEEP_MAX)),
            None => Next::Sleep(now + SLEEP_MAX),
        }
    }

    /// The number of failed orders since the last certificate of the name.
    pub(crate) fn failures(&self, host: &str) -> u32 {
        self.names.get(host).map_or(0, |name| name.failures)
    }

    /// A certificate was issued.
    pub(crate) fn succeeded(&mut self, host: &str, now: Instant) {
        self.outage = Outage::default();
        if let Some(name) = self.names.get_mut(host) {
            (name.failures, name.error, name.tried) = (0, None, true);
            name.not_before = Some(now + SETTLED);
        }
    }

    /// An order failed. `asked` is the pause for which the authority asked. The result is the pause
    /// until the next attempt.
    pub(crate) fn failed(
        &mut self,
        host: &str,
        now: Instant,
        scope: Scope,
        asked: Option<Duration>,
        error: String,
    ) -> Duration {
        let asked = asked.unwrap_or_default().min(ASKED_MAX);
        // The service may have gone meanwhile. The name is remembered all the same.
        let name = self.names.entry(host.into()).or_default();
        (name.error, name.tried) = (Some(error), true);
        match scope {
            Scope::Name => {
                self.outage = Outage::default();
                name.failures = name.failures.saturating_add(1);
                let pause = pause(name.failures, PAUSE_MAX).max(asked);
                name.not_before = Some(now + pause);
                pause
            }
            Scope::Authority => {
                self.outage.failures = self.outage.failures.saturating_add(1);
                let pause = pause(self.outage.failures, OUTAGE_MAX).max(asked.min(PAUSE_MAX));
                self.outage.not_before = Some(now + pause);
                pause
            }
        }
    }

    /// New settings of the authority: a person may have removed the cause of each failure.
    pub(crate) fn forget_failures(&mut self) {
        self.outage = Outage::default();
        for name in self.names.values_mut() {
            (name.failures, name.not_before, name.error) = (0, None, None);
        }
    }

    /// The last error of a name, and the pause until its next attempt.
    pub(crate) fn trouble(&self, host: &str, now: Instant) -> Option<(String, Duration)> {
        let name = self.names.get(host)?;
        let error = name.error.clone()?;
        let next = name.not_before.max(self.outage.not_before);
        Some((error, next.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))))
    }
}

/// The pause after failure number `failures`: it doubles up to `max`, and a quarter of it is random
/// so that the names of an outage do not come back in step.
fn pause(failures: u32, max: Duration) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
    // `RandomState` has new random keys each time.
    let random = RandomState::new().hash_one(0_u8) >> 32;
    let share = u32::try_from(random % 1024).unwrap_or(0);
    doubled * 3 / 4 + doubled * share / 4096
}

#[expect(
    clippy::disallowed_types,
    reason = "publishing and ordering take it, and no byte of a visitor"
)]
type Lock<T> = std::sync::Mutex<T>;

/// The ledger as threads share it.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ledger: Lock<Ledger>,
    changed: Notify,
}

impl Names {
    /// Reads or changes the ledger.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Ledger) -> T) -> T {
        f(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the driver.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Waits until the driver is woken.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn want(self: &Arc<Self>, host: Box<str>) -> Wanted {
        self.with(|ledger| ledger.want(&host));
        self.wake();
        Wanted { names: Arc::clone(self), host }
    }
}

/// A name that a service publishes. ACME orders and renews its certificate until this value is
/// dropped.
#[derive(Debug)]
#[must_use = "the name is wanted until this value is dropped"]
pub struct Wanted {
    names: Arc<Names>,
    host: Box<str>,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.names.with(|ledger| ledger.drop_want(&self.host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);
    /// A second of the wall clock.
    const WALL: u64 = 1_700_000_000;

    fn first(_: &str) -> Need {
        Need::First
    }

    fn order(host: &str) -> Next {
        Next::Order(host.into())
    }

    fn fail(ledger: &mut Ledger, host: &str, now: Instant) -> Duration {
        ledger.failed(host, now, Scope::Name, None, "no".into())
    }

    /// The sleep until the next order.
    fn sleep(ledger: &mut Ledger, now: Instant) -> Duration {
        match ledger.next(now, WALL, first) {
            Next::Sleep(until) => until - now,
            Next::Order(host) => panic!("{host}"),
        }
    }

    #[test]
    fn names_have_their_turn_in_the_order_in_which_they_came() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        assert_eq!(ledger.next(now, WALL, first), Next::Sleep(now + SLEEP_MAX));
        for host in ["b", "a", "c"] {
            ledger.want(host);
        }
        for host in ["b", "a", "c"] {
            assert_eq!(ledger.next(now, WALL, first), order(host));
            ledger.succeeded(host, now);
        }
        assert_eq!(ledger.wanted(), ["b".into(), "a".into(), "c".into()]);
    }

    #[test]
    fn a_pause_doubles_up_to_six_hours_and_a_success_ends_it() {
        let (mut ledger, mut now) = (Ledger::default(), Instant::now());
        ledger.want("a");
        for minutes in [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360] {
            assert_eq!(ledger.next(now, WALL, first), order("a"));
            let pause = fail(&mut ledger, "a", now);
            let longest = MINUTE * minutes;
            assert!(pause >= longest * 3 / 4 && pause <= longest, "{pause:?} of {longest:?}");
            assert_eq!(sleep(&mut ledger, now), pause.min(SLEEP_MAX));
            assert_eq!(ledger.trouble("a", now), Some(("no".into(), pause)));
            now += pause;
        }
        ledger.succeeded("a", now);
        assert_eq!((ledger.trouble("a", now), ledger.failures("a")), (None, 0));
        now += SETTLED;
        assert!(fail(&mut ledger, "a", now) <= MINUTE);
    }

    #[test]
    fn the_authority_can_ask_for_a_longer_pause_within_reason() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.want("a");
        let mut asked = |pause| ledger.failed("a", now, Scope::Name, Some(pause), "no".into());
        assert_eq!(asked(30 * HOUR), 30 * HOUR);
        assert!(asked(Duration::from_secs(1)) >= MINUTE);
        assert_eq!(asked(Duration::from_secs(u64::MAX)), ASKED_MAX);
    }

    #[test]
    fn an_outage_pauses_all_names_and_blames_none() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for host in ["a", "b"] {
            ledger.want(host);
        }
        let pause = ledger.failed("a", now, Scope::Authority, None, "down".into());
        assert_eq!(sleep(&mut ledger, now), pause);
        assert_eq!((ledger.failures("a"), ledger.trouble("b", now)), (0, None));
        let mut now = now;
        for _ in 0..20 {
            now += ledger.failed("a", now, Scope::Authority, Some(30 * HOUR), "down".into());
        }
        assert!(ledger.failed("a", now, Scope::Authority, None, "down".into()) <= OUTAGE_MAX);
        fail(&mut ledger, "a", now);
        assert_eq!(ledger.next(now, WALL, first), order("b"), "the authority answered");
    }

    #[test]
    fn a_client_cannot_order_at_will_by_publishing_again() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.want("a");
        ledger.drop_want("a");
        // The service went while the order was in progress.
        let pause = fail(&mut ledger, "a", now);
        ledger.want("a");
        assert_eq!(sleep(&mut ledger, now), pause);
        ledger.drop_want("a");
        assert_eq!(sleep(&mut ledger, now + pause), SLEEP_MAX);
        ledger.want("a");
        assert_eq!(ledger.failures("a"), 1, "the next pause is longer");
        ledger.drop_want("a");
        sleep(&mut ledger, now + pause + PAUSE_MAX);
        assert!(ledger.names.is_empty(), "nothing is remembered for ever");
    }

    #[test]
    fn two_services_want_a_name_until_both_are_gone() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.want("a");
        ledger.want("a");
        ledger.drop_want("a");
        assert_eq!(ledger.next(now, WALL, first), order("a"));
        ledger.drop_want("a");
        assert!(ledger.names.is_empty());
        ledger.drop_want("a");
    }

    #[test]
    fn a_renewal_waits_for_its_second_and_a_clock_that_jumps_changes_little() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.want("a");
        let at = |seconds: u64| move |_: &str| Need::Renewal(WALL + seconds);
        assert_eq!(ledger.next(now, WALL, at(90)), Next::Sleep(now + Duration::from_secs(90)));
        assert_eq!(ledger.next(now, WALL, at(0)), order("a"));
        // In three months: the clock is looked at every hour.
        assert_eq!(ledger.next(now, WALL, at(90 * 86_400)), Next::Sleep(now + SLEEP_MAX));
        // The clock goes back by an hour, or on by an hour: the order comes so much later or earlier.
        assert_eq!(ledger.next(now, WALL - 3600, at(90)), Next::Sleep(now + SLEEP_MAX));
        assert_eq!(ledger.next(now, WALL + 3600, at(90)), order("a"));
        // A clock of 2100 shows each new certificate as expired.
        ledger.succeeded("a", now);
        assert_eq!(ledger.next(now, WALL * 3, at(0)), Next::Sleep(now + SETTLED));
        // Pauses know no wall clock.
        let pause = fail(&mut ledger, "a", now + SETTLED);
        let until = now + SETTLED + pause;
        assert_eq!(ledger.next(now + SETTLED, WALL + 3600, at(90)), Next::Sleep(until));
        assert_eq!(ledger.next(until, WALL + 3600, at(90)), order("a"));
    }

    #[test]
    fn a_name_that_needs_nothing_is_no_order_and_new_settings_end_pauses() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.want("a");
        assert_eq!(ledger.next(now, WALL, |_| Need::Nothing), Next::Sleep(now + SLEEP_MAX));
        fail(&mut ledger, "a", now);
        ledger.forget_failures();
        assert_eq!(ledger.next(now, WALL, first), order("a"));
        assert_eq!(ledger.trouble("a", now), None);
    }
}
