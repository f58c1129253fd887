//! The brake on password guessing for services, exits and forwards.
//!
//! [`Failures`] is the exponential backoff after wrong guesses, by any key. [`Brake`] limits the
//! guesses of one source at one service, over all connections, streams and workers together.
//!
//! Delaying only the refusals would limit nothing: a correct guess is accepted at once, so an
//! attacker could open many connections and abandon each of them shortly after. So no outcome may
//! be revealed faster than the pauses permit, whether correct or wrong:
//!
//! ```text
//!   the pause of the source is over ──── correct ─> revealed at once, at no cost
//!                                   └─── wrong ──> the pause grows; revealed at its end
//!   the pause is not over ──> waits for a turn; the youngest has the next turn
//!                              └─ no turn in time ──> refused without a verdict
//! ```
//!
//! * The caller compares the password first and passes the outcome to the brake. The comparison is
//!   cheap and takes constant time; the brake decides when the outcome may be revealed.
//! * Without a wrong guess in the last pause, a correct password passes at once and takes no turn.
//! * A legitimate user behind an attacker's address must not be locked out. An attacker waits for a
//!   response before it sends the next guess, because its connections and streams are bounded. So a
//!   request that arrives at any other time is the youngest, and gets its turn after at most one
//!   pause ([`LONGEST`]). The oldest guess would wait longest in any order.
//! * A connection on which the correct password was presented is not throttled
//!   ([`Attempt::is_known`]): a program whose connection is admitted is not affected by an attacker
//!   behind the same address. A wrong password ends the exemption, so an attacker that shares the
//!   connection of a reverse proxy gains one guess per correct password of another user. A recently
//!   correct *password* gives no exemption: to admit it and no other would reveal it to an
//!   attacker.
//! * Waiting requests cost as much as requests to a slow target, and are bounded in time and in
//!   number (`WAITING_MAX`).
//!
//! A source is a [`Source::prefix`]. A visitor without a source (it uses a Unix socket, or a
//! reverse proxy names no address) is not throttled: a limit for all such visitors together would
//! lock all of them out.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::source::Source;

/// The pause after the first wrong guess. The pause doubles with each subsequent guess.
const FIRST: Duration = Duration::from_millis(100);

/// After this time without a failure, the pause starts again at [`FIRST`].
const FORGET: Duration = Duration::from_secs(60);

/// The number of doublings at a service: up to 1.6 s, or 54,000 guesses per day. A user behind an
/// attacker's address waits as long for a response on a new connection.
const DOUBLINGS: u32 = 4;

/// The longest pause of a source at a service.
pub const LONGEST: Duration = Duration::from_millis(100 << DOUBLINGS);

/// The maximum number of waiting requests of all sources: 128 HTTP/2 connections with all their
/// streams. Requests beyond it are refused at once.
const WAITING_MAX: usize = 16 << 10;

/// The number of shards of the table, each with its own lock, so that workers rarely contend.
const PARTS: usize = 32;

/// The maximum number of pairs of service and source in one shard. An attacker needs 8,192 sources
/// to make a full table forget a pause.
const PART_MAX: usize = 256;

/// The number of wrong passwords from which on they are reported, because a user may mistype.
const REPORT_FROM: u32 = 3;

/// The minimum interval between two reports about one service and source.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The maximum number of reports in this period about all services and sources: an attacker with an
/// IPv6 network has 65,536 sources.
const REPORTS: u32 = 60;

/// Counts failures by key, and computes the delay of the response to each.
#[derive(Debug)]
pub struct Failures<K> {
    table: HashMap<K, (u32, std::time::Instant)>,
    keys: usize,
    doublings: u32,
}

impl<K: Eq + Hash> Failures<K> {
    /// A table of at most `keys` keys, which an attacker may invent. A full table without expired
    /// keys is cleared. The pause starts at 100 ms and doubles `doublings` times.
    #[must_use]
    pub fn new(keys: usize, doublings: u32) -> Self {
        Self { table: HashMap::new(), keys, doublings }
    }

    /// Counts a failure, and returns its pause.
    pub fn count(&mut self, key: K, now: std::time::Instant) -> Duration {
        let quiet = |last: std::time::Instant| now.saturating_duration_since(last) >= FORGET;
        if self.table.len() >= self.keys {
            self.table.retain(|_, (_, last)| !quiet(*last));
            if self.table.len() >= self.keys {
                self.table.clear();
            }
        }
        let (count, last) = self.table.entry(key).or_insert((0, now));
        if quiet(*last) {
            *count = 0;
        }
        *last = now;
        let pause = pause(*count, self.doublings);
        *count = count.saturating_add(1);
        pause
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no failure is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

fn pause(failures: u32, doublings: u32) -> Duration {
    FIRST * (1 << failures.min(doublings))
}

/// A password that a visitor presented.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The name of the service in reports.
    pub service: &'a str,
    /// The visitor.
    pub source: &'a Source,
    /// Whether the password is correct. The visitor learns this only from the result of the brake.
    pub is_right: bool,
    /// Whether the last password of this source on this connection was correct.
    pub is_known: bool,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The password is correct.
    Right,
    /// The password is wrong.
    Wrong,
    /// No verdict: the source has made too many wrong guesses.
    Busy,
}

/// Wrong guesses of one source at one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The service.
    pub service: &'a str,
    /// The source, a [`Source::prefix`].
    pub source: &'a Source,
    /// Wrong passwords since the last report.
    pub wrong: u64,
    /// Requests that were refused without a verdict since the last report.
    pub refused: u64,
}

/// Limits the guesses of each source at each service; see the module.
pub struct Brake {
    report: Box<dyn Fn(Report<'_>) + Send + Sync>,
    hasher: RandomState,
    parts: [Mutex<Part>; PARTS],
    /// The number of pairs of service and source in all shards. If it is 0, a correct password
    /// needs no lock.
    pairs: AtomicUsize,
    waiting: AtomicUsize,
    places: AtomicU64,
    /// The start of the period, and the number of reports in it.
    reports: Mutex<(Instant, u32)>,
}

type Part = HashMap<(Box<str>, Source), Guesser>;

/// A source that made a wrong guess.
#[derive(Debug)]
struct Guesser {
    failures: u32,
    last: Instant,
    /// The end of the pause.
    next: Instant,
    /// The waiting requests; the youngest is the last.
    waiting: BTreeMap<u64, Arc<Notify>>,
    reported: Option<Instant>,
    wrong: u64,
    refused: u64,
}

/// The next step of an attempt.
enum Step {
    Judged(Judgement),
    /// The password is wrong, and the pause ends at this time.
    Pause(Instant),
    /// The attempt waits for its turn: until this time, or for a notification.
    Wait(Option<Instant>),
}

impl fmt::Debug for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brake").field("pairs", &self.pairs).finish_non_exhaustive()
    }
}

impl Brake {
    /// A brake that reports attackers to `report`, at most once per service, source and minute.
    #[must_use]
    pub fn new(report: impl Fn(Report<'_>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            report: Box::new(report),
            hasher: RandomState::new(),
            parts: std::array::from_fn(|_| Mutex::default()),
            pairs: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            places: AtomicU64::new(0),
            reports: Mutex::new((Instant::now(), 0)),
        })
    }

    /// Whether no source is throttled, so that a correct password may be accepted at once.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pairs.load(Ordering::Acquire) == 0
    }

    /// Returns the outcome of an attempt once it may be revealed. An attempt that gets no turn
    /// within `patience` is refused. Dropping the future gives up the turn.
    pub async fn judge(&self, attempt: Attempt<'_>, patience: Duration) -> Judgement {
        if attempt.is_right && self.is_idle() {
            return Judgement::Right;
        }
        let source = attempt.source.clone().prefix();
        let attempt = Attempt { source: &source, ..attempt };
        let deadline = Instant::now() + patience;
        let mut place = None;
        loop {
            let sign = match self.step(attempt, &mut place, deadline) {
                Step::Judged(judgement) => return judgement,
                Step::Pause(until) => {
                    drop(place);
                    sleep_until(until).await;
                    return Judgement::Wrong;
                }
                Step::Wait(until) => until.map_or(deadline, |until| until.min(deadline)),
            };
            let Some(Queued { sign: notify, .. }) = &place else { return Judgement::Busy };
            tokio::select! {
                () = notify.notified() => {}
                () = sleep_until(sign) => {}
            }
        }
    }

    fn step<'b>(
        &'b self,
        attempt: Attempt<'b>,
        place: &mut Option<Queued<'b>>,
        deadline: Instant,
    ) -> Step {
        let (now, key) = (Instant::now(), (Box::from(attempt.service), attempt.source.clone()));
        let mut part = self.part(attempt);
        if attempt.is_right && !part.contains_key(&key) {
            return Step::Judged(Judgement::Right);
        }
        let Some(guesser) = self.guesser(&mut part, key, now) else {
            return Step::Judged(Judgement::Busy);
        };
        if guesser.is_quiet(now) {
            guesser.forget();
        }
        let mine = place.as_ref().map_or(u64::MAX, |place| place.number);
        let is_youngest = guesser.waiting.keys().next_back().is_none_or(|last| *last <= mine);
        if attempt.is_known || (now >= guesser.next && is_youngest) {
            if attempt.is_right {
                return Step::Judged(Judgement::Right);
            }
            guesser.next = guesser.next.max(now) + pause(guesser.failures, DOUBLINGS);
            guesser.failures = guesser.failures.saturating_add(1);
            guesser.last = now;
            guesser.wrong += 1;
            let until = guesser.next;
            self.report(attempt, guesser, now);
            return Step::Pause(until);
        }
        if now >= deadline {
            guesser.refused += 1;
            self.report(attempt, guesser, now);
            return Step::Judged(Judgement::Busy);
        }
        let until = is_youngest.then_some(guesser.next);
        if place.is_none() {
            if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                guesser.refused += 1;
                return Step::Judged(Judgement::Busy);
            }
            let number = self.places.fetch_add(1, Ordering::Relaxed);
            let sign = Arc::new(Notify::new());
            guesser.waiting.insert(number, Arc::clone(&sign));
            *place = Some(Queued { brake: self, attempt, number, sign });
        }
        Step::Wait(until)
    }

    /// The entry of a pair. `None`: all entries of a full shard have waiting requests.
    fn guesser<'p>(
        &self,
        part: &'p mut Part,
        key: (Box<str>, Source),
        now: Instant,
    ) -> Option<&'p mut Guesser> {
        if !part.contains_key(&key) {
            let before = part.len();
            part.retain(|_, one| !one.is_quiet(now));
            if part.len() >= PART_MAX {
                let idle = part.iter().filter(|(_, one)| one.waiting.is_empty());
                let oldest = idle.min_by_key(|(_, one)| one.last).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| part.remove(&oldest));
            }
            self.pairs.fetch_sub(before - part.len(), Ordering::Release);
            if part.len() >= PART_MAX {
                return None;
            }
        }
        Some(part.entry(key).or_insert_with(|| {
            self.pairs.fetch_add(1, Ordering::Release);
            Guesser {
                failures: 0,
                last: now,
                next: now,
                waiting: BTreeMap::new(),
                reported: None,
                wrong: 0,
                refused: 0,
            }
        }))
    }

    fn report(&self, attempt: Attempt<'_>, guesser: &mut Guesser, now: Instant) {
        let is_due = match guesser.reported {
            Some(at) => now - at >= REPORT_EVERY,
            None => guesser.failures >= REPORT_FROM,
        };
        if is_due && self.may_report(now) {
            guesser.reported = Some(now);
            let (wrong, refused) =
                (std::mem::take(&mut guesser.wrong), std::mem::take(&mut guesser.refused));
            let Attempt { service, source, .. } = attempt;
            (self.report)(Report { service, source, wrong, refused });
        }
    }

    fn may_report(&self, now: Instant) -> bool {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if now - reports.0 >= REPORT_EVERY {
            *reports = (now, 0);
        }
        reports.1 += 1;
        reports.1 <= REPORTS
    }

    fn part(&self, attempt: Attempt<'_>) -> MutexGuard<'_, Part> {
        let hash = self.hasher.hash_one((attempt.service, attempt.source));
        let [low, ..] = hash.to_le_bytes();
        self.parts[usize::from(low) % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guesser {
    /// Whether the pause starts again at [`FIRST`].
    fn is_quiet(&self, now: Instant) -> bool {
        self.waiting.is_empty() && now - self.last >= FORGET
    }

    fn forget(&mut self) {
        (self.failures, self.wrong, self.refused) = Default::default();
        self.reported = None;
    }
}

/// The place of a waiting request. Dropping it gives the turn to the next youngest.
struct Queued<'b> {
    brake: &'b Brake,
    attempt: Attempt<'b>,
    number: u64,
    sign: Arc<Notify>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.brake.waiting.fetch_sub(1, Ordering::Relaxed);
        let key = (Box::from(self.attempt.service), self.attempt.source.clone());
        let mut part = self.brake.part(self.attempt);
        let Some(guesser) = part.get_mut(&key) else { return };
        guesser.waiting.remove(&self.number);
        if let Some((last, sign)) = guesser.waiting.last_key_value()
            && *last < self.number
        {
            sign.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::advance;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn source(n: u32) -> &'static Source {
        let address = std::net::IpAddr::V4(std::net::Ipv4Addr::from_bits(n));
        Box::leak(Box::new(address.into()))
    }

    fn attempt(n: u32, is_right: bool) -> Attempt<'static> {
        Attempt { service: "web", source: source(n), is_right, is_known: false }
    }

    /// Wrong and refused guesses of each report.
    type Reports = Arc<Mutex<Vec<(u64, u64)>>>;

    fn brake() -> (Arc<Brake>, Reports) {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&reports);
        let report = move |report: Report<'_>| {
            assert_eq!(report.service, "web");
            to.lock().unwrap().push((report.wrong, report.refused));
        };
        (Brake::new(report), reports)
    }

    /// The outcome of an attempt, and its delay in milliseconds.
    async fn ask(brake: &Brake, attempt: Attempt<'_>) -> (Judgement, u128) {
        let start = Instant::now();
        (brake.judge(attempt, PATIENCE).await, start.elapsed().as_millis())
    }

    /// Lets the tasks of a test run.
    async fn settle() {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    #[test]
    fn failures_wait_twice_as_long_each_time_and_invented_keys_cost_bounded_memory() {
        let (mut failures, now) = (Failures::new(100, 3), std::time::Instant::now());
        let pauses = [(); 5].map(|()| failures.count(1, now).as_millis());
        assert_eq!(pauses, [100, 200, 400, 800, 800]);
        assert_eq!(failures.count(1, now + FORGET), FIRST, "after a quiet minute");
        for key in 0..1000 {
            failures.count(key, now);
            assert!(failures.len() <= 100);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_passwords_one_after_the_other_wait_longer_and_a_right_one_does_not() {
        let (brake, reports) = brake();
        for milliseconds in [100, 200, 400, 800, 1600, 1600] {
            assert_eq!(ask(&brake, attempt(1, false)).await, (Judgement::Wrong, milliseconds));
            assert_eq!(ask(&brake, attempt(1, true)).await, (Judgement::Right, 0));
            assert_eq!(ask(&brake, attempt(2, true)).await, (Judgement::Right, 0));
        }
        assert_eq!(*reports.lock().unwrap(), [(3, 0)]);
        assert_eq!(ask(&brake, attempt(2, false)).await, (Judgement::Wrong, 100), "another source");
        let other = Attempt { service: "other", ..attempt(1, false) };
        assert_eq!(ask(&brake, other).await, (Judgement::Wrong, 100), "another service");
        advance(FORGET).await;
        assert_eq!(ask(&brake, attempt(1, false)).await, (Judgement::Wrong, 100), "a quiet minute");
        assert_eq!(*reports.lock().unwrap(), [(3, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_side_by_side_are_as_slow_as_one_after_the_other_whatever_their_outcome() {
        let (brake, _) = brake();
        let mut guesses = JoinSet::new();
        for n in 0..1000 {
            let brake = Arc::clone(&brake);
            // One of the guesses is correct, and is not revealed sooner.
            guesses.spawn(async move { ask(&brake, attempt(1, n == 500)).await });
        }
        settle().await;
        advance(Duration::from_secs(20)).await;
        let mut judgements = Vec::new();
        for _ in 0..40 {
            settle().await;
            advance(Duration::from_millis(100)).await;
            while let Some(one) = guesses.try_join_next() {
                judgements.push(one.unwrap().0);
            }
        }
        assert!(judgements.len() <= 20, "{judgements:?}");
        guesses.shutdown().await;
        assert_eq!(brake.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_behind_the_address_of_a_guesser_has_the_next_turn() {
        let (brake, reports) = brake();
        let guesses = Rc::new(std::cell::Cell::new(0));
        let local = tokio::task::LocalSet::new();
        for _ in 0..500 {
            let (brake, guesses) = (Arc::clone(&brake), Rc::clone(&guesses));
            local.spawn_local(async move {
                loop {
                    // Each response triggers the next guess.
                    if ask(&brake, attempt(1, false)).await.0 == Judgement::Wrong {
                        guesses.set(guesses.get() + 1);
                    }
                }
            });
        }
        local
            .run_until(async {
                tokio::time::sleep(Duration::from_millis(20_050)).await;
                let (before, start) = (guesses.get(), Instant::now());
                assert!((12..=18).contains(&before), "{before} guesses in 20 s");
                assert_eq!(ask(&brake, attempt(1, true)).await.0, Judgement::Right);
                assert!(start.elapsed() <= LONGEST, "{:?}", start.elapsed());
                assert_eq!(ask(&brake, attempt(2, true)).await, (Judgement::Right, 0));
                let known = Attempt { is_known: true, ..attempt(1, true) };
                assert_eq!(ask(&brake, known).await, (Judgement::Right, 0));
                tokio::time::sleep(Duration::from_secs(60)).await;
                let reports = reports.lock().unwrap();
                assert_eq!((reports.len(), reports[0]), (2, (3, 0)));
                assert!(reports[1].0 > 30 && reports[1].1 >= 490, "{reports:?}");
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_turn_is_refused_unjudged() {
        let (brake, _) = brake();
        let guess = |is_right| {
            let brake = Arc::clone(&brake);
            async move { brake.judge(attempt(1, is_right), Duration::from_millis(20)).await }
        };
        let first = tokio::spawn(guess(false));
        settle().await;
        assert_eq!(guess(true).await, Judgement::Busy);
        assert_eq!(guess(false).await, Judgement::Busy);
        assert_eq!(first.await.unwrap(), Judgement::Wrong);
        // An abandoned place passes the turn on.
        let mut all = Vec::new();
        for is_right in [false, true, true] {
            let brake = Arc::clone(&brake);
            all.push(tokio::spawn(async move { ask(&brake, attempt(1, is_right)).await }));
            settle().await;
        }
        all.pop().unwrap().abort();
        assert_eq!(all.pop().unwrap().await.unwrap(), (Judgement::Right, 200));
    }

    #[tokio::test(start_paused = true)]
    async fn invented_sources_cost_bounded_memory() {
        let (brake, _) = brake();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for n in 0..20_000 {
            let mut guess = std::pin::pin!(brake.judge(attempt(n, false), PATIENCE));
            assert!(guess.as_mut().poll(&mut context).is_pending());
        }
        let entries = || brake.parts.iter().map(|part| part.lock().unwrap().len()).sum::<usize>();
        assert!(entries() <= PARTS * PART_MAX, "{}", entries());
        assert_eq!(entries(), brake.pairs.load(Ordering::Relaxed));
        assert_eq!(brake.waiting.load(Ordering::Relaxed), 0);
        advance(FORGET).await;
        (0..1000).for_each(|n| {
            let mut guess = std::pin::pin!(brake.judge(attempt(n, false), PATIENCE));
            assert!(guess.as_mut().poll(&mut context).is_pending());
        });
        assert!(entries() <= 1000);
    }
}
