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
//! The back-off of a name outlasts its service, because otherwise a client could order at will by
//! publishing a name repeatedly.
//!
//! Clients take turns: among the clients with a name that is due, the client with the oldest last
//! order is next. Of its names, names without a certificate take precedence over renewals, because
//! a certificate is renewed long before its expiry. `turns` counts the orders of each client.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::turns::{ORDERS, ORDERS_ALL, Turns};

/// The pause after the first failure, and the longest pause. An authority may permit five failed
/// checks of a name in an hour.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(6 * 3600);

/// The longest pause for all names, after a failure of the authority itself.
const OUTAGE_MAX: Duration = Duration::from_secs(3600);

/// The longest pause that the authority can request. Limits of a week are usual.
const ASKED_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

/// The shortest time between two successful orders of a name, so that a wrong clock or certificates
/// that are issued expired do not cause a loop of orders.
const SETTLED: Duration = Duration::from_secs(600);

/// The longest sleep. The dates of certificates are compared with the wall clock, which may jump.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The bounds of the pause between two queries for renewal information (RFC 9773 section 4.3.2).
const ASK_MIN: Duration = Duration::from_secs(60);
const ASK_MAX: Duration = Duration::from_secs(24 * 3600);

/// Most names of a client that may wait for their first order, see [`Ledger::is_full`]. It is the
/// number of first orders that a client may make in a day: a further name would wait longer.
pub(crate) const WAITING_MAX: usize = ORDERS as usize;

/// The largest number of names below a client's wildcards that visitors may request and that wait
/// for their order. Any visitor can choose them, so they must not fill the queue of the client.
const DEMANDED_MAX: usize = 20;

/// The largest number of names of all clients that may wait for their first order. Each scan of the
/// ledger visits all of them. A client without a waiting name may still add one.
const WAITING_ALL: usize = 2_000;

/// The scope of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The name: other names may succeed.
    Name,
    /// The authority or the account: orders of other names would fail as well.
    Authority,
}

/// The state of a name.
#[derive(Debug)]
struct Name {
    /// The client that publishes the name, or published it last.
    client: Arc<str>,
    /// The number of services that publish the name.
    wants: u32,
    /// Whether a visitor of a published wildcard requested the name, and no order has followed yet.
    is_demanded: bool,
    failures: u32,
    /// The earliest time of the next order.
    not_before: Option<Instant>,
    /// The order in which names were added.
    serial: u64,
    error: Option<String>,
    /// Whether an order was made.
    tried: bool,
    /// The number of the account that orders the name, see [`Ledger::assign`].
    account: usize,
    /// The time of the renewal that the authority suggests, in seconds of the wall clock, and the
    /// time of the next query (RFC 9773).
    suggested: Option<u64>,
    ask: Option<Instant>,
}

impl Name {
    fn new(client: &Arc<str>) -> Self {
        Self {
            client: Arc::clone(client),
            wants: 0,
            is_demanded: false,
            failures: 0,
            not_before: None,
            serial: 0,
            error: None,
            tried: false,
            account: 0,
            suggested: None,
            ask: None,
        }
    }
}

impl Name {
    /// Whether the name should be ordered.
    const fn is_wanted(&self) -> bool {
        self.wants > 0 || self.is_demanded
    }
}

/// The state of all names.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    names: HashMap<Box<str>, Name>,
    serial: u64,
    /// Failures of orders and of queries for renewal information, by the number of the account.
    outages: HashMap<usize, Outage>,
    silences: HashMap<usize, Outage>,
    pub(crate) turns: Turns,
}

/// Failures of the authority itself.
#[derive(Debug, Default)]
struct Outage {
    failures: u32,
    not_before: Option<Instant>,
}

/// The next step of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Order a certificate for this name.
    Order(Box<str>),
    /// Query when the certificate of this name should be renewed (RFC 9773).
    Ask(Box<str>),
    /// Scan again at this time, or when names change.
    Sleep(Instant),
}

/// The need of a name for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No order: a file covers the name, or it cannot be ordered.
    Nothing,
    /// The name has no certificate.
    First,
    /// The certificate is due for renewal from this second of the wall clock on.
    Renewal(u64),
}

impl Ledger {
    /// A service of a client publishes the name.
    pub(crate) fn want(&mut self, host: &str, client: &Arc<str>) {
        self.serial += 1;
        let serial = self.serial;
        let name = self.names.entry(host.into()).or_insert_with(|| Name::new(client));
        if name.wants == 0 {
            name.serial = serial;
            name.client = Arc::clone(client);
        }
        name.wants += 1;
    }

    /// A service no longer publishes the name.
    pub(crate) fn drop_want(&mut self, host: &str) {
        let Some(name) = self.names.get_mut(host) else { return };
        name.wants = name.wants.saturating_sub(1);
        let is_last = name.wants == 0;
        if !name.is_wanted() && name.not_before.is_none() {
            self.names.remove(host);
        }
        // The names below it that visitors have requested are removed with their wildcard.
        if is_last && host.starts_with("*.") {
            self.drop_demands(|_| false);
            self.names.retain(|_, name| name.is_wanted() || name.not_before.is_some());
        }
    }

    /// Removes requested names that no published wildcard covers any more, or that satisfy
    /// `needs_nothing`.
    fn drop_demands(&mut self, needs_nothing: impl Fn(&str) -> bool) {
        let demanded = self.names.iter().filter(|(_, name)| name.is_demanded);
        let gone = |host: &str| needs_nothing(host) || self.wildcard_client(host).is_none();
        let gone: Vec<Box<str>> =
            demanded.map(|(host, _)| host).filter(|host| gone(host)).cloned().collect();
        for host in gone {
            if let Some(name) = self.names.get_mut(&host) {
                name.is_demanded = false;
            }
        }
    }

    /// The client that publishes a wildcard above this name, at any depth.
    pub(crate) fn wildcard_client(&self, host: &str) -> Option<Arc<str>> {
        let mut rest = host;
        while let Some((_, below)) = rest.split_once('.') {
            rest = below;
            let wildcard = format!("*.{rest}");
            if let Some(name) = self.names.get(wildcard.as_str()).filter(|name| name.wants > 0) {
                return Some(Arc::clone(&name.client));
            }
        }
        None
    }

    /// A visitor asks for a name below a published wildcard: the name is ordered once, by the turns
    /// of the wildcard's client. Returns whether an order follows. In the pause of the name it does
    /// not, and the name takes no place of another one: strangers choose names that fail.
    pub(crate) fn demand(&mut self, host: &str, now: Instant) -> bool {
        if let Some(name) = self.names.get(host) {
            if name.not_before.is_some_and(|until| until > now) {
                return false;
            }
            if name.is_wanted() {
                return name.error.is_none();
            }
        }
        let Some(client) = self.wildcard_client(host) else { return false };
        let waits = |name: &&Name| name.is_demanded && name.client == client;
        if self.names.values().filter(waits).count() >= DEMANDED_MAX {
            return false;
        }
        self.serial += 1;
        let serial = self.serial;
        let name = self.names.entry(host.into()).or_insert_with(|| Name::new(&client));
        (name.is_demanded, name.client, name.serial) = (true, client, serial);
        name.error.is_none()
    }

    /// The names to be ordered, in the order in which they were added.
    pub(crate) fn wanted(&self) -> Vec<Box<str>> {
        let mut names: Vec<_> = self.names.iter().filter(|(_, name)| name.is_wanted()).collect();
        names.sort_unstable_by_key(|(_, name)| name.serial);
        names.into_iter().map(|(host, _)| host.clone()).collect()
    }

    /// Sets which account orders each name, by the account's index in the settings.
    pub(crate) fn assign(&mut self, account: impl Fn(&str) -> usize) {
        for (host, name) in self.names.iter_mut().filter(|(_, name)| name.is_wanted()) {
            name.account = account(host);
        }
    }

    /// Whether the number of names that wait for their first order is so large that another name of
    /// this client would wait too long. `need` returns the need of a name.
    pub(crate) fn is_full(&self, host: &str, client: &str, need: impl Fn(&str) -> Need) -> bool {
        if self.names.get(host).is_some_and(|name| name.wants > 0) {
            return false;
        }
        let (mut own, mut all) = (0, 0);
        for (host, name) in &self.names {
            if name.is_wanted() && !name.tried && need(host) == Need::First {
                all += 1;
                own += usize::from(&*name.client == client);
            }
        }
        own >= WAITING_MAX || own > 0 && all >= WAITING_ALL
    }

    /// The next step of the driver at the time `now`, which is the second `wall` of the wall clock;
    /// see the module for the order of names. An order counts for its client at once.
    pub(crate) fn next(&mut self, now: Instant, wall: u64, need: impl Fn(&str) -> Need) -> Next {
        self.drop_demands(|host| need(host) == Need::Nothing);
        // A name that no service publishes is remembered for the longest pause after its own pause.
        self.names.retain(|_, name| {
            name.is_wanted() || name.not_before.is_some_and(|until| until + PAUSE_MAX > now)
        });
        self.turns.forget(now);
        let mut sleep = now + SLEEP_MAX;
        let mut first: Option<((u64, bool, u64), &str)> = None;
        let mut ask: Option<(Instant, &str)> = None;
        for (host, name) in self.names.iter().filter(|(_, name)| name.is_wanted()) {
            let (begin, is_renewal) = match need(host) {
                Need::Nothing => continue,
                Need::First => {
                    let bounds =
                        [self.turns.allowed(&name.client), self.turns.allowed_to(name.account)];
                    (bounds.into_iter().flatten().fold(now, Instant::max), false)
                }
                Need::Renewal(at) => {
                    let at = name.suggested.unwrap_or(at);
                    let wait = Duration::from_secs(at.saturating_sub(wall)).min(SLEEP_MAX);
                    (now + wait, true)
                }
            };
            let pause = |outages: &HashMap<usize, Outage>| outages.get(&name.account)?.not_before;
            let outage = pause(&self.outages);
            let due = [name.not_before, outage].into_iter().flatten().fold(begin, Instant::max);
            if due > now {
                sleep = sleep.min(due);
                if is_renewal {
                    let at = [name.ask, outage, pause(&self.silences)];
                    let at = at.into_iter().flatten().fold(now, Instant::max);
                    if at > now {
                        sleep = sleep.min(at);
                    } else if ask.is_none_or(|(before, _)| name.ask.unwrap_or(now) < before) {
                        ask = Some((name.ask.unwrap_or(now), host));
                    }
                }
                continue;
            }
            let rank = (self.turns.last(&name.client), is_renewal, name.serial);
            if first.is_none_or(|(before, _)| rank < before) {
                first = Some((rank, host));
            }
        }
        let Some(((_, is_renewal, _), host)) = first else {
            return ask.map_or(Next::Sleep(sleep), |(_, host)| Next::Ask(host.into()));
        };
        let host: Box<str> = host.into();
        if let Some(name) = self.names.get(&host) {
            self.turns.count(&name.client, name.account, is_renewal, now);
        }
        Next::Order(host)
    }

    /// The number of failed orders since the last certificate of the name.
    pub(crate) fn failures(&self, host: &str) -> u32 {
        self.names.get(host).map_or(0, |name| name.failures)
    }

    /// A certificate was issued.
    pub(crate) fn succeeded(&mut self, host: &str, now: Instant) {
        if let Some(name) = self.names.get_mut(host) {
            self.outages.remove(&name.account);
            (name.failures, name.error, name.tried) = (0, None, true);
            name.is_demanded = false;
            // A suggestion applied to the old certificate.
            (name.suggested, name.ask) = (None, None);
            name.not_before = Some(now + SETTLED);
        }
    }

    /// The authority suggests a second of the wall clock for the renewal, or `None`, and is queried
    /// again after `pause`.
    pub(crate) fn suggest(&mut self, host: &str, now: Instant, at: Option<u64>, pause: Duration) {
        if let Some(name) = self.names.get_mut(host) {
            self.silences.remove(&name.account);
            (name.suggested, name.ask) = (at, Some(now + pause.clamp(ASK_MIN, ASK_MAX)));
        }
    }

    /// The authority did not answer a query for renewal information. An earlier suggestion is kept.
    /// Returns the pause until the next query to this authority.
    pub(crate) fn unanswered(&mut self, host: &str, now: Instant) -> Duration {
        let account = self.names.get(host).map_or(0, |name| name.account);
        let silence = self.silences.entry(account).or_default();
        silence.failures = silence.failures.saturating_add(1);
        let pause = pause(silence.failures, PAUSE_MAX);
        silence.not_before = Some(now + pause);
        pause
    }

    /// The suggested time of the renewal of a name, in seconds of the wall clock.
    pub(crate) fn suggested(&self, host: &str) -> Option<u64> {
        self.names.get(host)?.suggested
    }

    /// An order failed. `asked` is the pause that the authority requested. Returns the pause until
    /// the next attempt.
    pub(crate) fn failed(
        &mut self,
        host: &str,
        now: Instant,
        scope: Scope,
        asked: Option<Duration>,
        error: String,
    ) -> Duration {
        let asked = asked.unwrap_or_default().min(ASKED_MAX);
        // The service may have been withdrawn in the meantime. The name is remembered all the same.
        let name = self.names.entry(host.into()).or_insert_with(|| Name::new(&Arc::from("")));
        (name.error, name.tried) = (Some(error), true);
        // The first visitor after the pause requests it again.
        name.is_demanded = false;
        match scope {
            Scope::Name => {
                self.outages.remove(&name.account);
                name.failures = name.failures.saturating_add(1);
                let pause = pause(name.failures, PAUSE_MAX).max(asked);
                name.not_before = Some(now + pause);
                pause
            }
            Scope::Authority => {
                let outage = self.outages.entry(name.account).or_default();
                outage.failures = outage.failures.saturating_add(1);
                let pause = pause(outage.failures, OUTAGE_MAX).max(asked.min(PAUSE_MAX));
                outage.not_before = Some(now + pause);
                pause
            }
        }
    }

    /// New settings of the authority: the cause of each failure may have been removed.
    pub(crate) fn forget_failures(&mut self) {
        (self.outages, self.silences) = Default::default();
        for name in self.names.values_mut() {
            (name.failures, name.not_before, name.error) = (0, None, None);
            (name.suggested, name.ask) = (None, None);
        }
    }

    /// The last error of a name, and the pause until its next attempt. `is_first`: the name has no
    /// certificate.
    pub(crate) fn trouble(
        &self,
        host: &str,
        is_first: bool,
        now: Instant,
    ) -> Option<(String, Duration)> {
        let name = self.names.get(host)?;
        let waits = |at: &Instant| is_first && *at > now;
        let own = self.turns.allowed(&name.client).filter(waits);
        let all = self.turns.allowed_to(name.account).filter(waits);
        let full = || match (own, all) {
            (Some(_), _) => Some(format!(
                "client `{}` has made {ORDERS} first orders, as many as a client may make in a day",
                name.client
            )),
            (None, Some(_)) => Some(format!(
                "all clients have made {ORDERS_ALL} first orders, as many as an account makes in 3 \
                 hours"
            )),
            (None, None) => None,
        };
        let error = name.error.clone().or_else(full)?;
        let bound = own.max(all);
        let outage = self.outages.get(&name.account).and_then(|outage| outage.not_before);
        let next = name.not_before.max(outage).max(bound);
        Some((error, next.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))))
    }
}

/// The back-off after failure number `failures`: it doubles up to `max`, and a quarter of it is
/// random so that names do not retry in lockstep after an outage.
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

/// The ledger, shared between threads.
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

    pub(crate) fn want(self: &Arc<Self>, host: Box<str>, client: &Arc<str>) -> Wanted {
        self.with(|ledger| ledger.want(&host, client));
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
    use std::collections::HashSet;

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

    fn want(ledger: &mut Ledger, host: &str) {
        ledger.want(host, &"home".into());
    }

    fn fail(ledger: &mut Ledger, host: &str, now: Instant) -> Duration {
        ledger.failed(host, now, Scope::Name, None, "no".into())
    }

    /// The sleep until the next order.
    fn sleep(ledger: &mut Ledger, now: Instant) -> Duration {
        match ledger.next(now, WALL, first) {
            Next::Sleep(until) => until - now,
            next @ (Next::Order(_) | Next::Ask(_)) => panic!("{next:?}"),
        }
    }

    #[test]
    fn names_have_their_turn_in_the_order_in_which_they_came() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        assert_eq!(ledger.next(now, WALL, first), Next::Sleep(now + SLEEP_MAX));
        for host in ["b", "a", "c"] {
            want(&mut ledger, host);
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
        want(&mut ledger, "a");
        for minutes in [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360] {
            assert_eq!(ledger.next(now, WALL, first), order("a"));
            let pause = fail(&mut ledger, "a", now);
            let longest = MINUTE * minutes;
            assert!(pause >= longest * 3 / 4 && pause <= longest, "{pause:?} of {longest:?}");
            assert_eq!(sleep(&mut ledger, now), pause.min(SLEEP_MAX));
            assert_eq!(ledger.trouble("a", true, now), Some(("no".into(), pause)));
            now += pause;
        }
        ledger.succeeded("a", now);
        assert_eq!((ledger.trouble("a", true, now), ledger.failures("a")), (None, 0));
        now += SETTLED;
        assert!(fail(&mut ledger, "a", now) <= MINUTE);
    }

    #[test]
    fn the_authority_can_ask_for_a_longer_pause_within_reason() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        want(&mut ledger, "a");
        let mut asked = |pause| ledger.failed("a", now, Scope::Name, Some(pause), "no".into());
        assert_eq!(asked(30 * HOUR), 30 * HOUR);
        assert!(asked(Duration::from_secs(1)) >= MINUTE);
        assert_eq!(asked(Duration::from_secs(u64::MAX)), ASKED_MAX);
    }

    #[test]
    fn an_outage_pauses_all_names_and_blames_none() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for host in ["a", "b"] {
            want(&mut ledger, host);
        }
        let pause = ledger.failed("a", now, Scope::Authority, None, "down".into());
        assert_eq!(sleep(&mut ledger, now), pause);
        assert_eq!((ledger.failures("a"), ledger.trouble("b", true, now)), (0, None));
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
        want(&mut ledger, "a");
        ledger.drop_want("a");
        // The service went while the order was in progress.
        let pause = fail(&mut ledger, "a", now);
        want(&mut ledger, "a");
        assert_eq!(sleep(&mut ledger, now), pause);
        ledger.drop_want("a");
        assert_eq!(sleep(&mut ledger, now + pause), SLEEP_MAX);
        want(&mut ledger, "a");
        assert_eq!(ledger.failures("a"), 1, "the next pause is longer");
        ledger.drop_want("a");
        sleep(&mut ledger, now + pause + PAUSE_MAX);
        assert!(ledger.names.is_empty(), "nothing is remembered for ever");
    }

    #[test]
    fn two_services_want_a_name_until_both_are_gone() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        want(&mut ledger, "a");
        want(&mut ledger, "a");
        ledger.drop_want("a");
        assert_eq!(ledger.next(now, WALL, first), order("a"));
        ledger.drop_want("a");
        assert!(ledger.names.is_empty());
        ledger.drop_want("a");
    }

    #[test]
    fn a_renewal_waits_for_its_second_and_a_clock_that_jumps_changes_little() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        want(&mut ledger, "a");
        let at = |seconds: u64| move |_: &str| Need::Renewal(WALL + seconds);
        assert_eq!(ledger.next(now, WALL, at(90)), Next::Ask("a".into()));
        ledger.suggest("a", now, None, ASK_MAX);
        assert_eq!(ledger.next(now, WALL, at(90)), Next::Sleep(now + Duration::from_secs(90)));
        assert_eq!(ledger.next(now, WALL, at(0)), order("a"));
        // In three months: the clock is looked at every hour.
        assert_eq!(ledger.next(now, WALL, at(90 * 86_400)), Next::Sleep(now + SLEEP_MAX));
        // The clock goes back by an hour, or on by an hour: the order comes so much later or
        // earlier.
        assert_eq!(ledger.next(now, WALL - 3600, at(90)), Next::Sleep(now + SLEEP_MAX));
        assert_eq!(ledger.next(now, WALL + 3600, at(90)), order("a"));
        // A clock of 2100 shows each new certificate as expired.
        ledger.succeeded("a", now);
        ledger.suggest("a", now, None, ASK_MAX);
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
        want(&mut ledger, "a");
        assert_eq!(ledger.next(now, WALL, |_| Need::Nothing), Next::Sleep(now + SLEEP_MAX));
        fail(&mut ledger, "a", now);
        ledger.forget_failures();
        assert_eq!(ledger.next(now, WALL, first), order("a"));
        assert_eq!(ledger.trouble("a", true, now), None);
    }

    /// The orders of `hours` hours of which each takes a minute and succeeds, by client.
    fn orders(ledger: &mut Ledger, begin: Instant, hours: u32) -> Vec<String> {
        let (mut now, end, mut done) = (begin, begin + HOUR * hours, HashSet::new());
        let mut orders = Vec::new();
        while now < end {
            let need = |host: &str| if done.contains(host) { Need::Nothing } else { Need::First };
            match ledger.next(now, WALL, need) {
                Next::Order(host) => {
                    now += MINUTE;
                    ledger.succeeded(&host, now);
                    orders.push(host.split_once('.').unwrap().1.to_owned());
                    done.insert(host);
                }
                Next::Sleep(until) => now = until,
                Next::Ask(host) => panic!("{host} has no certificate"),
            }
        }
        orders
    }

    #[test]
    fn a_client_with_many_names_delays_another_by_one_order() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let [evil, good] = ["evil", "good"].map(Arc::<str>::from);
        for n in 0..WAITING_MAX {
            assert!(!ledger.is_full("n.evil", &evil, first));
            ledger.want(&format!("n{n}.evil"), &evil);
        }
        assert!(ledger.is_full("n.evil", &evil, first));
        assert!(!ledger.is_full("0.good", &good, first));
        assert!(
            matches!(ledger.next(now, WALL, first), Next::Order(host) if host.ends_with("evil"))
        );
        for n in 0..3 {
            ledger.want(&format!("{n}.good"), &good);
        }
        let order = orders(&mut ledger, now, 1);
        assert_eq!(order[..6], ["good", "evil", "good", "evil", "good", "evil"]);
    }

    #[test]
    fn whoever_publishes_again_and_again_keeps_no_other_client_waiting() {
        let (mut ledger, mut now) = (Ledger::default(), Instant::now());
        let [evil, good] = ["evil", "good"].map(Arc::<str>::from);
        let mut turns = 0;
        for round in 0..200 {
            for n in 0..20 {
                ledger.want(&format!("x{round}-{n}.evil"), &evil);
            }
            if round == 100 {
                ledger.want("0.good", &good);
            }
            let Next::Order(host) = ledger.next(now, WALL, first) else { break };
            turns = round;
            if &*host == "0.good" {
                break;
            }
            // The certificate would take a while; the names are gone before it comes.
            now += MINUTE;
            fail(&mut ledger, &host, now);
            for n in 0..20 {
                ledger.drop_want(&format!("x{round}-{n}.evil"));
            }
        }
        assert_eq!(turns, 100);
        assert!(ledger.names.len() < 200, "names that were withdrawn leave the queue");
    }

    #[test]
    fn a_client_makes_a_bounded_number_of_first_orders_in_a_day() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let [evil, good] = ["evil", "good"].map(Arc::<str>::from);
        for n in 0..1_000 {
            ledger.want(&format!("n{n}.evil"), &evil);
        }
        let day = orders(&mut ledger, now, 24).len();
        assert!((199..=201).contains(&day), "{day}: the orders of a day, and as many at once");
        let later = now + HOUR * 24;
        let next = orders(&mut ledger, later, 24).len();
        assert!((99..=101).contains(&next), "{next}");
        let until = ledger.turns.allowed("evil").unwrap() - MINUTE;
        let (error, pause) = ledger.trouble("n999.evil", true, until).unwrap();
        assert!(error.contains("client `evil` has made 100 first orders"), "{error}");
        assert_eq!(pause, MINUTE);
        assert_eq!(ledger.trouble("n999.evil", false, until), None);
        ledger.want("0.good", &good);
        assert_eq!(ledger.next(until, WALL, first), order("0.good"));
        // Renewals do not count.
        let renewal = |_: &str| Need::Renewal(WALL);
        let renewals = (0..150).take_while(|_| match ledger.next(until, WALL, renewal) {
            Next::Order(host) => {
                ledger.succeeded(&host, until);
                true
            }
            Next::Sleep(_) | Next::Ask(_) => false,
        });
        assert_eq!(renewals.count(), 150);
    }

    #[test]
    fn the_authority_moves_a_renewal_and_is_asked_again_when_it_wishes() {
        let (mut ledger, mut now) = (Ledger::default(), Instant::now());
        want(&mut ledger, "a");
        let need = |_: &str| Need::Renewal(WALL + 3600 * 24 * 30);
        let ask = Next::Ask("a".into());
        assert_eq!(ledger.next(now, WALL, need), ask);
        ledger.suggest("a", now, Some(WALL + 1800), 20 * MINUTE);
        assert_eq!(ledger.suggested("a"), Some(WALL + 1800));
        assert_eq!(ledger.next(now, WALL, need), Next::Sleep(now + 20 * MINUTE));
        now += 20 * MINUTE;
        assert_eq!(ledger.next(now, WALL + 1200, need), ask);
        // Without an answer the suggestion stays, and pauses double.
        for minutes in [1, 2, 4] {
            let pause = ledger.unanswered("a", now);
            assert!(pause > MINUTE * minutes * 3 / 4 - MINUTE / 60 && pause <= MINUTE * minutes);
            assert_eq!(ledger.next(now, WALL + 1200, need), Next::Sleep(now + pause));
        }
        assert_eq!(ledger.next(now, WALL + 1800, need), order("a"));
        ledger.succeeded("a", now);
        assert_eq!(ledger.suggested("a"), None, "it was for the old certificate");
        // An authority cannot ask for questions in a loop, or for none in a year.
        for (asked, pause) in [(Duration::ZERO, ASK_MIN), (ASK_MAX * 365, ASK_MAX)] {
            ledger.suggest("a", now, None, asked);
            assert_eq!(ledger.names["a"].ask, Some(now + pause));
        }
        let first = |_: &str| Need::First;
        now += ASK_MAX;
        assert_eq!(ledger.next(now, WALL, first), order("a"), "nothing to renew");
    }

    #[test]
    fn all_clients_of_an_account_make_a_bounded_number_of_first_orders() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for client in 0..10 {
            for n in 0..50 {
                ledger.want(&format!("n{n}.c{client}"), &format!("c{client}").into());
            }
        }
        ledger.want("other.account", &"c0".into());
        ledger.assign(|host| usize::from(host == "other.account"));
        let mut made = Vec::new();
        while let Next::Order(host) = ledger.next(now, WALL, first) {
            ledger.succeeded(&host, now);
            made.push(host);
        }
        let (other, of_one): (Vec<_>, Vec<_>) =
            made.iter().partition(|host| &***host == "other.account");
        assert_eq!((of_one.len(), other.len()), (ORDERS_ALL as usize, 1));
        let (waiting, client) = ("n49.c9", "c9");
        assert!(ledger.turns.allowed(client).is_none_or(|at| at <= now));
        let (why, pause) = ledger.trouble(waiting, true, now).unwrap();
        assert!(why.starts_with("all clients have made 150 first orders"), "{why}");
        assert_eq!(pause, Duration::from_secs(72));
        assert_eq!(ledger.trouble(waiting, false, now), None, "renewals do not count");
        assert!(matches!(ledger.next(now + pause, WALL, first), Next::Order(_)));
    }

    #[test]
    fn a_visitor_of_a_published_wildcard_has_one_name_ordered() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let need = |host: &str| if host.starts_with('*') { Need::Nothing } else { Need::First };
        assert!(!ledger.demand("a.home.example", now), "nobody publishes it");
        want(&mut ledger, "*.home.example");
        assert!(!ledger.demand("home.example", now) && !ledger.demand("a.other.example", now));
        for host in ["a.home.example", "x.y.home.example"] {
            assert!(ledger.demand(host, now) && ledger.demand(host, now));
        }
        assert_eq!(ledger.next(now, WALL, need), order("a.home.example"));
        ledger.succeeded("a.home.example", now);
        assert_eq!(ledger.next(now, WALL, need), order("x.y.home.example"));
        // After a failure the first visitor after the pause asks again.
        let pause = fail(&mut ledger, "x.y.home.example", now);
        let end = now + pause;
        for moment in [now, end - MINUTE / 60] {
            assert!(!ledger.demand("x.y.home.example", moment));
            assert_eq!(ledger.next(moment, WALL, need), Next::Sleep(moment + SLEEP_MAX));
        }
        assert!(!ledger.demand("x.y.home.example", end), "the visitor does not wait for it");
        assert_eq!(ledger.next(end, WALL, need), order("x.y.home.example"));
        // Strangers fill a bounded place.
        let taken =
            (0..1_000).filter(|n| ledger.demand(&format!("n{n}.home.example"), end)).count();
        assert_eq!(taken, DEMANDED_MAX - 1, "one more waits for its second order");
    }

    #[test]
    fn names_that_fail_take_no_place_of_the_names_that_visitors_ask_for() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        want(&mut ledger, "*.home.example");
        for host in (0..DEMANDED_MAX).map(|n| format!("n{n}.home.example")) {
            assert!(ledger.demand(&host, now));
            fail(&mut ledger, &host, now);
            assert!(!ledger.demand(&host, now));
        }
        assert!(ledger.demand("good.home.example", now));
    }

    #[test]
    fn what_visitors_ask_for_goes_with_its_wildcard_or_with_its_need() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let below = |n: usize| format!("n{n}.home.example");
        // Two services publish the wildcard; one name is published by itself as well.
        for host in ["*.home.example", "*.home.example", &below(0)] {
            want(&mut ledger, host);
        }
        for n in 0..=DEMANDED_MAX {
            ledger.demand(&below(n), now);
        }
        ledger.drop_want("*.home.example");
        assert_eq!(ledger.wanted().len(), DEMANDED_MAX + 2);
        ledger.drop_want("*.home.example");
        assert_eq!(ledger.wanted(), [below(0).into()]);
        assert_eq!(ledger.names.len(), 1, "nothing is remembered without a pause");
        assert!(!ledger.demand(&below(1), now));

        // A certificate for all of them came: nothing is to be ordered, and the places are free.
        want(&mut ledger, "*.home.example");
        for n in 1..=DEMANDED_MAX {
            assert!(ledger.demand(&below(n), now));
        }
        assert!(!ledger.demand("late.home.example", now));
        assert_eq!(ledger.next(now, WALL, |_| Need::Nothing), Next::Sleep(now + SLEEP_MAX));
        assert_eq!(ledger.wanted(), [below(0).into(), "*.home.example".into()]);
        assert!(ledger.demand("late.home.example", now));
        // A wildcard above keeps a name.
        want(&mut ledger, "*.example");
        ledger.drop_want("*.home.example");
        assert!(ledger.wanted().contains(&"late.home.example".into()));
    }

    #[test]
    fn an_outage_of_one_account_does_not_pause_the_names_of_another() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for host in ["a.one", "b.one", "a.two"] {
            want(&mut ledger, host);
        }
        ledger.assign(|host| usize::from(host.ends_with("two")));
        ledger.failed("a.one", now, Scope::Authority, None, "down".into());
        assert_eq!(ledger.next(now, WALL, first), order("a.two"));
        ledger.succeeded("a.two", now);
        assert!(sleep(&mut ledger, now) < SETTLED, "its success says nothing of the other");
    }

    #[test]
    fn the_first_certificate_of_a_name_comes_before_renewals_of_its_client() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for host in ["old", "new"] {
            want(&mut ledger, host);
        }
        let need = |host: &str| if host == "new" { Need::First } else { Need::Renewal(WALL) };
        assert_eq!(ledger.next(now, WALL, need), order("new"));
        ledger.succeeded("new", now);
        assert_eq!(ledger.next(now, WALL, need), order("old"));
    }

    #[test]
    fn many_clients_fill_the_queue_of_all_and_a_new_client_has_a_place() {
        let mut ledger = Ledger::default();
        for client in 0..WAITING_ALL / 50 {
            for n in 0..50 {
                ledger.want(&format!("n{n}.c{client}"), &format!("c{client}").into());
            }
        }
        assert!(ledger.is_full("more.c0", "c0", first));
        assert!(!ledger.is_full("0.new", "new", first));
    }
}
