//! Lookups of names that cannot starve each other.
//!
//! `getaddrinfo(3)` blocks a thread and cannot be cancelled: a silent name server holds the thread
//! for the whole time-out of the system's resolver, which is 5 to 60 s. A client that chooses the
//! names could therefore take all threads of a common pool. A [`Resolver`] has threads of its own,
//! and puts a queue for each account in front of them:
//!
//! ```text
//!   account A: queue of names --+   by turns        threads of the resolver
//!   account B: queue of names --+--------------->   getaddrinfo(3), one lookup each
//!   account C: queue of names --+   each account has a bounded number of lookups under way
//! ```
//!
//! Lookups of the same name for the same account share one call. A queued lookup whose callers have
//! all gone is dropped. No answer is cached, because only the system's resolver knows how long an
//! answer is valid. The system's resolver is used rather than a resolver of our own, because names
//! may come from `/etc/hosts`, mDNS or LDAP as well (`nsswitch.conf(5)`).

mod answer;
mod queue;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use answer::Failure;
use queue::{Job, Queue};

/// A thread without work ends after this time. A visitor of a web page looks up all names of the
/// page within seconds.
const IDLE: Duration = Duration::from_secs(10);

/// The bounds of a [`Resolver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lookups under way, for all accounts together. Each takes a thread and up to two descriptors.
    pub threads: usize,
    /// Lookups under way for one account.
    pub at_once: usize,
    /// Names that wait, for one account.
    pub queued: usize,
}

impl Bounds {
    /// The bounds for names that the configuration names. A name has an account of its own, so a
    /// name that hangs holds one thread.
    pub const OWN: Self = Self { threads: 64, at_once: 1, queued: 1 };

    /// The bounds for names that clients choose, where `reserve` descriptors are kept for lookups
    /// and other short work: at most 64 lookups, at most 8 of one client, and 256 names that wait.
    /// A browser that opens a page asks for fewer names.
    #[must_use]
    pub fn of_clients(reserve: usize) -> Self {
        let threads = (reserve / 4).clamp(4, 64);
        Self { threads, at_once: (threads / 4).clamp(1, 8), queued: 256 }
    }
}

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// A pool of threads that look names up. Clones share the pool.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    bounds: Bounds,
    look_up: Box<LookUp>,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: Queue,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resolver").field(&self.0.bounds).finish()
    }
}

impl Resolver {
    /// A resolver with threads of its own. The threads start when they are needed.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self::with(bounds, system)
    }

    /// A resolver that asks `look_up` instead of the system.
    pub fn with(
        bounds: Bounds,
        look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        let (state, work) = Default::default();
        Self(Arc::new(Shared { bounds, look_up: Box::new(look_up), state, work }))
    }

    /// Returns the addresses of `host`; there is at least one. The lookup belongs to `account`.
    ///
    /// Dropping the future gives the lookup up: a lookup that waits is dropped, a lookup that is
    /// under way stays under way and counts until the system answers.
    ///
    /// # Errors
    /// The error of the system, or [`io::ErrorKind::QuotaExceeded`] when the account has as many
    /// waiting names as it may have.
    pub async fn look_up(&self, account: &str, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut answer = {
            let mut state = self.0.lock();
            let answer = state.queue.join(account, host, self.0.bounds)?;
            self.0.staff(&mut state)?;
            answer
        };
        let gone = || io::Error::other("the resolver gave no answer");
        let told = answer.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
        let found = told.ok_or_else(gone)?.map_err(Failure::again)?;
        if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
    }

    /// The number of lookups under way.
    #[cfg(test)]
    fn under_way(&self) -> usize {
        self.0.lock().queue.under_way()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes or starts a thread for work that can begin now.
    fn staff(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.queue.is_ready() && state.idle == 0 && state.threads < self.bounds.threads {
            let shared = Arc::clone(self);
            let started = thread::Builder::new().name("names".to_owned());
            match started.spawn(move || shared.run()) {
                Ok(_) => state.threads += 1,
                // The present threads will come to the lookup.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err(error),
            }
        }
        if state.queue.is_ready() {
            self.work.notify_one();
        }
        Ok(())
    }

    /// The life of a thread.
    fn run(self: &Arc<Self>) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.next(self.bounds) {
                // Two lookups may have woken this one thread.
                let _ = self.staff(&mut state);
                drop(state);
                let end = End { shared: self, job: &job };
                let found = (self.look_up)(&job.host).map_err(|e| Failure::new(&e));
                // First the queue, so that a caller finds its place free.
                drop(end);
                job.answer.send_replace(Some(found));
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (guard, wait) =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if wait.timed_out() && !state.queue.is_ready() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Ends a lookup in the queue, also when the lookup panics.
struct End<'a> {
    shared: &'a Shared,
    job: &'a Job,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.queue.done(self.job, self.shared.bounds);
        if thread::panicking() {
            state.threads -= 1;
        }
    }
}

/// Asks the system.
fn system(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// A resolver, and the account on which it looks names up.
#[derive(Clone, Debug)]
pub struct Lookups {
    resolver: Resolver,
    /// `None`: each name is an account of its own.
    account: Option<Arc<str>>,
}

impl Lookups {
    /// Lookups on `account`.
    #[must_use]
    pub fn on(resolver: &Resolver, account: &str) -> Self {
        Self { resolver: resolver.clone(), account: Some(account.into()) }
    }

    /// Lookups of the names of targets that the configuration of this process names.
    #[must_use]
    pub fn of_targets() -> Self {
        static TARGETS: OnceLock<Resolver> = OnceLock::new();
        Self { resolver: TARGETS.get_or_init(|| Resolver::new(Bounds::OWN)).clone(), account: None }
    }

    /// Lookups of the names of servers and services that this process itself needs.
    #[must_use]
    pub fn of_servers() -> Self {
        static SERVERS: OnceLock<Resolver> = OnceLock::new();
        Self { resolver: SERVERS.get_or_init(|| Resolver::new(Bounds::OWN)).clone(), account: None }
    }

    /// Returns the addresses of `host`; there is at least one. An IP address is its own address, and
    /// `localhost` has both loopback addresses, IPv4 first. Neither needs a lookup: RFC 6761 section
    /// 6.3 asks for that, and a container may be without `/etc/hosts`.
    ///
    /// # Errors
    /// As [`Resolver::look_up`].
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![ip]);
        }
        if host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        self.resolver.look_up(self.account.as_deref().unwrap_or(host), host).await
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Self::of_targets()
    }
}

#[cfg(test)]
mod tests;
