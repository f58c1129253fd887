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
    pub(crate) fn drop_want(&mut self, host: &str, now: Instant) {
        if let Some(name) = self.names.get_mut(host) {
            name.wants = name.wants.saturating_sub(1);
        }
        // A failed name is remembered for the longest pause after its pause has ended.
        self.names.retain(|_, name| {
            name.wants > 0 || name.not_before.is_some_and(|until| until + PAUSE_MAX > now)
        });
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
        let is_waiting = |(host, name): (&Box<str>, &Name)| {
            name.wants > 0 && !name.tried && need(host) == Need::First
        };
        self.names.get(host).is_none_or(|name| name.wants == 0)
            && self.names.iter().filter(|&entry| is_waiting(entry)).count() >= WAITING_MAX
    }

    /// What the driver does next at the moment `now`, which is the second `wall` by the wall clock.
    /// The name whose turn came first is ordered first.
    pub(crate) fn next(&self, now: Instant, wall: u64, need: impl Fn(&str) -> Need) -> Next {
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
        let Some(name) = self.names.get_mut(host) else { return asked };
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
        self.names.with(|ledger| ledger.drop_want(&self.host, Instant::now()));
    }
}
