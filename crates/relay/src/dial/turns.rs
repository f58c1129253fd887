//! Schedules the dials of a worker. Each account (a client on a server, a service on a client) has
//! a bounded number of dials in progress; its other dials wait in a queue of the account.
//!
//! connect(2) can be slow, and it blocks the worker. The usual cause is the search for a local
//! port: from 14,000 connections to one address on, half of the port range is used up, and the
//! kernel tries every port of that half first (1 to 20 ms instead of 0.03 ms, Linux 6.18). An
//! account with slow dials therefore pauses after each of them, which leaves most of the time to
//! other accounts.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use proto::Budget;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::{DialError, Dialled, TargetAddr};

/// The maximum number of dials of an account in progress on one worker. Starting all of them in one
/// turn of the worker takes 10 ms (0.03 ms each). Targets that never answer hold a slot until the
/// time-out.
const AT_ONCE: usize = 256;

/// The maximum number of dials of an account that wait or are in progress on one worker: 32 MiB.
/// One large read holds opening frames for 5,000 streams.
const MOST: usize = 16_384;

/// The dials of an account on one worker take at most the memory budget divided by this number. The
/// stream of each dial takes up to eight times as much, so two workers leave three quarters of the
/// budget to others: an exhausted budget refuses their visitors.
const SHARE: u64 = 64;

/// The minimum of the bound on waiting and active dials, however small the budget is: four times
/// [`AT_ONCE`].
const FEW: usize = 4 * AT_ONCE;

/// Memory of a dial in bytes: two tasks, the address, a socket.
const COST: u64 = 2 << 10;

/// A step of a dial that takes longer is slow. A usual step takes a tenth of this.
const SLOW: Duration = Duration::from_millis(1);

/// The pause after a slow step, as a multiple of the step's duration. So all accounts with slow
/// dials use at most a fifth of the worker's time.
const PAUSE: u32 = 4;

/// The dials of one worker.
#[derive(Clone, Default)]
pub struct Dials(Rc<Shared>);

#[derive(Default)]
struct Shared {
    accounts: RefCell<HashMap<String, Weak<Account>>>,
    budget: Option<Rc<dyn Budget>>,
    most: Option<usize>,
}

impl fmt::Debug for Dials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dials").field(&self.0.accounts.borrow().len()).finish()
    }
}

impl Dials {
    /// Charges the memory of dials to this budget.
    pub fn charged_to(budget: Rc<dyn Budget>) -> Self {
        let share = usize::try_from(budget.total() / SHARE / COST).unwrap_or(usize::MAX);
        let most = Some(share.clamp(FEW, MOST));
        Self(Rc::new(Shared { accounts: RefCell::default(), budget: Some(budget), most }))
    }

    /// Returns the account with this name. Equal names share an account.
    #[must_use]
    pub fn of(&self, name: &str) -> DialAccount {
        let mut accounts = self.0.accounts.borrow_mut();
        if let Some(known) = accounts.get(name).and_then(Weak::upgrade) {
            return DialAccount(known);
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let new = Rc::new(Account::new(&self.0));
        accounts.insert(name.to_owned(), Rc::downgrade(&new));
        DialAccount(new)
    }
}

impl Shared {
    /// The number of pausing accounts.
    fn pausing(&self, now: Instant) -> usize {
        let accounts = self.accounts.borrow();
        let pauses = |account: &Weak<Account>| account.upgrade().is_some_and(|a| a.pauses(now));
        accounts.values().filter(|account| pauses(account)).count()
    }
}

/// The dials of one account on one worker. Clones refer to the same account; the default is a
/// separate account.
#[derive(Clone)]
pub struct DialAccount(Rc<Account>);

impl Default for DialAccount {
    fn default() -> Self {
        Self(Rc::new(Account::new(&Rc::default())))
    }
}

impl fmt::Debug for DialAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DialAccount").field(&self.0.dials.get()).finish()
    }
}

struct Account {
    shared: Rc<Shared>,
    places: Semaphore,
    /// Dials that wait or are in progress.
    dials: Cell<usize>,
    /// No dial begins before this time.
    pause: Cell<Option<Instant>>,
}

impl Account {
    fn new(shared: &Rc<Shared>) -> Self {
        Self {
            shared: Rc::clone(shared),
            places: Semaphore::new(AT_ONCE),
            dials: Cell::new(0),
            pause: Cell::new(None),
        }
    }

    fn pauses(&self, now: Instant) -> bool {
        self.pause.get().is_some_and(|until| until > now)
    }

    /// Records the duration of a step of a dial.
    fn note(&self, spent: Duration) {
        if spent < SLOW {
            return;
        }
        let now = Instant::now();
        let others = self.shared.pausing(now) - usize::from(self.pauses(now));
        let accounts = u32::try_from(others + 1).unwrap_or(u32::MAX);
        self.pause.set(Some(now + spent.saturating_mul(PAUSE.saturating_mul(accounts))));
    }
}

/// A dial that is counted and charged.
struct Counted<'a>(&'a Account);

impl<'a> Counted<'a> {
    fn new(account: &'a Account) -> Option<Self> {
        if account.dials.get() >= account.shared.most.unwrap_or(MOST) {
            return None;
        }
        account.dials.set(account.dials.get() + 1);
        if let Some(budget) = &account.shared.budget {
            budget.charge(COST);
        }
        Some(Self(account))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dials.set(self.0.dials.get() - 1);
        if let Some(budget) = &self.0.shared.budget {
            budget.release(COST);
        }
    }
}

impl DialAccount {
    /// Waits for a slot and dials. The deadline starts now, because the far side waits from now on;
    /// `dial` gets the remaining time.
    ///
    /// # Errors
    /// [`DialError::Busy`] when too many dials of the account wait or no slot is free within the
    /// deadline, or the error of the dial.
    pub(crate) async fn dial<F>(
        &self,
        target: &TargetAddr,
        deadline: Duration,
        dial: impl FnOnce(Duration) -> F,
    ) -> Result<Dialled, DialError>
    where
        F: Future<Output = Result<Dialled, DialError>>,
    {
        let busy = || DialError::Busy(target.clone());
        let account = &*self.0;
        let _counted = Counted::new(account).ok_or_else(busy)?;
        let begin = Instant::now();
        let turn = async {
            let place = account.places.acquire().await;
            while let Some(until) = account.pause.get().filter(|until| *until > Instant::now()) {
                sleep_until(until).await;
            }
            place
        };
        // The semaphore is never closed.
        let Ok(Ok(_place)) = timeout(deadline, turn).await else { return Err(busy()) };
        let mut dial = pin!(dial(deadline.saturating_sub(begin.elapsed())));
        poll_fn(|cx| {
            let step = std::time::Instant::now();
            let polled = dial.as_mut().poll(cx);
            account.note(step.elapsed());
            polled
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    fn target() -> TargetAddr {
        TargetAddr::Tcp { host: "192.0.2.1".into(), port: 81 }
    }

    fn refused() -> Result<Dialled, DialError> {
        Err(DialError::Denied(target()))
    }

    /// A dial to a target that never answers.
    async fn nowhere(account: DialAccount, started: Rc<Cell<usize>>) -> DialError {
        let dial = async |left: Duration| {
            started.set(started.get() + 1);
            timeout(left, pending()).await.unwrap_or_else(|_| Err(DialError::Timeout(target())))
        };
        account.dial(&target(), DEADLINE, dial).await.unwrap_err()
    }

    /// A budget: the charged bytes and the total.
    #[derive(Debug)]
    struct Charged(Cell<u64>, u64);

    impl Budget for Charged {
        fn draw(&self, bytes: u64) -> bool {
            self.charge(bytes);
            true
        }
        fn charge(&self, bytes: u64) {
            self.0.set(self.0.get() + bytes);
        }
        fn release(&self, bytes: u64) {
            self.0.set(self.0.get() - bytes);
        }
        fn left(&self) -> u64 {
            u64::MAX
        }
        fn total(&self) -> u64 {
            self.1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dials_of_an_account_are_bounded_and_charged_and_no_other_account_waits_for_them() {
        let budget = Rc::new(Charged(Cell::new(0), u64::MAX));
        let dials = Dials::charged_to(Rc::<Charged>::clone(&budget));
        let started = Rc::new(Cell::new(0));
        let ends = Rc::new(RefCell::new(Vec::new()));
        LocalSet::new()
            .run_until(async {
                for _ in 0..20_000 {
                    let (started, ends) = (Rc::clone(&started), Rc::clone(&ends));
                    let dial = nowhere(dials.of("loud"), started);
                    spawn_local(async move {
                        let end = dial.await;
                        ends.borrow_mut().push(end);
                    });
                }
                // A `LocalSet` polls 61 tasks at a time.
                for _ in 0..1_000 {
                    yield_now().await;
                }
                // The account pauses after a step in which the thread was descheduled.
                for _ in 0..1_000 {
                    if started.get() == AT_ONCE {
                        break;
                    }
                    tokio::time::sleep(SLOW).await;
                }
                assert_eq!(started.get(), AT_ONCE);
                assert_eq!(ends.borrow().len(), 20_000 - MOST, "these were refused at once");
                assert!(ends.borrow().iter().all(|end| matches!(end, DialError::Busy(_))));
                assert_eq!(budget.0.get(), MOST as u64 * COST);
                let at = Instant::now();
                let quiet = dials.of("quiet").dial(&target(), DEADLINE, async |_| refused()).await;
                assert!(matches!(quiet, Err(DialError::Denied(_))));
                assert_eq!(at.elapsed(), Duration::ZERO);
                tokio::time::sleep(DEADLINE * 2).await;
                assert_eq!(ends.borrow().len(), 20_000, "a wait counts against the deadline");
                assert_eq!(budget.0.get(), 0);
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_with_slow_dials_leaves_most_of_the_time_to_others() {
        let dials = Dials::default();
        let [slow, quick] = ["slow", "quick"].map(|name| dials.of(name));
        let begin = Instant::now();
        for _ in 0..100 {
            // A blocked thread takes real time, not the time of the paused clock.
            let dial = async |_| {
                slow.0.note(Duration::from_millis(20));
                refused()
            };
            slow.dial(&target(), DEADLINE, dial).await.unwrap_err();
            quick.dial(&target(), DEADLINE, async |_| refused()).await.unwrap_err();
        }
        let pauses = begin.elapsed();
        assert!(
            (Duration::from_millis(7_900)..Duration::from_secs(9)).contains(&pauses),
            "{pauses:?}"
        );
        // Two accounts with slow dials share the time.
        let dials = Dials::default();
        let [slow, other, fresh] = ["slow", "other", "fresh"].map(|name| dials.of(name));
        slow.0.note(Duration::from_millis(20));
        other.0.note(Duration::from_millis(20));
        let until = other.0.pause.get().unwrap();
        assert_eq!(until - Instant::now(), Duration::from_millis(160));
        fresh.0.note(SLOW / 2);
        assert!(fresh.0.pause.get().is_none());
    }

    #[test]
    fn the_dials_of_an_account_take_a_part_of_a_small_budget() {
        let of = |total| {
            let budget = Rc::new(Charged(Cell::new(0), total));
            let dials = Dials::charged_to(budget).of("loud");
            let held: Vec<_> = (0..2 * MOST).map_while(|_| Counted::new(&dials.0)).collect();
            held.len()
        };
        assert_eq!([1 << 20, 256 << 20, 8 << 30].map(of), [FEW, 2_048, MOST]);
    }

    #[test]
    fn accounts_without_dials_are_forgotten() {
        let dials = Dials::default();
        let kept = dials.of("kept");
        for n in 0..100 {
            drop(dials.of(&n.to_string()));
        }
        assert!(dials.0.accounts.borrow().len() <= 2);
        assert!(Rc::ptr_eq(&kept.0, &dials.of("kept").0));
    }
}
