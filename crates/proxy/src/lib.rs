//! The proxy role: listeners whose visitors are balanced over targets of this side, without a
//! tunnel. Listeners are entrances as in the other roles; targets are the same as those of a
//! client's services.
//!
//! | file | content |
//! |---|---|
//! | `entries` | the entries of the configuration as entrances |
//! | `visitors` | from an admitted visitor to its target |
//! | `shared` | the state that all workers share |
//! | `state` | the state of a worker |

mod entries;
mod shared;
mod state;
mod visitors;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use arc_swap::ArcSwap;
use config::{Balancer, Common, KeyPair, ProxyConfig, Trust};
use link::ProcessBudget;
use ops::status::{self, DaemonState, ServiceState, Status, StreamKind, Told};
use ops::targets::Targets;
use ops::{
    Certificates, Daemon, Foreseen, Loaded, Reloaded, Role, SendFuture, Serving, Traffic,
    WrongConfig, term,
};
use tls::VisitorTls;

use families::AGAIN;
use families::budget::budget;
use node::entrance::Openings;
use node::session::{Handle, Here, Session, State, Worker, Workers};
use node::tcp_info::Ledger;
use node::{descriptors, memory, workers};
use survey::Survey;
use targets::{Records, check_targets, lead_flows};

use entries::ListenerEntry;
use shared::ProxyShared;
use state::ProxyState;
use visitors::Visitors;

/// Reads the configuration again: from its source, or from the given text.
pub type ConfigSource =
    Box<dyn Fn(Option<String>) -> Result<Loaded<ProxyConfig>, WrongConfig> + Send + Sync>;

/// A running proxy.
pub struct Proxy {
    workers: Workers,
    /// The number of workers.
    count: NonZeroUsize,
    shared: Arc<ProxyShared>,
    started: Instant,
    source: ConfigSource,
    ledger: Ledger,
    survey: Survey,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({} entries)", self.shared.config.load().proxies.len())
    }
}

/// Starts workers and listeners.
pub async fn start(config: ProxyConfig, source: ConfigSource) -> anyhow::Result<Arc<Proxy>> {
    let count = config.common.workers.unwrap_or_else(workers::automatic);
    let certificates = certificates(&config)?;
    let session = Session::here(count.get());
    // All listeners are bound before anything is accepted, so that the user learns first of a port
    // in use.
    let entries = Openings::default();
    let sessions_of = |_: &ListenerEntry| vec![Arc::clone(&session)];
    let bound = entries.bind(&ListenerEntry::all(&config.proxies), count, sessions_of).await?;
    let budget = ProcessBudget::new(budget(&config.common));
    let workers = Workers::start(count, move |_| State::new(memory::lease(&budget, count)))
        .context("starting workers")?;
    let records = Records::of_proxy();
    records.follow(config.proxies.iter().map(|proxy| &proxy.service));
    let shared = Arc::new(ProxyShared {
        config: ArcSwap::from_pointee(config),
        records,
        certificates: ArcSwap::from_pointee(certificates),
        entries,
        session: Arc::clone(&session),
        leaving: AtomicBool::new(false),
    });
    for handle in workers.handles().iter() {
        let shared = Arc::clone(&shared);
        let start = move |worker: &Rc<Worker>| {
            worker.state.of::<ProxyState>().start(&shared);
            worker.state.of::<Here>().start(Rc::new(Visitors));
        };
        handle.call(start).await?;
    }
    let failed = shared.entries.follow(bound, workers.handles(), count, sessions_of).await;
    if let Some((entry, why)) = failed.into_iter().next() {
        return Err(why).with_context(|| format!("proxy {}", entry.service.name));
    }
    if let Some(worker) = workers.handles().first() {
        let owned = Arc::clone(&shared);
        worker.run(move |_| drop(tokio::task::spawn_local(check_targets(owned)))).await?;
        let (owned, handles) = (Arc::clone(&shared), Arc::clone(workers.handles()));
        worker.run(move |_| drop(tokio::task::spawn_local(insist(owned, handles)))).await?;
    }
    let (started, ledger) = (Instant::now(), Ledger::default());
    let survey = Survey::new(&workers);
    Ok(Arc::new(Proxy { workers, count, shared, started, source, ledger, survey }))
}

/// Retries the listeners whose address this machine does not have, until this process leaves.
async fn insist(shared: Arc<ProxyShared>, handles: Arc<[Handle]>) {
    loop {
        tokio::time::sleep(AGAIN).await;
        if shared.leaving.load(Ordering::Relaxed) {
            return;
        }
        let sessions_of = |_: &ListenerEntry| vec![Arc::clone(&shared.session)];
        shared.entries.try_again(&handles, sessions_of).await;
    }
}

/// Reads the certificates of the entries that terminate TLS.
fn certificates(config: &ProxyConfig) -> anyhow::Result<HashMap<String, VisitorTls>> {
    let mut all = HashMap::new();
    for proxy in &config.proxies {
        let Some(KeyPair { cert, key }) = &proxy.tls else { continue };
        let name = &proxy.service.name;
        let tls = VisitorTls::load(cert, key).with_context(|| format!("proxy {name}"))?;
        all.insert(name.clone(), tls);
    }
    Ok(all)
}

/// The lines about the entries that differ.
fn lines(before: &ProxyConfig, now: &ProxyConfig) -> Vec<String> {
    let name = |proxy: &Balancer| proxy.service.name.clone();
    let changed = now.proxies.iter().filter(|proxy| !before.proxies.contains(proxy));
    let changed = changed.map(|proxy| {
        format!("proxy {}: {} -> {}", name(proxy), proxy.listen, proxy.service.aims())
    });
    let is_gone = |proxy: &&Balancer| now.proxies.iter().all(|other| name(other) != name(proxy));
    let gone = before.proxies.iter().filter(is_gone);
    changed.chain(gone.map(|proxy| format!("proxy {} closed", name(proxy)))).collect()
}

impl Proxy {
    /// Applies a new configuration. An error leaves everything unchanged.
    async fn apply(&self, new: ProxyConfig) -> anyhow::Result<Reloaded> {
        let (shared, handles) = (&self.shared, self.workers.handles());
        let running = shared.config.load_full();
        let differs = running.differs(&new);
        let new = new.reloaded(&running);
        // The steps that can fail come first.
        let read = new.clone();
        let mut certificates = tokio::task::spawn_blocking(move || certificates(&read)).await??;
        // A visitor may connect to a listener before it is closed or renamed.
        for (name, tls) in shared.certificates.load().iter() {
            if running.proxies.iter().any(|proxy| proxy.service.name == *name) {
                certificates.entry(name.clone()).or_insert_with(|| tls.clone());
            }
        }
        let sessions_of = |_: &ListenerEntry| vec![Arc::clone(&shared.session)];
        let bound =
            shared.entries.bind(&ListenerEntry::all(&new.proxies), self.count, sessions_of).await?;
        shared.certificates.store(Arc::new(certificates));
        shared.config.store(Arc::new(new.clone()));
        shared.records.follow(new.proxies.iter().map(|proxy| &proxy.service));
        let failed = shared.entries.follow(bound, handles, self.count, sessions_of).await;
        if !failed.is_empty() {
            // The entries that failed are left out of the configuration in force, so the next
            // reload retries them.
            let is_open = |proxy: &Balancer| failed.iter().all(|(entry, _)| entry.0 != *proxy);
            let proxies = new.proxies.iter().filter(|proxy| is_open(proxy)).cloned().collect();
            shared.config.store(Arc::new(ProxyConfig { proxies, ..new }));
        }
        let now = shared.config.load_full();
        shared.records.retain(|name| now.proxies.iter().any(|p| p.service.name == name));
        for handle in handles.iter() {
            let now = Arc::clone(&now);
            let lead = move |worker: &Rc<Worker>| {
                lead_flows(worker, now.proxies.iter().map(|proxy| &proxy.service));
            };
            // A worker that has stopped has no flows.
            let _ = handle.call(lead).await;
        }
        let others: Vec<_> =
            differs.iter().copied().filter(|changed| changed.key != "proxies").collect();
        let mut reloaded = Reloaded::new(Vec::new(), &others);
        reloaded.applied.extend(lines(&running, &now));
        let line =
            |(entry, why): (ListenerEntry, _)| format!("proxy {}: {why}", entry.service.name);
        reloaded.failed.extend(failed.into_iter().map(line));
        // Waiting entries stay in the configuration in force, and are retried.
        let waiting = shared.entries.waiting().into_iter();
        let line =
            |(entry, why): (ListenerEntry, _)| format!("proxy {}: {why}", entry.service.name);
        reloaded.failed.extend(waiting.map(line));
        Ok(reloaded)
    }

    /// The entries for the status, in the order of the configuration.
    async fn services(&self) -> Vec<status::Service> {
        let mut sessions = survey::sessions(self.workers.handles(), &self.ledger).await;
        let counted = sessions.remove(&self.shared.session.id).unwrap_or_default().services;
        let config = self.shared.config.load_full();
        let waiting = self.shared.entries.waiting();
        let of = |proxy: &Balancer| {
            let service = &proxy.service;
            let counted = counted.iter().find(|counted| counted.name == service.name);
            let mut summary = counted.cloned().unwrap_or_default();
            self.shared.records.pools.report(service, &mut summary);
            let is_listed = !summary.targets.is_empty();
            summary.target = if is_listed { String::new() } else { service.aims() };
            summary.settle();
            if let Some((entry, why)) = waiting.iter().find(|(entry, _)| entry.0 == *proxy) {
                summary.name.clone_from(&service.name);
                summary.address = entry.listen.to_string();
                summary.state = Told::because(ServiceState::Refused, why);
            }
            summary
        };
        config.proxies.iter().map(of).filter(|service| !service.name.is_empty()).collect()
    }
}

impl Daemon for Proxy {
    fn role(&self) -> Role {
        Role::Proxy
    }

    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(self.workers.answer(limit))
    }

    fn traffic(&self) -> Option<&dyn Traffic> {
        Some(&self.survey)
    }

    fn targets(&self) -> Option<&dyn Targets> {
        Some(&self.shared.records.pools)
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let handles = self.workers.handles();
            Status {
                role: self.role(),
                uptime_seconds: self.started.elapsed().as_secs(),
                state: DaemonState::Running.into(),
                tasks: survey::tasks(handles).await,
                memory: survey::memory(handles).await,
                descriptors: descriptors::survey(),
                udp: survey::udp(),
                proxies: self.services().await,
                ..Status::default()
            }
        })
    }
}

impl Serving for Proxy {
    fn summary(&self) -> String {
        let config = self.shared.config.load();
        let names: Vec<_> = config.proxies.iter().map(|p| p.service.name.as_str()).collect();
        let count = u64::try_from(names.len()).unwrap_or(u64::MAX);
        format!("proxy with {}", term::count(count, "listener"))
    }

    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async {
            let Loaded { config, warnings } = (self.source)(None)?;
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
            Ok(Reloaded { warnings, ..self.apply(config).await? })
        })
    }

    fn check(&self, text: String) -> anyhow::Result<Foreseen> {
        let Loaded { config, warnings } = (self.source)(Some(text))?;
        Ok((warnings, self.shared.config.load().differs(&config)))
    }

    fn common(&self) -> Common {
        self.shared.config.load().common.clone()
    }

    fn certificates(&self) -> &dyn Certificates {
        self
    }

    fn drain(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            self.shared.leaving.store(true, Ordering::Relaxed);
            self.shared.entries.close_all(self.workers.handles()).await;
            loop {
                let mut open = 0;
                for handle in self.workers.handles().iter() {
                    let count = handle
                        .call(|worker| worker.state.of::<Here>().table(StreamKind::Stream).len())
                        .await;
                    open += count.unwrap_or_default();
                }
                if open == 0 {
                    return;
                }
                tokio::time::sleep(survey::DRAIN_LOOK).await;
            }
        })
    }

    fn close(&self) -> SendFuture<'_, ()> {
        Box::pin(self.workers.stop())
    }
}

impl Certificates for Proxy {
    fn files(&self) -> Vec<PathBuf> {
        let config = self.shared.config.load();
        let mut files = Vec::new();
        for proxy in &config.proxies {
            files.extend(proxy.tls.iter().flat_map(|pair| [&pair.cert, &pair.key]).cloned());
            if let Some(Trust::Ca(ca)) = &proxy.service.target_tls.trust {
                files.push(ca.clone());
            }
        }
        files
    }

    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(async {
            let config = self.shared.config.load_full();
            let read = tokio::task::spawn_blocking(move || certificates(&config));
            self.shared.certificates.store(Arc::new(read.await??));
            Ok(())
        })
    }
}
