//! A session: all links between one client process and one server, shared by all workers. Both
//! roles use sessions; they differ in which side opens streams.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The total time for which a visitor is held while its name or a link of the session is absent.
pub const HOLD: Duration = Duration::from_secs(10);

/// A UDP port whose visitors a session may serve.
pub trait SessionPort: fmt::Debug + Send + Sync {
    /// Whether the session with this id serves visitors of the port.
    fn leads_to(&self, session: u64) -> bool;

    /// Steers the peers of the port to the workers with links.
    fn lead_peers(&self);
}

mod here;
mod links;
mod paths;
mod served;
mod spread;
mod state;

pub use here::{Admitted, Here, ServesHere, number};
pub use links::{AWAY, note_stall};
pub use paths::{Found, PathBytes, PathNotes, is_direct};

pub use served::{PrivateStats, Served};
pub use state::{Handle, State, Worker, Workers};

/// The part of a session that all workers share. It is not on the data path: a worker reads it only
/// when it has no live link of its own.
#[derive(Debug)]
pub struct Session {
    /// Unique in this process. Of two sessions of a client at a server, the session that logged in
    /// later has the higher id.
    pub id: u64,
    /// The client's name.
    pub name: String,
    /// The number of links that accept streams, by worker.
    live: Box<[AtomicU32]>,
    /// The number of live links whose peer is responsive, that is, owes no overdue response; by
    /// worker.
    answering: Box<[AtomicU32]>,
    /// The number of links that have not ended, by worker. Links that wait for a carrier or are
    /// going away count.
    links: Box<[AtomicU32]>,
    /// The number of these links that are not going away, by worker.
    staying: Box<[AtomicU32]>,
    /// Notified when a link becomes live.
    pub revived: Notify,
    /// The number of visitors that wait for a live link.
    pub held: AtomicU32,
    /// The totals of links that have ended, by worker: bytes received, bytes sent, resumes.
    past: Box<[[AtomicU64; 3]]>,
    /// When the last live link was lost; initially when the session began.
    lost: Mutex<Instant>,
    /// How often the visitors that wait for a link have been refused.
    refusals: AtomicU64,
    /// Called with the worker of a visitor that finds no link: the links of a peer are created on
    /// demand.
    demand: Option<Demand>,
    /// Whether the other side is a client.
    is_of_peer: bool,
    /// Whether the other side is another node of the cluster.
    is_of_node: bool,
    /// Whether the session has no other side, because this process dials the targets.
    is_here: bool,
    /// Whether another process of the client has the addresses that this process requested, while
    /// this process is unresponsive.
    displaced: AtomicBool,
    /// Whether another process of the client is connected beside this one.
    beside: AtomicBool,
    /// Whether another server of the client has the services, according to the client.
    standby: AtomicBool,
    /// Whether the client is on hold: if others share its addresses, it gets no visitors.
    on_hold: AtomicBool,
    /// The UDP ports whose visitors the session serves. A port that now belongs to another session
    /// is dropped by the next `steer`.
    ports: Mutex<Vec<Weak<dyn SessionPort>>>,
    /// The notes on direct paths of links with another client.
    pub paths: PathNotes,
}

/// Creates a link for a visitor that finds none.
struct Demand(Box<dyn Fn(usize) + Send + Sync>);

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Demand")
    }
}

/// Received and sent payload bytes, and resumes.
pub(crate) type Totals = [u64; 3];

/// The maximum number of names whose totals outlive their sessions. It is above the number of names
/// in a configuration, and bounds the memory that clients with invented names can use.
const ENDED_MAX: usize = 16_384;

/// The totals of ended sessions, by name. They keep the counters of a name from decreasing.
static ENDED: Mutex<BTreeMap<String, Totals>> = Mutex::new(BTreeMap::new());

/// The totals of the ended sessions of this name.
pub fn ended(name: &str) -> Totals {
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    ended.get(name).copied().unwrap_or_default()
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= ENDED_MAX && !ended.contains_key(&self.name) {
            return;
        }
        let sum = ended.entry(self.name.clone()).or_default();
        for worker in 0..self.past.len() {
            for (sum, part) in sum.iter_mut().zip(self.past(worker)) {
                *sum += part;
            }
        }
    }
}

impl Session {
    pub fn new(name: &str, workers: usize) -> Arc<Self> {
        Arc::new(Self::made(name, workers, None, None))
    }

    /// The session for visitors whose targets this process dials itself.
    pub fn here(workers: usize) -> Arc<Self> {
        let mut session = Self::made("", workers, None, None);
        session.is_here = true;
        Arc::new(session)
    }

    /// A session with another client. `demand` is called, on its worker, by a visitor that finds no
    /// link.
    pub fn of_peer(
        name: &str,
        workers: usize,
        demand: Option<Box<dyn Fn(usize) + Send + Sync>>,
        bytes: &Arc<PathBytes>,
    ) -> Arc<Self> {
        Arc::new(Self::made(name, workers, demand, Some(bytes)))
    }

    /// A session with another node of a cluster. `demand` is called, on its worker, by a visitor
    /// that finds no link.
    pub fn of_node(
        name: &str,
        workers: usize,
        demand: Option<Box<dyn Fn(usize) + Send + Sync>>,
    ) -> Arc<Self> {
        let mut session = Self::made(name, workers, demand, None);
        session.is_of_node = true;
        Arc::new(session)
    }

    fn made(
        name: &str,
        workers: usize,
        demand: Option<Box<dyn Fn(usize) + Send + Sync>>,
        of_peer: Option<&Arc<PathBytes>>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            live: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            answering: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            links: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            staying: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            revived: Notify::new(),
            held: AtomicU32::new(0),
            past: (0..workers).map(|_| Default::default()).collect(),
            lost: Mutex::new(Instant::now()),
            refusals: AtomicU64::new(0),
            demand: demand.map(Demand),
            is_of_peer: of_peer.is_some(),
            is_of_node: false,
            is_here: false,
            displaced: AtomicBool::new(false),
            beside: AtomicBool::new(false),
            standby: AtomicBool::new(false),
            on_hold: AtomicBool::new(false),
            ports: Mutex::default(),
            paths: of_peer.map(PathNotes::counting).unwrap_or_default(),
        }
    }

    /// Requests a link for a visitor on this worker that finds none.
    pub fn demand(&self, worker: usize) {
        if let Some(Demand(make)) = &self.demand {
            make(worker);
        }
    }

    /// Whether the other side is a client, over a private service.
    pub const fn is_of_peer(&self) -> bool {
        self.is_of_peer
    }

    /// Whether the other side is another node of the cluster, and neither a client nor a server.
    pub const fn is_of_node(&self) -> bool {
        self.is_of_node
    }

    /// Whether this process dials the targets itself.
    pub const fn is_here(&self) -> bool {
        self.is_here
    }

    /// Records whether another process of the client has the addresses of this one.
    pub fn set_displaced(&self, displaced: bool) {
        self.displaced.store(displaced, Ordering::Relaxed);
    }

    /// Whether another process of the client has the addresses of this one.
    pub fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Records whether another process of the client is connected beside this one.
    pub fn set_beside(&self, beside: bool) {
        self.beside.store(beside, Ordering::Relaxed);
    }

    /// Whether another process of the client is connected beside this one.
    pub fn stands_beside(&self) -> bool {
        self.beside.load(Ordering::Relaxed)
    }

    /// Records whether another server of the client has the services.
    pub fn set_standby(&self, standby: bool) {
        self.standby.store(standby, Ordering::Relaxed);
    }

    /// Whether another server of the client has the services.
    pub fn is_standby(&self) -> bool {
        self.standby.load(Ordering::Relaxed)
    }

    /// Whether the client is on hold.
    pub(crate) fn is_on_hold(&self) -> bool {
        self.on_hold.load(Ordering::Relaxed)
    }

    /// Records whether the client is on hold.
    pub fn set_hold(&self, on_hold: bool) {
        self.on_hold.store(on_hold, Ordering::Relaxed);
    }

    /// Whether links are created on demand.
    pub const fn is_on_demand(&self) -> bool {
        self.demand.is_some()
    }

    /// Refuses the visitors that wait for a link: there will be none.
    pub fn refuse_waiting(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        self.revived.notify_waiters();
    }

    /// How often the visitors that wait for a link have been refused.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Adds a UDP port whose visitors the session serves from now on, and steers its peers.
    pub(crate) fn add_port(&self, port: &Arc<dyn SessionPort>) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|known| {
            known.strong_count() > 0 && !ptr::addr_eq(known.as_ptr(), Arc::as_ptr(port))
        });
        ports.push(Arc::downgrade(port));
        port.lead_peers();
    }

    /// Steers the peers of the UDP ports of the session to the workers that have links. Reading the
    /// links and changing the steering is atomic: of two workers whose links change at the same
    /// time, the second one sees both changes.
    fn steer(&self) {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|port| {
            let Some(port) = port.upgrade() else { return false };
            let leads_here = port.leads_to(self.id);
            if leads_here {
                port.lead_peers();
            }
            leads_here
        });
    }

    /// Returns a worker with a responsive link, else one with a live link. The search starts at
    /// worker `from`, so different callers spread their visitors.
    pub fn live_worker(&self, from: usize) -> Option<usize> {
        let count = self.live.len();
        if self.is_here {
            return Some(from % count);
        }
        let first = |links: &[AtomicU32]| {
            let mut workers = (0..count).map(|n| (from + n) % count);
            workers.find(|&worker| links[worker].load(Ordering::Relaxed) > 0)
        };
        first(&self.answering).or_else(|| first(&self.live))
    }

    /// Whether a live link is responsive: its peer owes no overdue response.
    pub fn answers(&self) -> bool {
        self.answering.iter().any(|links| links.load(Ordering::Relaxed) > 0)
    }

    /// The number of responsive links of this worker.
    pub(crate) fn answers_on(&self, worker: usize) -> u32 {
        self.answering[worker].load(Ordering::Relaxed)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn set_live(&self, worker: usize, is_live: bool) {
        self.live[worker].store(is_live.into(), Ordering::Relaxed);
        self.set_answers(worker, is_live);
        self.note_loss();
        self.revived.notify_waiters();
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn set_answers(&self, worker: usize, answers: bool) {
        self.answering[worker].store(answers.into(), Ordering::Relaxed);
    }

    /// Whether the session has a link that is live or waits for a carrier.
    pub fn has_links(&self) -> bool {
        self.links.iter().any(|links| links.load(Ordering::Relaxed) > 0)
    }

    /// The workers with a link for new flows; if there is none, the workers with any link.
    pub(crate) fn flow_workers(&self) -> Vec<usize> {
        let with = |links: &[AtomicU32]| -> Vec<usize> {
            let counts = links.iter().map(|links| links.load(Ordering::Relaxed)).enumerate();
            counts.filter(|(_, count)| *count > 0).map(|(worker, _)| worker).collect()
        };
        let staying = with(&self.staying);
        if staying.is_empty() { with(&self.links) } else { staying }
    }

    /// The number of links of this worker that are going away.
    pub fn leaving(&self, worker: usize) -> usize {
        let [links, staying] =
            [&self.links, &self.staying].map(|links| links[worker].load(Ordering::Relaxed));
        usize::try_from(links.saturating_sub(staying)).unwrap_or(0)
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.past.len()
    }

    /// The totals of the ended links of this worker.
    pub fn past(&self, worker: usize) -> Totals {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.past.get(worker).map(|past| past.each_ref().map(count)).unwrap_or_default()
    }

    /// Records that a live link was lost.
    fn note_loss(&self) {
        if self.live() == 0 {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }

    /// Whether the client counts as disconnected: no link has been live for so long that visitors
    /// no longer wait, although the session may continue.
    pub fn is_away(&self) -> bool {
        self.live() == 0
            && self.lost.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= HOLD
    }

    /// How long no link has been live. `None`: a link is live.
    pub fn stalled(&self) -> Option<Duration> {
        let lost = *self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        (self.live() == 0).then(|| lost.elapsed())
    }

    /// Whether all links are going away, because the other side has moved to another process.
    pub fn has_left(&self) -> bool {
        self.staying.iter().all(|links| links.load(Ordering::Relaxed) == 0)
    }

    /// The number of live links on all workers.
    pub fn live(&self) -> u32 {
        self.live.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}
