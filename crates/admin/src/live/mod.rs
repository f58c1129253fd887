//! What moves: figures of each second for pages that look, and rates of the past.
//!
//! ```text
//!   each second, and only the sum of all bytes ───────┐
//!   every 10 s, or each second while somebody looks: ─┼─► history (rings)
//!   the whole status ─────────────────────────────────┴─► the newest figures ─► lines of each viewer
//! ```
//!
//! All viewers share one look at the daemon.

mod history;
mod lines;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ops::clients::Client;
use ops::command::PATIENCE;
use ops::status::{Service, Status};
use ops::{Carried, Daemon};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use history::{Bytes, History, Rate, Shown, TOTAL, rate};

pub(crate) use lines::{Topics, answer};

/// Time between two looks at the sum of all bytes.
const TICK: Duration = Duration::from_secs(1);

/// Seconds between two looks at the whole status while nobody looks.
const STATUS_EVERY: u64 = 10;

/// How long the daemon is looked at each second after somebody looked.
const WATCHED: Duration = Duration::from_secs(60);

/// Most viewers at a time.
const VIEWERS: usize = 8;

/// The figures of a second.
#[derive(Debug)]
struct Figures {
    unix_millis: u64,
    status: Status,
    /// The clients that a server knows.
    clients: Option<Vec<Client>>,
    carried: Bytes,
    rate: Rate,
    rates: HashMap<Key, Rate>,
}

/// Kind, peer, name, address and target of a service or forward.
type Key = (&'static str, String, String, String, String);

/// What moves in a daemon. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    figures: watch::Sender<Option<Arc<Figures>>>,
    history: Mutex<History>,
    looked: Mutex<Option<Instant>>,
    viewers: Arc<Semaphore>,
}

/// The readings before, by which rates are computed.
#[derive(Debug, Default)]
struct Before {
    total: Option<(Instant, Bytes)>,
    each: Option<(Instant, HashMap<Key, Bytes>)>,
}

impl Live {
    pub(crate) fn new() -> Self {
        let (figures, history) = (watch::Sender::new(None), Mutex::default());
        let viewers = Arc::new(Semaphore::new(VIEWERS));
        Self(Arc::new(Shared { figures, history, looked: Mutex::default(), viewers }))
    }

    /// Notes that somebody looks now.
    fn look(&self) {
        *locked(&self.0.looked) = Some(Instant::now());
    }

    fn is_watched(&self) -> bool {
        locked(&self.0.looked).is_some_and(|at| at.elapsed() < WATCHED)
    }

    /// The names of all series.
    pub(crate) fn names(&self) -> Vec<String> {
        locked(&self.0.history).names()
    }

    /// A series of the past. `None`: no such series.
    pub(crate) fn past(&self, of: &str, step: Option<u64>) -> Option<Vec<impl serde::Serialize>> {
        self.look();
        let shown: Option<Vec<Shown>> = locked(&self.0.history).of(of, step);
        shown
    }

    /// Looks at the daemon until the future is dropped.
    pub(crate) async fn follow(self, daemon: Arc<dyn Daemon>) {
        let mut ticks = interval(TICK);
        // After a pause, the next second is looked at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut before, mut second) = (Before::default(), 0);
        loop {
            ticks.tick().await;
            self.tick(daemon.as_ref(), second, &mut before).await;
            second += 1;
        }
    }

    async fn tick(&self, daemon: &dyn Daemon, second: u64, before: &mut Before) {
        let Some(traffic) = daemon.traffic() else { return };
        // A worker that does not answer leaves a gap.
        let Ok(carried) = timeout(PATIENCE, traffic.carried()).await else { return };
        let Carried { bytes_in, bytes_out } = carried;
        let (now, carried) = (Instant::now(), (bytes_in, bytes_out));
        let last = before.total.replace((now, carried));
        let total = last.map(|last| rate(last, (now, carried))).unwrap_or_default();
        let mut read = BTreeMap::from([(TOTAL.to_owned(), carried)]);
        if (second.is_multiple_of(STATUS_EVERY) || self.is_watched())
            && let Ok(status) = timeout(PATIENCE, daemon.status()).await
        {
            let now = Instant::now();
            let bytes: HashMap<Key, Bytes> =
                services(&status).map(|(key, service)| (key, moved(service))).collect();
            sums(&bytes, &mut read);
            let rates = before.each.as_ref().map(|(at, last)| {
                let of = |(key, bytes): (&Key, &Bytes)| {
                    let last = last.get(key).map(|last| rate((*at, *last), (now, *bytes)));
                    (key.clone(), last.unwrap_or_default())
                };
                bytes.iter().map(of).collect()
            });
            before.each = Some((now, bytes));
            if self.is_watched() {
                let clients = match daemon.clients() {
                    Some(clients) => timeout(PATIENCE, clients.all()).await.ok(),
                    None => None,
                };
                let figures = Figures {
                    unix_millis: unix_millis(),
                    status,
                    clients: clients.and_then(Result::ok).map(|all| all.list),
                    carried,
                    rate: total,
                    rates: rates.unwrap_or_default(),
                };
                self.0.figures.send_replace(Some(Arc::new(figures)));
            } else {
                // Nobody wants them, and they are large on a busy server.
                self.0.figures.send_replace(None);
            }
        }
        locked(&self.0.history).push(second, now, &read);
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time now in milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

const fn moved(service: &Service) -> Bytes {
    (service.bytes_in, service.bytes_out)
}

/// Each service, forward and listener of a proxy, with its key.
fn services(status: &Status) -> impl Iterator<Item = (Key, &Service)> {
    let key = |kind: &'static str, peer: &str, service: &Service| -> Key {
        let Service { name, address, target, .. } = service;
        (kind, peer.to_owned(), name.clone(), address.clone(), target.clone())
    };
    let of_sessions = status.sessions.iter().flat_map(move |session| {
        let services = session.services.iter().map(|service| ("service", service));
        let forwards = session.forwards.iter().map(|forward| ("forward", forward));
        let all = services.chain(forwards);
        all.map(move |(kind, service)| (key(kind, &session.peer, service), service))
    });
    let proxies = status.proxies.iter().map(move |service| (key("proxy", "", service), service));
    let defaults = &status.default_targets;
    let defaults = defaults.iter().map(move |service| (key("default", "", service), service));
    of_sessions.chain(proxies).chain(defaults)
}

/// Adds the readings of each service and of each client by name.
fn sums(bytes: &HashMap<Key, Bytes>, read: &mut BTreeMap<String, Bytes>) {
    for ((kind, peer, name, ..), (incoming, outgoing)) in bytes {
        let service = (*kind != "forward").then(|| format!("service:{name}"));
        let client = (!peer.is_empty()).then(|| format!("client:{peer}"));
        for series in service.into_iter().chain(client) {
            let sum = read.entry(series).or_default();
            *sum = (sum.0 + incoming, sum.1 + outgoing);
        }
    }
}
