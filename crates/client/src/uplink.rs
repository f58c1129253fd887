//! An uplink: everything that belongs to one server of a client. A client has a list of uplinks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{ClientConfig, Forward, Policy, ServerPaths, Service};
use ops::events::Events;
use ops::status::ServerFigures;
use proto::control::StunPorts;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::destination::Places;
use super::detours::Detours;
use super::links::Links;
use super::published::Published;
use node::session::{Handle, Session};

/// The number of links to a server that stands by. The links carry nothing, and further links are
/// made when the server takes over.
const STANDBY: usize = 1;

/// What a client counts about a server.
#[derive(Debug, Default)]
struct Counts {
    /// The takeovers that the server has answered.
    takeovers: u64,
    /// The moves of links to another path, by reason.
    moves: BTreeMap<&'static str, u64>,
}

/// A server as this client knows it.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// Unique in this process.
    pub(super) id: u64,
    /// The name in the configuration; `None`: the client has this server alone.
    name: Option<String>,
    /// The name, or the host, which a reload may change.
    label: ArcSwap<String>,
    /// The server is not in the configuration any more.
    is_removed: AtomicBool,
    /// The current links, which take streams.
    links: ArcSwap<Links>,
    /// The state of the services according to the server.
    pub(super) published: Published,
    /// The public addresses of the services.
    pub(super) places: Places,
    /// The generation of the registered set of services.
    generation: AtomicU64,
    /// Whether this process has logged in at the server at least once.
    pub(super) logged_in: Arc<AtomicBool>,
    /// Whether the client has a shared service. New links announce it.
    pub(super) shares: Arc<AtomicBool>,
    /// Whether the server publishes the services of the client. Of the servers of a client with
    /// `use: failover` or `nearest`, one server does.
    is_in_charge: AtomicBool,
    /// The generation of the registration by which the server takes the services over. 0: the
    /// server does not, or has answered.
    taking_over: AtomicU64,
    /// The counters of the server, for the metrics.
    counts: Mutex<Counts>,
    /// Whether a service of the client names other servers than this one.
    excludes: AtomicBool,
    /// The round-trip time to the server in microseconds; 0: it was not measured.
    rtt: AtomicU32,
    /// The ports at which the server answers STUN.
    stun: ArcSwap<StunPorts>,
}

impl Uplink {
    pub(super) fn new(
        server: &ServerPaths,
        links: &Arc<Links>,
        events: &Events,
        generation: u64,
    ) -> Arc<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            name: server.name.clone(),
            label: ArcSwap::from_pointee(server.label()),
            is_removed: AtomicBool::new(false),
            links: ArcSwap::new(Arc::clone(links)),
            published: Published::new(events),
            places: Places::default(),
            generation: AtomicU64::new(generation),
            logged_in: Arc::default(),
            shares: Arc::default(),
            is_in_charge: AtomicBool::new(false),
            taking_over: AtomicU64::new(0),
            counts: Mutex::default(),
            excludes: AtomicBool::new(false),
            rtt: AtomicU32::new(0),
            stun: ArcSwap::default(),
        })
    }

    /// Whether the uplink is that of this server of the configuration.
    pub(super) fn is_of(&self, server: &ServerPaths) -> bool {
        self.name == server.name
    }

    /// Whether the server publishes the services of the client.
    pub(super) fn is_in_charge(&self) -> bool {
        self.is_in_charge.load(Ordering::Relaxed)
    }

    /// Whether another server has the services of the client. A server that was removed does not
    /// wait for them.
    pub(super) fn stands_by(&self) -> bool {
        !self.is_in_charge() && !self.is_removed.load(Ordering::SeqCst)
    }

    /// The name of the server, or its host.
    pub(super) fn label(&self) -> Arc<String> {
        self.label.load_full()
    }

    /// Records the settings of the server in a new configuration.
    pub(super) fn follow(&self, server: &ServerPaths) {
        self.label.store(Arc::new(server.label()));
    }

    /// Records that the server is not in the configuration any more. It gets no services again.
    pub(super) fn remove(&self) {
        self.is_removed.store(true, Ordering::SeqCst);
    }

    /// Records whether the server publishes the services. Returns whether this is new.
    pub(super) fn set_charge(&self, is_in_charge: bool) -> bool {
        if is_in_charge && self.is_removed.load(Ordering::SeqCst) {
            return false;
        }
        let is_new = self.is_in_charge.swap(is_in_charge, Ordering::Relaxed) != is_in_charge;
        if is_new {
            // The next registration has the services.
            let next = if is_in_charge { self.generation() + 1 } else { 0 };
            self.taking_over.store(next, Ordering::Relaxed);
        }
        is_new
    }

    /// Records whether the server publishes the services from its begin.
    pub(super) fn begin_charge(&self, is_in_charge: bool) {
        self.is_in_charge.store(is_in_charge, Ordering::Relaxed);
    }

    /// Records that the server has answered the registration of this generation: a takeover is
    /// complete.
    pub(super) fn note_answer(&self, generation: u64) {
        let awaited = self.taking_over.load(Ordering::Relaxed);
        let is_awaited = awaited > 0 && generation >= awaited;
        // Links on several workers may have the answer.
        let take = || {
            let relaxed = Ordering::Relaxed;
            self.taking_over.compare_exchange(awaited, 0, relaxed, relaxed).is_ok()
        };
        if is_awaited && take() {
            self.counts().takeovers += 1;
        }
    }

    /// Counts a move of a link to another path.
    pub(super) fn note_move(&self, reason: &'static str) {
        *self.counts().moves.entry(reason).or_default() += 1;
    }

    /// The figures for the metrics.
    pub(super) fn figures(&self) -> ServerFigures {
        let counts = self.counts();
        let moves = counts.moves.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
        ServerFigures {
            rtt_micros: self.rtt().and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            takeovers: counts.takeovers,
            moves: moves.collect(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of links to make: all, or those of a server that stands by.
    pub(super) fn wanted_links(&self) -> usize {
        if self.is_in_charge() { usize::MAX } else { STANDBY }
    }

    /// Whether a service of the configuration belongs to the server.
    pub(super) fn has(&self, service: &Service) -> bool {
        service.servers.is_empty() || service.servers.contains(&*self.label())
    }

    /// The services that the server is to publish.
    pub(super) fn services<'a>(&self, config: &'a ClientConfig) -> Vec<&'a Service> {
        let all = config.services.iter().filter(|_| self.is_in_charge());
        all.filter(|service| self.has(service)).collect()
    }

    /// The round-trip time to the server, if it was measured.
    pub(super) fn rtt(&self) -> Option<Duration> {
        let micros = self.rtt.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros.into()))
    }

    /// Records a measured round-trip time. The mean moves by a quarter of the difference.
    pub(super) fn note_rtt(&self, rtt: Duration) {
        let micros = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).max(1);
        let before = self.rtt.load(Ordering::Relaxed);
        let mean = if before == 0 { micros } else { before - before / 4 + micros / 4 };
        self.rtt.store(mean.max(1), Ordering::Relaxed);
    }

    /// Records what new links announce of the services, and whether streams need a look at the
    /// servers of their service.
    pub(super) fn note_services(&self, config: &ClientConfig) {
        let mut own = config.services.iter().filter(|service| self.has(service));
        self.shares.store(own.any(Service::is_shared), Ordering::Relaxed);
        let excludes = !config.services.iter().all(|service| self.has(service));
        self.excludes.store(excludes, Ordering::Relaxed);
    }

    /// Whether the server may open streams to the service of this name.
    pub(super) fn may_reach(&self, config: &ArcSwap<ClientConfig>, name: &str) -> bool {
        // Most clients have one server, and no stream compares names.
        !self.excludes.load(Ordering::Relaxed)
            || config.load().services.iter().any(|one| one.name == name && self.has(one))
    }

    /// Records the ports at which the server answers STUN.
    pub(super) fn note_stun(&self, ports: StunPorts) {
        if **self.stun.load() != ports {
            tracing::debug!(?ports, "the server answers STUN");
            self.stun.store(Arc::new(ports));
        }
    }

    /// The ports at which the server answers STUN, as it announced last.
    pub(super) fn stun(&self) -> Arc<StunPorts> {
        self.stun.load_full()
    }

    /// The current links.
    pub(super) fn links(&self) -> Arc<Links> {
        self.links.load_full()
    }

    /// The session of the current links.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.links.load().session)
    }

    /// The generation of the set of services that a new link registers.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins the next generation, and returns its number.
    pub(super) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Release) + 1
    }

    /// No more links are made; live links continue.
    pub(super) fn leave(&self) {
        self.links.load().leaving.store(true, Ordering::Relaxed);
    }

    /// Retires the current links, which the links of the next process replace.
    pub(super) async fn retire(&self, handles: &[Handle]) {
        self.links.load_full().retire(handles).await;
    }

    /// Replaces the current links, which retire. A process that is stopping sets `leaving` and then
    /// calls [`Self::leave`]; this call sets the links first and then reads `leaving`. So the new
    /// links see it in any case.
    pub(super) async fn replace(
        &self,
        links: Arc<Links>,
        handles: &[Handle],
        leaving: &AtomicBool,
    ) {
        let before = self.links.swap(links);
        if leaving.load(Ordering::SeqCst) {
            self.leave();
        }
        // The failures of the old links no longer matter.
        self.published.note_trouble(None);
        before.retire(handles).await;
    }

    /// A worker with a live link: `from` or another. Waits for a link up to `limit` when there is
    /// none.
    pub(crate) async fn live_worker(&self, from: usize, limit: Duration) -> Option<usize> {
        let deadline = Instant::now() + limit;
        loop {
            let session = self.session();
            let revived = session.revived.notified();
            if let Some(worker) = session.live_worker(from) {
                return Some(worker);
            }
            tokio::select! {
                () = revived => {}
                () = tokio::time::sleep_until(deadline) => return None,
                // A reload may have replaced the session.
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    }
}

/// The uplinks of a client, at least one, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Uplinks {
    all: ArcSwap<Vec<Arc<Uplink>>>,
    /// The servers that a reload connects before it uses them: the way to other servers may lead
    /// through them.
    ahead: ArcSwap<Vec<Arc<Uplink>>>,
    /// The first uplink of the start.
    initial: Arc<Uplink>,
    /// The paths to servers through other servers that are in use.
    pub(super) detours: Arc<Detours>,
    /// Why the server in charge is in charge, of several servers of which one is.
    why: ArcSwapOption<String>,
    /// Notified when a link of an uplink becomes live or silent, and when the list changes.
    pub(super) stirred: Notify,
    /// Notified when a reload has changed the list or the policy.
    changed: Notify,
}

impl Uplinks {
    /// The uplinks `initial` and `others`.
    pub(super) fn of(initial: Arc<Uplink>, others: Vec<Arc<Uplink>>) -> Self {
        let all = std::iter::once(Arc::clone(&initial)).chain(others).collect();
        Self {
            all: ArcSwap::from_pointee(all),
            ahead: ArcSwap::default(),
            initial,
            detours: Arc::default(),
            why: ArcSwapOption::empty(),
            stirred: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Records why the server in charge is in charge; `None`: all servers have the services.
    pub(super) fn note_why(&self, why: Option<String>) {
        self.why.store(why.map(Arc::new));
    }

    /// Why the server of this uplink has the services or stands by. Empty where all servers have
    /// the services.
    pub(super) fn why(&self, uplink: &Uplink) -> String {
        let Some(why) = self.why.load_full() else { return String::new() };
        if uplink.is_in_charge() {
            return String::clone(&why);
        }
        let all = self.all();
        let charged = all.iter().find(|other| other.is_in_charge());
        let name = charged.map(|other| other.label()).unwrap_or_default();
        format!("server {name} has the services")
    }

    /// Replaces the list.
    pub(super) fn set(&self, all: Vec<Arc<Uplink>>) {
        self.all.store(Arc::new(all));
        self.stirred.notify_one();
        self.changed.notify_waiters();
    }

    /// Records the servers that a reload connects before it uses them.
    pub(super) fn set_ahead(&self, ahead: Vec<Arc<Uplink>>) {
        self.ahead.store(Arc::new(ahead));
    }

    /// The server through which a path leads.
    pub(super) fn on_the_way(&self, label: &str) -> Option<Arc<Uplink>> {
        let is_it = |uplink: &&Arc<Uplink>| **uplink.label() == *label;
        let found = self.all.load().iter().find(is_it).cloned();
        found.or_else(|| self.ahead.load().iter().find(is_it).cloned())
    }

    /// Waits until there are several servers of which one has the services. `policy` returns the
    /// policy in force.
    pub(super) async fn choose(&self, policy: impl Fn() -> Policy) {
        self.until(|| self.are_several() && policy().is_single()).await;
    }

    /// Waits for a list of servers, or a configuration, of which this is true.
    pub(super) async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so() {
                return;
            }
            changed.await;
        }
    }

    /// All uplinks in the order of the configuration.
    pub(super) fn all(&self) -> Arc<Vec<Arc<Uplink>>> {
        self.all.load_full()
    }

    /// Whether there are several servers. Then a flow of UDP may go on over another server.
    pub(super) fn are_several(&self) -> bool {
        self.all.load().len() > 1
    }

    /// All uplinks in the order in which forwards, commands and visits use them: servers in charge
    /// before servers that stand by.
    pub(super) fn in_order(&self) -> Vec<Arc<Uplink>> {
        let mut all = Vec::clone(&self.all());
        all.sort_by_key(|uplink| !uplink.is_in_charge());
        all
    }

    /// The uplink of commands, visits and forwards that name no server: the first whose server
    /// answers, else the first that has a live link, else the first.
    pub(super) fn preferred(&self) -> Arc<Uplink> {
        let all = self.in_order();
        let answers = all.iter().find(|uplink| uplink.session().answers());
        let live = || all.iter().find(|uplink| uplink.session().live() > 0);
        let found = answers.or_else(live).or_else(|| all.first());
        Arc::clone(found.unwrap_or(&self.initial))
    }

    /// The sessions whose links serve the visitors of a forward, in the order of preference; at
    /// least one. A reload binds a forward before it adds the server that the forward names: the
    /// forward has the other servers until the reload opens it.
    pub(super) fn sessions_of(&self, forward: &Forward) -> Vec<Arc<Session>> {
        let all = self.in_order();
        let named = |uplink: &&Arc<Uplink>| {
            forward.server.as_ref().is_some_and(|name| *name == *uplink.label())
        };
        match all.iter().find(named) {
            Some(uplink) => vec![uplink.session()],
            None => all.iter().map(|uplink| uplink.session()).collect(),
        }
    }

    /// Gives each server the services, or the first server alone.
    pub(super) fn begin(&self, policy: Policy, in_charge: Option<&str>) {
        let all = self.all();
        let named =
            |uplink: &&Arc<Uplink>| in_charge.is_some() && uplink.name.as_deref() == in_charge;
        let first = all.iter().find(named).or_else(|| all.first()).map(|uplink| uplink.id);
        for uplink in all.iter() {
            uplink.begin_charge(!policy.is_single() || Some(uplink.id) == first);
        }
    }
}
