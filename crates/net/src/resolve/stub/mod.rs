//! A stub resolver: it reads the configuration of the system and queries its name servers.
//!
//! ```text
//!   cache ---> /etc/hosts ---> each candidate of the search list ---> A and AAAA at the same time
//!                                                                     servers in order (`ask`)
//! ```
//!
//! Concurrent lookups of a name are merged into one. SRV records are asked for in the same way, but
//! for `/etc/hosts`, which has none, and the merging, because few callers ask. Other sources of
//! nsswitch.conf(5) (mDNS, LDAP, NIS) are not used: the static binary could not use them, and both
//! builds must give the same results.

mod ask;
mod cache;
mod conf;
mod failure;
mod files;
mod hosts;
#[cfg(test)]
mod packets;
mod sockets;
mod wire;

use std::cmp;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::answer::{Answer, Failure, ServiceAnswer};
use super::services::ServiceRecords;
use ask::{Exchange, Health, ServerReply, ask};
use cache::{Cache, LEAST};
use failure::Trouble;
use files::{FileContents, Stamps};
use wire::{Question, Record, RecordKind};

pub(super) use files::LookupFiles;
pub(super) use sockets::Sockets;

/// The minimum interval between two checks of the files' metadata.
const CHECK: Duration = Duration::from_secs(2);

/// Once a name has an address of one family, the time to wait for the other family. Some servers
/// drop queries for IPv6.
const GRACE: Duration = Duration::from_millis(250);

/// The timeout for all queries of a name, including search domains.
const ALL: Duration = Duration::from_secs(30);

type Flight = watch::Receiver<Option<Answer>>;

/// The resolver. `E` is the transport of queries.
pub(super) struct Stub<E> {
    files: LookupFiles,
    exchange: E,
    /// The number of names so far, for `options rotate`.
    turn: AtomicUsize,
    state: Mutex<StubState>,
}

#[derive(Default)]
struct StubState {
    /// The last read contents of the files.
    known: Option<Arc<FileContents>>,
    stamps: Option<Stamps>,
    checked: Option<Instant>,
    /// The state of the configured servers.
    health: Arc<Health>,
    cache: Cache<Answer>,
    services: Cache<ServiceAnswer>,
    /// Lookups in progress.
    flights: HashMap<Arc<str>, Flight>,
    /// The number of changes of the files. An answer of an earlier configuration is not cached.
    edition: u64,
}

impl<E> fmt::Debug for Stub<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stub").field("files", &self.files).finish_non_exhaustive()
    }
}

/// How a caller gets its answer.
enum Joined {
    Known(Answer),
    Flight(Flight),
    Lead(Lead),
}

/// The state that the leading caller needs to look the name up for all.
struct Lead {
    /// The contents of the files; `None`: they must be read.
    known: Option<Arc<FileContents>>,
    health: Arc<Health>,
    edition: u64,
    publish: watch::Sender<Option<Answer>>,
}

/// What a lookup asks for.
#[derive(Clone, Copy, Debug)]
enum WantedRecords {
    Addresses,
    Services,
}

/// The outcome of the queries about a name: of one type of records, or of addresses of both
/// families.
enum NameOutcome {
    Found { server: SocketAddr, records: Vec<Record>, ttl: Duration },
    Nothing { server: SocketAddr, exists: bool, ttl: Duration },
    Failed(Vec<(SocketAddr, Trouble)>),
}

impl<E: Exchange> Stub<E> {
    pub(super) fn new(files: LookupFiles, exchange: E) -> Self {
        Self { files, exchange, turn: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// The cached answer. Checks the metadata of the files first if a check is due.
    pub(super) fn known(&self, host: &str) -> Option<Answer> {
        let mut state = self.lock();
        self.check(&mut state);
        state.cache.get(host, Instant::now()).cloned()
    }

    /// Drops the addresses of a name, because no connection to them succeeded. The next lookup also
    /// checks the files.
    pub(super) fn forget(&self, host: &str) {
        let mut state = self.lock();
        state.cache.forget(host, Instant::now());
        state.checked = None;
    }

    /// Looks up `host`, which is in lower case, or joins the lookup in progress.
    pub(super) async fn look_up(&self, host: &Arc<str>) -> Answer {
        let Lead { known, health, edition, publish } = match self.join(host) {
            Joined::Known(answer) => return answer,
            Joined::Flight(mut flight) => {
                let answered = flight.wait_for(Option::is_some).await;
                let answer = answered.ok().and_then(|answered| answered.clone());
                return answer.unwrap_or_else(|| Err(failure::lost()));
            }
            Joined::Lead(lead) => lead,
        };
        let landing = Landing { stub: self, host };
        let known = known.unwrap_or_else(|| self.read(edition));
        let (answer, ttl) = self.addresses(&known, &health, host).await;
        {
            let mut state = self.lock();
            if state.edition == edition {
                state.cache.put(Arc::clone(host), answer.clone(), ttl, Instant::now());
            }
        }
        drop(landing);
        publish.send_replace(Some(answer.clone()));
        answer
    }

    /// The SRV records of `name`, which is in lower case.
    pub(super) async fn services(&self, name: &str) -> ServiceAnswer {
        let (known, health, edition) = {
            let mut state = self.lock();
            self.check(&mut state);
            if let Some(answer) = state.services.get(name, Instant::now()) {
                return answer.clone();
            }
            (state.known.clone(), Arc::clone(&state.health), state.edition)
        };
        let known = known.unwrap_or_else(|| self.read(edition));
        let found = timeout(ALL, self.find(&known, &health, name, WantedRecords::Services)).await;
        let (found, ttl) = found.unwrap_or_else(|_| (Err(failure::too_long(ALL)), LEAST));
        let answer = found.and_then(|records| offered(records, ttl));
        let mut state = self.lock();
        if state.edition == edition {
            state.services.put(name.into(), answer.clone(), ttl, Instant::now());
        }
        answer
    }

    fn join(&self, host: &Arc<str>) -> Joined {
        let mut state = self.lock();
        self.check(&mut state);
        if let Some(answer) = state.cache.get(host, Instant::now()) {
            return Joined::Known(answer.clone());
        }
        if let Some(flight) = state.flights.get(host) {
            return Joined::Flight(flight.clone());
        }
        let (publish, answered) = watch::channel(None);
        state.flights.insert(Arc::clone(host), answered);
        let (known, health) = (state.known.clone(), Arc::clone(&state.health));
        Joined::Lead(Lead { known, health, edition: state.edition, publish })
    }

    /// Reads the files, without holding the lock because a list of blocked names is long.
    fn read(&self, edition: u64) -> Arc<FileContents> {
        let known = Arc::new(self.files.read());
        let mut state = self.lock();
        if state.edition == edition {
            state.known = Some(Arc::clone(&known));
        }
        known
    }

    /// Clears all state if a file has changed.
    fn check(&self, state: &mut StubState) {
        let now = Instant::now();
        if state.checked.is_some_and(|checked| now < checked + CHECK) {
            return;
        }
        state.checked = Some(now);
        let stamps = Some(self.files.stamps());
        if state.stamps != stamps {
            state.stamps = stamps;
            state.edition += 1;
            state.known = None;
            state.health = Arc::default();
            state.cache.clear();
            state.services.clear();
        }
    }

    /// The addresses of `host` and their TTL. `/etc/hosts` comes before the servers.
    async fn addresses(
        &self,
        known: &FileContents,
        health: &Arc<Health>,
        host: &str,
    ) -> (Answer, Duration) {
        let listed = known.hosts.find(host);
        if !listed.is_empty() {
            return (Ok(listed), cache::MOST);
        }
        let found = timeout(ALL, self.find(known, health, host, WantedRecords::Addresses)).await;
        let (found, ttl) = found.unwrap_or_else(|_| (Err(failure::too_long(ALL)), LEAST));
        let address = |record| match record {
            Record::Address(ip) => Some(ip),
            Record::Service(_) => None,
        };
        (found.map(|records| records.into_iter().filter_map(address).collect()), ttl)
    }

    /// Queries the servers about each candidate. Returns the records and their TTL.
    async fn find(
        &self,
        known: &FileContents,
        health: &Arc<Health>,
        host: &str,
        wanted: WantedRecords,
    ) -> (Result<Vec<Record>, Failure>, Duration) {
        let conf = &known.conf;
        let candidates = conf.candidates(host);
        if !candidates.iter().any(|name| wire::is_name(name)) {
            return (Err(failure::no_name()), LEAST);
        }
        let mut servers = conf.servers.clone();
        if conf.rotates {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let count = servers.len().max(1);
            servers.rotate_left(turn % count);
        }
        let (mut nothing, mut failed) = (None, None);
        for name in candidates.iter().filter(|name| wire::is_name(name)) {
            let answered = match wanted {
                WantedRecords::Addresses => self.both(known, health, &servers, name).await,
                WantedRecords::Services => {
                    let question = Question { name: name.clone(), kind: RecordKind::Srv };
                    let how = (conf.wait, conf.by_tcp);
                    outcome(ask(&self.exchange, health, &servers, &question, how).await)
                }
            };
            match answered {
                NameOutcome::Found { records, ttl, .. } => return (Ok(records), ttl),
                NameOutcome::Nothing { server, exists, ttl } => {
                    let (had, lasts) = nothing.map_or((false, ttl), |(_, had, ttl)| (had, ttl));
                    nothing = Some((server, exists || had, ttl.min(lasts)));
                }
                NameOutcome::Failed(troubles) => {
                    let is_silent =
                        troubles.iter().all(|(_, trouble)| matches!(trouble, Trouble::Silent(_)));
                    let failure = failed.get_or_insert_with(|| failure::no_answer(conf, &troubles));
                    // Servers that do not reply would not reply to another query either.
                    if is_silent {
                        return (Err(failure.clone()), LEAST);
                    }
                }
            }
        }
        match (failed, nothing) {
            (None, Some((server, exists, ttl))) => {
                let what = match wanted {
                    WantedRecords::Addresses => "address",
                    WantedRecords::Services => "SRV record",
                };
                (Err(failure::no_record(what, server, exists, &candidates)), ttl)
            }
            (Some(failure), _) => (Err(failure), LEAST),
            (None, None) => (Err(failure::lost()), LEAST),
        }
    }

    /// Queries the addresses of both families at the same time.
    async fn both(
        &self,
        known: &FileContents,
        health: &Arc<Health>,
        servers: &[SocketAddr],
        name: &str,
    ) -> NameOutcome {
        let conf = &known.conf;
        let question = |kind| Question { name: name.to_owned(), kind };
        let (q4, q6) = (question(RecordKind::A), question(RecordKind::Aaaa));
        let how = (conf.wait, conf.by_tcp);
        let mut v4 = pin!(ask(&self.exchange, health, servers, &q4, how));
        if conf.only_v4 {
            return outcome(v4.await);
        }
        let mut v6 = pin!(ask(&self.exchange, health, servers, &q6, how));
        let (v4, v6) = tokio::select! {
            answered = &mut v4 => {
                let v4 = outcome(answered);
                let v6 = beside(&v4, v6).await;
                (Some(v4), v6)
            }
            answered = &mut v6 => {
                let v6 = outcome(answered);
                let v4 = beside(&v6, v4).await;
                (v4, Some(v6))
            }
        };
        joined(servers, v4, v6)
    }

    fn lock(&self) -> MutexGuard<'_, StubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a lookup, even if it panics.
struct Landing<'a, E: Exchange> {
    stub: &'a Stub<E>,
    host: &'a Arc<str>,
}

impl<E: Exchange> Drop for Landing<'_, E> {
    fn drop(&mut self) {
        self.stub.lock().flights.remove(self.host);
    }
}

/// The servers of a service. A record without a target says that there is none.
fn offered(records: Vec<Record>, ttl: Duration) -> ServiceAnswer {
    let service = |record| match record {
        Record::Service(record) if !record.target.is_empty() => Some(record),
        Record::Service(_) | Record::Address(_) => None,
    };
    let records: Vec<_> = records.into_iter().filter_map(service).collect();
    if records.is_empty() {
        Err(failure::no_service())
    } else {
        Ok(ServiceRecords { records, ttl })
    }
}

fn outcome(answered: Result<ServerReply, Vec<(SocketAddr, Trouble)>>) -> NameOutcome {
    match answered {
        Err(troubles) => NameOutcome::Failed(troubles),
        Ok((server, reply)) => {
            let ttl = reply.ttl.unwrap_or(LEAST);
            if reply.found.is_empty() {
                NameOutcome::Nothing { server, exists: reply.exists, ttl }
            } else {
                NameOutcome::Found { server, records: reply.found, ttl }
            }
        }
    }
}

/// Waits for the outcome of the other family, with a short timeout if addresses are already known.
async fn beside(
    first: &NameOutcome,
    other: impl Future<Output = Result<ServerReply, Vec<(SocketAddr, Trouble)>>>,
) -> Option<NameOutcome> {
    match first {
        NameOutcome::Found { .. } => timeout(GRACE, other).await.ok().map(outcome),
        NameOutcome::Nothing { .. } | NameOutcome::Failed(_) => Some(outcome(other.await)),
    }
}

/// The outcome of both families. Addresses of one family suffice; a negative outcome requires both.
///
/// If the families come from two servers, only the addresses of the earlier server count: the first
/// server may know a name of a private network but refuse the query for IPv6, while the next server
/// knows the public addresses of the same name.
fn joined(servers: &[SocketAddr], v4: Option<NameOutcome>, v6: Option<NameOutcome>) -> NameOutcome {
    let rank = |server: SocketAddr| servers.iter().position(|known| *known == server);
    match (v4, v6) {
        (
            Some(NameOutcome::Found { server, mut records, ttl }),
            Some(NameOutcome::Found { server: other, records: v6, ttl: lasts }),
        ) => match rank(server).cmp(&rank(other)) {
            cmp::Ordering::Less => NameOutcome::Found { server, records, ttl },
            cmp::Ordering::Equal => {
                records.extend(v6);
                NameOutcome::Found { server, records, ttl: ttl.min(lasts) }
            }
            cmp::Ordering::Greater => NameOutcome::Found { server: other, records: v6, ttl: lasts },
        },
        (Some(found @ NameOutcome::Found { .. }), _)
        | (_, Some(found @ NameOutcome::Found { .. })) => found,
        (Some(failed @ NameOutcome::Failed(_)), _) | (_, Some(failed @ NameOutcome::Failed(_))) => {
            failed
        }
        (
            Some(NameOutcome::Nothing { server, exists, ttl }),
            Some(NameOutcome::Nothing { exists: other, ttl: lasts, .. }),
        ) => NameOutcome::Nothing { server, exists: exists || other, ttl: ttl.min(lasts) },
        (Some(nothing), None) | (None, Some(nothing)) => nothing,
        (None, None) => NameOutcome::Failed(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
