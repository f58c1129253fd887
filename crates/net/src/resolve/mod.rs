//! Lookups of names that cannot starve each other.
//!
//! A silent name server holds a lookup for seconds. A client that chooses the names could therefore
//! take all places of a common pool. A [`Resolver`] puts a queue for each account in front of the
//! places:
//!
//! ```text
//!   account A: queue of names --+   by turns        places of the resolver
//!   account B: queue of names --+--------------->   one lookup each, as tasks of one thread
//!   account C: queue of names --+   each account has a bounded number of lookups under way
//! ```
//!
//! Lookups of the same name share a place. A queued lookup whose callers have all gone is dropped;
//! a lookup that is under way goes on, because its answer serves the next caller. What is known
//! passes the queue by: answers are kept for seconds (`stub/cache.rs`), and `localhost` and
//! addresses need no lookup. The lookups are those of a resolver of our own (`stub`), the same in
//! each build: musl asks all name servers at once and takes the first word, and the C library of
//! GNU waits 5 s for a silent server each time anew.

mod answer;
mod literal;
mod names;
mod queue;
mod stub;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::task::spawn_blocking;

use answer::Failure;
use queue::{Job, Queue};
use stub::{LookupFiles, Sockets, Stub};

/// The bounds of a [`Resolver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lookups under way, for all accounts together. Each takes two descriptors, and two more for
    /// each further name server that is asked.
    pub under_way: usize,
    /// Lookups under way for one account.
    pub at_once: usize,
    /// Names that wait, for one account.
    pub queued: usize,
}

impl Bounds {
    /// The bounds for names that the configuration names. A name has an account of its own, so a
    /// name that hangs holds one place.
    pub const OWN: Self = Self { under_way: 64, at_once: 1, queued: 1 };

    /// The bounds for names that clients choose, where `reserve` descriptors are kept for lookups
    /// and other short work: at most 64 lookups, at most 8 of one client, and 256 names that wait.
    /// A browser that opens a page asks for fewer names.
    #[must_use]
    pub fn of_clients(reserve: usize) -> Self {
        let under_way = (reserve / 8).clamp(4, 64);
        Self { under_way, at_once: (under_way / 4).clamp(1, 8), queued: 256 }
    }
}

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Looks names up for accounts. Clones share the queue and what is known of names.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    bounds: Bounds,
    source: Source,
    state: Mutex<State>,
}

/// Where answers come from.
enum Source {
    /// The files and name servers of the system.
    Stub(Arc<Stub<Sockets>>),
    /// A function, which may block.
    Function(Arc<LookUp>),
}

#[derive(Default)]
struct State {
    queue: Queue,
    under_way: usize,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resolver").field(&self.0.bounds).finish()
    }
}

impl Resolver {
    /// A resolver that asks as the files of the system say, and keeps answers of its own: what is
    /// asked at one resolver does not push out what another one knows.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self::of(bounds, Source::Stub(Arc::new(Stub::new(LookupFiles::of_system(), Sockets))))
    }

    /// A resolver that asks `look_up` instead of the system, on a thread that may block, and keeps
    /// no answer.
    pub fn with(
        bounds: Bounds,
        look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self::of(bounds, Source::Function(Arc::new(look_up)))
    }

    fn of(bounds: Bounds, source: Source) -> Self {
        Self(Arc::new(Shared { bounds, source, state: Mutex::default() }))
    }

    /// Returns the addresses of `host`; there is at least one. The lookup belongs to `account`.
    ///
    /// Dropping the future gives the lookup up: a lookup that waits is dropped, a lookup that is
    /// under way stays under way and counts until it ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] where the name does not exist or has no address. The error of
    /// the system where it has no descriptor. [`io::ErrorKind::QuotaExceeded`] when the account has
    /// as many waiting names as it may have. [`io::ErrorKind::Other`] when no name server answers.
    /// The text names the servers.
    pub async fn look_up(&self, account: &str, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Source::Stub(stub) = &self.0.source
            && let Some(answer) = stub.known(host)
        {
            return answer.map_err(Failure::again);
        }
        let mut answer = {
            let mut state = self.0.lock();
            let answer = state.queue.join(account, host, self.0.bounds)?;
            self.0.staff(&mut state)?;
            answer
        };
        let gone = || io::Error::other("the resolver gave no answer");
        let answered = answer.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
        let found = answered.ok_or_else(gone)?.map_err(Failure::again)?;
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

    /// Begins the lookups that may begin now.
    fn staff(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let names = names::handle()?;
        while state.under_way < self.bounds.under_way
            && let Some(job) = state.queue.next(self.bounds)
        {
            state.under_way += 1;
            names.spawn(Arc::clone(self).run(job));
        }
        Ok(())
    }

    /// One lookup.
    async fn run(self: Arc<Self>, job: Job) {
        let end = End { shared: &self, job: &job };
        let found = match &self.source {
            Source::Stub(stub) => stub.look_up(&job.host).await,
            Source::Function(look_up) => {
                let (look_up, host) = (Arc::clone(look_up), Arc::clone(&job.host));
                let found = spawn_blocking(move || look_up(&host)).await;
                let found = found.map_err(io::Error::other).flatten();
                found.map_err(|error| Failure::new(&error))
            }
        };
        // First the queue, so that a caller finds its place free.
        drop(end);
        job.answer.send_replace(Some(found));
    }
}

/// Ends a lookup in the queue, also when the lookup panics.
struct End<'a> {
    shared: &'a Arc<Shared>,
    job: &'a Job,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.under_way -= 1;
        state.queue.done(self.job, self.shared.bounds);
        // The thread is there: this lookup ran on it.
        let _ = self.shared.staff(&mut state);
    }
}

/// The name servers of this machine, in the order in which they are asked (resolv.conf(5)).
#[must_use]
pub fn name_servers() -> Vec<SocketAddr> {
    LookupFiles::of_system().conf().servers
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

    /// Returns the addresses of `host`; there is at least one. An IP address is its own address, in
    /// each form that inet_aton(3) reads. `localhost` and the names below it have both loopback
    /// addresses, IPv4 first. Neither needs a lookup: RFC 6761 section 6.3 asks for that, and a
    /// container may be without `/etc/hosts`.
    ///
    /// # Errors
    /// As [`Resolver::look_up`].
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Some(ip) = literal::address(host) {
            return Ok(vec![ip]);
        }
        if literal::is_localhost(host) {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let host = &*lower(host);
        self.resolver.look_up(self.account.as_deref().unwrap_or(host), host).await
    }

    /// Tells that no address of `host` could be connected to: the next caller looks the name up
    /// anew. A container that was started again has another address.
    pub fn forget(&self, host: &str) {
        if let Source::Stub(stub) = &self.resolver.0.source {
            stub.forget(&lower(host));
        }
    }

    /// As [`Self::resolve`], for code that is not async and may wait.
    ///
    /// # Errors
    /// As [`Resolver::look_up`].
    pub fn resolve_blocking(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let (answer, answered) = sync_channel(1);
        let (lookups, host) = (self.clone(), host.to_owned());
        names::handle()?.spawn(async move {
            // The caller waits.
            let _ = answer.send(lookups.resolve(&host).await);
        });
        answered.recv().map_err(io::Error::other)?
    }
}

/// Names are the same in upper and lower case.
fn lower(host: &str) -> Cow<'_, str> {
    if host.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Self::of_targets()
    }
}

#[cfg(test)]
mod tests;
