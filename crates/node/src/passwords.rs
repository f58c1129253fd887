//! The checks of passwords against hashes: a single thread of the process, apart from the workers.
//!
//! A check takes up to 0.3 s and 64 MiB. One thread bounds what all visitors together can make the
//! process spend. Services take turns, so a flood at one service delays a check of another by at
//! most one check. The number of waiting checks is bounded per source, per service and in total;
//! checks beyond a bound are refused at once.
//!
//! A correct password is cached briefly, by a keyed hash of the pair and the edition of the
//! service, so that the requests of a page cost one check. Waiting requests with the same pair
//! share one check.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem, panic, thread};

use link::ProcessBudget;
use tokio::sync::oneshot;
use web::Candidate;

/// Maximum waiting checks of one source at one service: a browser requests about as many files of a
/// page before the first response.
const OF_SOURCE: usize = 4;

/// Maximum waiting checks of one service: 32 of the slowest take 10 s, which is about as long as a
/// user waits.
const OF_SERVICE: usize = 32;

/// Maximum waiting checks in total.
const OF_ALL: usize = 256;

/// Maximum requests with the same pair that share one check.
const SAME: usize = 128;

/// How long a correct password is cached. A changed hash has a new edition and thus another
/// fingerprint.
const MEMORY: Duration = Duration::from_secs(60);

/// Maximum cached correct passwords, at 40 bytes each.
const REMEMBERED: usize = 4096;

/// The service, and the fingerprint of a pair at an edition of it.
type Print = (u64, u64);

/// The service and the source of a check. For a visitor without a source, only the bound of the
/// service applies.
type Place = (u64, Option<IpAddr>);

/// The immediate result of a request for a check.
#[derive(Debug)]
pub enum Turn {
    /// The cache has the password as correct.
    Right,
    /// The outcome follows. An error: the check was abandoned, because memory was short.
    Later(oneshot::Receiver<bool>, Ticket),
    /// Too many checks of this source are waiting.
    SourceBusy,
    /// Too many checks are waiting.
    Busy,
}

/// The checks of the process.
pub struct Passwords {
    state: Mutex<State>,
    more: Condvar,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    is_started: bool,
    /// The services with waiting checks, in the order of their turns.
    turns: VecDeque<u64>,
    waiting: HashMap<u64, VecDeque<Job>>,
    total: usize,
    /// The pending checks of each source at each service, including those whose outcome the visitor
    /// has not read.
    sources: HashMap<Place, usize>,
    right: HashMap<Print, Instant>,
}

/// A check.
struct Job {
    print: Print,
    candidate: Candidate,
    budget: Arc<ProcessBudget>,
    replies: Vec<oneshot::Sender<bool>>,
}

/// Counts as a pending check of the source until dropped.
pub struct Ticket(&'static Passwords, Option<Place>);

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(place) = self.1 else { return };
        let mut state = self.0.lock();
        if let Some(count) = state.sources.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                state.sources.remove(&place);
            }
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").finish_non_exhaustive()
    }
}

/// The checks of this process.
pub fn passwords() -> &'static Passwords {
    static ALL: OnceLock<Passwords> = OnceLock::new();
    ALL.get_or_init(Passwords::default)
}

impl Default for Passwords {
    fn default() -> Self {
        Self { state: Mutex::default(), more: Condvar::new() }
    }
}

impl Passwords {
    /// Requests a check. `edition`: of the service, which changes with its hashes.
    pub fn ask(
        &'static self,
        service: u64,
        edition: u64,
        source: Option<IpAddr>,
        candidate: Candidate,
        budget: &Arc<ProcessBudget>,
    ) -> Turn {
        let print = candidate.fingerprint(edition);
        let mut state = self.lock();
        let now = Instant::now();
        if state.right.get(&print).is_some_and(|since| now - *since < MEMORY) {
            return Turn::Right;
        }
        let place = source.map(|_| (service, source));
        let of_source = place.and_then(|place| state.sources.get(&place).copied()).unwrap_or(0);
        let (reply, outcome) = oneshot::channel();
        let jobs = state.waiting.entry(service).or_default();
        let count = jobs.len();
        if let Some(same) = jobs.iter_mut().find(|job| job.print == print) {
            if same.replies.len() >= SAME {
                return Turn::Busy;
            }
            same.replies.push(reply);
            return Turn::Later(outcome, Ticket(self, None));
        }
        let refused = if of_source >= OF_SOURCE {
            Some(Turn::SourceBusy)
        } else {
            (count >= OF_SERVICE || state.total >= OF_ALL).then_some(Turn::Busy)
        };
        let refused = refused.or_else(|| self.start(&mut state).is_err().then_some(Turn::Busy));
        if let Some(refused) = refused {
            if count == 0 {
                state.waiting.remove(&service);
            }
            return refused;
        }
        if count == 0 {
            state.turns.push_back(service);
        }
        let replies = vec![reply];
        let job = Job { print, candidate, budget: Arc::clone(budget), replies };
        state.waiting.entry(service).or_default().push_back(job);
        state.total += 1;
        if let Some(place) = place {
            *state.sources.entry(place).or_default() += 1;
        }
        drop(state);
        self.more.notify_one();
        Turn::Later(outcome, Ticket(self, place))
    }

    /// Starts the thread on the first check.
    fn start(&'static self, state: &mut State) -> io::Result<()> {
        if !state.is_started {
            let thread = thread::Builder::new().name("tunnel-passwords".to_owned());
            thread.spawn(|| self.run())?;
            state.is_started = true;
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            let Job { print, candidate, budget, replies } = self.next();
            // The memory of a check is not charged to a worker. Visitors are refused if it is
            // short.
            let Some(_held) = budget.take(candidate.memory()) else { continue };
            // A panic in a library ends only this check; the panic hook has logged it.
            let checked = panic::catch_unwind(panic::AssertUnwindSafe(|| candidate.is_right()));
            let Ok(is_right) = checked else { continue };
            if is_right {
                self.lock().remember(print);
            }
            for reply in replies {
                // The visitor may have disconnected.
                let _ = reply.send(is_right);
            }
        }
    }

    /// The next check: the oldest check of the service whose turn it is.
    fn next(&self) -> Job {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.next() {
                return job;
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<Job> {
        while let Some(service) = self.turns.pop_front() {
            let Some(jobs) = self.waiting.get_mut(&service) else { continue };
            let job = jobs.pop_front();
            if jobs.is_empty() {
                self.waiting.remove(&service);
            } else {
                self.turns.push_back(service);
            }
            let Some(mut job) = job else { continue };
            self.total -= 1;
            // Visitors that no longer wait for the outcome are dropped.
            job.replies.retain(|reply| !reply.is_closed());
            if !job.replies.is_empty() {
                return Some(job);
            }
        }
        None
    }

    fn remember(&mut self, print: Print) {
        let now = Instant::now();
        if self.right.len() >= REMEMBERED {
            self.right.retain(|_, since| now - *since < MEMORY);
            if self.right.len() >= REMEMBERED {
                drop(mem::take(&mut self.right));
            }
        }
        self.right.insert(print, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The empty password, of OpenWall's test vectors.
    const HASH: &str = "u:$2b$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy";

    fn candidate(password: &str) -> Candidate {
        web::candidate(HASH, password).unwrap()
    }

    /// Checks without a thread that performs them.
    fn idle() -> &'static Passwords {
        let all: &'static Passwords = Box::leak(Box::default());
        all.lock().is_started = true;
        all
    }

    fn source(n: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, n]))
    }

    fn ask(all: &'static Passwords, service: u64, from: Option<IpAddr>, password: &str) -> Turn {
        all.ask(service, 1, from, candidate(password), &ProcessBudget::new(1 << 30))
    }

    #[test]
    fn what_waits_is_bounded_for_each_source_each_service_and_in_all() {
        let all = idle();
        let mut kept: Vec<Turn> =
            (0..OF_SOURCE).map(|n| ask(all, 1, source(1), &n.to_string())).collect();
        assert!(kept.iter().all(|asked| matches!(asked, Turn::Later(..))));
        assert!(matches!(ask(all, 1, source(1), "more"), Turn::SourceBusy));
        // The same pair is checked once, and takes no additional place.
        kept.push(ask(all, 1, source(1), "0"));
        assert!(matches!(kept.last(), Some(Turn::Later(..))));
        assert_eq!(all.lock().total, OF_SOURCE);
        // Another source, and the same source at another service.
        kept.push(ask(all, 1, source(2), "x"));
        kept.push(ask(all, 2, source(1), "x"));
        assert_eq!(all.lock().total, OF_SOURCE + 2);
        for n in 0..100 {
            kept.push(ask(all, 1, None, &format!("n{n}")));
        }
        assert_eq!(all.lock().waiting[&1].len(), OF_SERVICE);
        assert!(matches!(kept.last(), Some(Turn::Busy)));
        for service in 3..100 {
            for n in 0..OF_SERVICE {
                kept.push(ask(all, service, None, &format!("n{n}")));
            }
        }
        assert_eq!(all.lock().total, OF_ALL);
        // Visitors that have disconnected free their places.
        drop(kept);
        assert!(all.lock().next().is_none());
        let state = all.lock();
        assert!(state.waiting.is_empty() && state.sources.is_empty() && state.total == 0);
    }

    #[test]
    fn services_take_turns() {
        let all = idle();
        let mut kept: Vec<_> = (0..8).map(|n| ask(all, 1, None, &n.to_string())).collect();
        kept.push(ask(all, 2, None, "a"));
        let order: Vec<_> = std::iter::from_fn(|| all.lock().next().map(|job| job.print)).collect();
        let second = candidate("a").fingerprint(1);
        assert_eq!((order.len(), order.iter().position(|print| *print == second)), (9, Some(1)));
    }

    #[test]
    fn a_right_password_is_remembered_for_its_edition_and_a_wrong_one_is_not() {
        let all: &'static Passwords = Box::leak(Box::default());
        let budget = ProcessBudget::new(1 << 30);
        let ask = |edition, password: &str| {
            let asked = all.ask(1, edition, source(1), candidate(password), &budget);
            match asked {
                Turn::Right => (true, true),
                Turn::Later(outcome, _ticket) => (false, outcome.blocking_recv().unwrap()),
                Turn::SourceBusy | Turn::Busy => panic!("busy"),
            }
        };
        assert_eq!(ask(1, ""), (false, true));
        assert_eq!(ask(1, ""), (true, true), "from memory");
        assert_eq!(ask(2, ""), (false, true), "the hashes may have changed");
        assert_eq!(ask(1, "wrong"), (false, false));
        assert_eq!(ask(1, "wrong"), (false, false));
        assert_eq!(all.lock().right.len(), 2);
    }

    #[test]
    fn a_check_without_memory_is_given_up() {
        let all: &'static Passwords = Box::leak(Box::default());
        let asked = all.ask(1, 1, None, candidate(""), &ProcessBudget::new(1 << 10));
        let Turn::Later(outcome, _ticket) = asked else { panic!("not asked") };
        assert!(outcome.blocking_recv().is_err());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let all = idle();
        for n in 0..3 * REMEMBERED as u64 {
            all.lock().remember((n, n));
        }
        assert!(all.lock().right.len() <= REMEMBERED);
    }
}
