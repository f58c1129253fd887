//! Name lookups that cannot starve each other.
//!
//! A silent name server delays a lookup for seconds. A client that chooses the names could
//! therefore occupy all places of a common pool. A [`Resolver`] puts a queue for each account in
//! front of the places:
//!
//! ```text
//!   account A: queue of names --+   by turns        places of the resolver
//!   account B: queue of names --+--------------->   one lookup each, as tasks of one thread
//!   account C: queue of names --+   each account has a bounded number of lookups under way
//! ```
//!
//! Lookups of the same name share a place. A queued lookup is dropped when all its callers have
//! given up; a lookup in progress continues, because its answer serves the next caller. Known names
//! bypass the queue: answers are cached for seconds (`stub/cache.rs`), and `localhost` and
//! addresses need no lookup. Lookups use our own resolver (`stub`), which behaves the same in each
//! build: musl queries all name servers at once and takes the first reply, and glibc waits 5 s for
//! a silent server each time.

mod answer;
mod literal;
mod names;
mod queue;
mod services;
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

pub use services::{ServiceRecord, ServiceRecords, in_order};

/// The bounds of a [`Resolver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of lookups in progress, for all accounts together. Each takes two
    /// descriptors, and two more for each additional name server that is queried.
    pub under_way: usize,
    /// The maximum number of lookups in progress for one account.
    pub at_once: usize,
    /// The maximum number of waiting names for one account.
    pub queued: usize,
}

impl Bounds {
    /// The bounds for configured names. Each name has its own account, so a hanging name occupies
    /// one place.
    pub const OWN: Self = Self { under_way: 64, at_once: 1, queued: 1 };

    /// The bounds for names that clients choose, if `reserve` descriptors are reserved for lookups
    /// and other short tasks: at most 64 lookups, at most 8 per client, and 256 waiting names. A
    /// browser that opens a page resolves fewer names.
    #[must_use]
    pub fn of_clients(reserve: usize) -> Self {
        let under_way = (reserve / 8).clamp(4, 64);
        Self { under_way, at_once: (under_way / 4).clamp(1, 8), queued: 256 }
    }
}

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Resolves names for accounts. Clones share the queue and the cache.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    bounds: Bounds,
    source: Source,
    state: Mutex<State>,
}

/// The source of answers.
enum Source {
    /// The files and name servers of the system.
    Stub(Arc<Stub<Sockets>>),
    /// A function that may block.
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
    /// A resolver that follows the configuration files of the system, with its own cache: lookups
    /// of one resolver do not evict answers of another.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self::of(bounds, Source::Stub(Arc::new(Stub::new(LookupFiles::of_system(), Sockets))))
    }

    /// A resolver that calls `look_up` instead of the system, on a thread that may block, without a
    /// cache.
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
    /// Dropping the future cancels the lookup: a waiting lookup is dropped, a lookup in progress
    /// continues and counts until it ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the name does not exist or has no address. The error of the
    /// system if no descriptor is left. [`io::ErrorKind::QuotaExceeded`] if the account has reached
    /// its limit of waiting names. [`io::ErrorKind::Other`] if no name server answers. The text
    /// names the servers.
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

    /// Returns the SRV records of `name` (RFC 2782); there is at least one. The order in which a
    /// client uses them is that of [`in_order`].
    ///
    /// A question about a service has no account and takes no place, because only this process
    /// itself asks about a few names of its configuration.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the name does not exist or has no SRV record, and if the
    /// domain says that it does not offer the service. Otherwise as [`Self::look_up`].
    pub async fn services(&self, name: &str) -> io::Result<ServiceRecords> {
        let Source::Stub(stub) = &self.0.source else {
            let text = "this resolver looks up addresses alone";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let (stub, name) = (Arc::clone(stub), lower(name).into_owned());
        let found = names::handle()?.spawn(async move { stub.services(&name).await });
        found.await.map_err(io::Error::other)?.map_err(Failure::again)
    }

    /// The number of lookups in progress.
    #[cfg(test)]
    fn under_way(&self) -> usize {
        self.0.lock().queue.under_way()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the lookups that the bounds permit.
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

    /// Performs one lookup.
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
        // The queue first, so that a caller finds its place free.
        drop(end);
        job.answer.send_replace(Some(found));
    }
}

/// Ends a lookup in the queue, even if the lookup panics.
struct End<'a> {
    shared: &'a Arc<Shared>,
    job: &'a Job,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.under_way -= 1;
        state.queue.done(self.job, self.shared.bounds);
        // The thread exists: this lookup ran on it.
        let _ = self.shared.staff(&mut state);
    }
}

/// The name servers of this machine, in the order in which they are queried (resolv.conf(5)).
#[must_use]
pub fn name_servers() -> Vec<SocketAddr> {
    LookupFiles::of_system().conf().servers
}

/// A resolver, and the account for its lookups.
#[derive(Clone, Debug)]
pub struct Lookups {
    resolver: Resolver,
    /// `None`: each name is its own account.
    account: Option<Arc<str>>,
}

impl Lookups {
    /// Lookups on `account`.
    #[must_use]
    pub fn on(resolver: &Resolver, account: &str) -> Self {
        Self { resolver: resolver.clone(), account: Some(account.into()) }
    }

    /// Lookups of the configured targets of this process.
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

    /// Returns the addresses of `host`; there is at least one. An IP address is parsed, in each
    /// form of inet_aton(3). `localhost` and the names below it have both loopback addresses, IPv4
    /// first. Neither needs a lookup: RFC 6761 section 6.3 requires that, and a container may lack
    /// `/etc/hosts`.
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

    /// Returns the SRV records of `name`, as [`Resolver::services`] does.
    ///
    /// # Errors
    /// As [`Resolver::services`].
    pub async fn services(&self, name: &str) -> io::Result<ServiceRecords> {
        self.resolver.services(name).await
    }

    /// Reports that no connection to any address of `host` succeeded, so that the next caller
    /// resolves the name again. A restarted container has another address.
    pub fn forget(&self, host: &str) {
        if let Source::Stub(stub) = &self.resolver.0.source {
            stub.forget(&lower(host));
        }
    }

    /// As [`Self::resolve`], for synchronous code that may block.
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

/// The name in lower case: names are case-insensitive.
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
