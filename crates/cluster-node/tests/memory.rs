//! An engine in memory, in virtual time: one store behind some members, of which some answer
//! nothing.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::Moment;
use cluster::engine::{Done, Lease, NoReply, Range, Revision, Transaction};
use cluster::node::{EngineReply, EngineRequest, Lane, Watched};
use cluster::testing::{ModelStore, Reports};
use cluster_node::{Engine, EngineCaller, EngineFollower, Unanswered};
use tokio::time::{Instant, sleep};

/// The time of a request to the engine, or of its answer.
const WAY: Duration = Duration::from_millis(1);

/// How often a watch looks for changes.
const LOOK: Duration = Duration::from_millis(20);

const MEMBERS: usize = 3;

/// What goes wrong for one node.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The members that answer nothing.
    hung: BTreeSet<usize>,
    /// The members whose watches report nothing.
    silent: BTreeSet<usize>,
    /// The number of answers to claims that get lost.
    lost: usize,
}

/// The store that all nodes share.
#[derive(Debug)]
struct Shared {
    store: Mutex<ModelStore>,
    start: Instant,
    /// The number of batches of claims.
    batches: Mutex<usize>,
}

/// The engine as one node sees it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryEngine {
    shared: Arc<Shared>,
    faults: Arc<Mutex<Faults>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryEngine {
    /// An empty store.
    pub(crate) fn new() -> Self {
        let store = Mutex::new(ModelStore::new());
        let shared = Shared { store, start: Instant::now(), batches: Mutex::default() };
        Self { shared: Arc::new(shared), faults: Arc::default() }
    }

    /// The same store, with faults of its own.
    pub(crate) fn of_another_node(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), faults: Arc::default() }
    }

    /// Makes all members answer nothing, or answer again.
    pub(crate) fn hang(&self, hangs: bool) {
        lock(&self.faults).hung = if hangs { (0..MEMBERS).collect() } else { BTreeSet::new() };
    }

    /// Makes a member answer nothing.
    pub(crate) fn hang_member(&self, member: usize) {
        lock(&self.faults).hung.insert(member);
    }

    /// Makes the watches at a member report nothing.
    pub(crate) fn silence(&self, member: usize) {
        lock(&self.faults).silent.insert(member);
    }

    /// The next answers to batches of claims get lost.
    pub(crate) fn lose(&self, answers: usize) {
        lock(&self.faults).lost = answers;
    }

    /// The number of batches of claims up to now.
    pub(crate) fn batches(&self) -> usize {
        *lock(&self.shared.batches)
    }

    /// The keys of all records.
    pub(crate) fn keys(&self) -> Vec<String> {
        let store = self.store();
        store.keys.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// Carries out a transaction at once.
    pub(crate) fn transact(&self, it: &Transaction) -> Result<Done, NoReply> {
        self.store().transact(it)
    }

    fn store(&self) -> MutexGuard<'_, ModelStore> {
        let mut store = lock(&self.shared.store);
        store.expire(self.now());
        store
    }

    fn now(&self) -> Moment {
        Moment(self.shared.start.elapsed())
    }

    fn is_hung(&self, member: usize) -> bool {
        lock(&self.faults).hung.contains(&member)
    }
}

impl Engine for MemoryEngine {
    type Caller = MemoryCaller;
    type Follower = MemoryFollower;

    fn caller(&self) -> MemoryCaller {
        MemoryCaller { engine: self.clone(), member: 0 }
    }

    fn follower(&self) -> MemoryFollower {
        MemoryFollower { engine: self.clone(), member: 0, watch: None }
    }
}

#[derive(Debug)]
pub(crate) struct MemoryCaller {
    engine: MemoryEngine,
    member: usize,
}

impl EngineCaller for MemoryCaller {
    async fn ask(&mut self, request: &EngineRequest) -> Result<EngineReply, Unanswered> {
        if self.engine.is_hung(self.member) {
            return pending().await;
        }
        sleep(WAY).await;
        let now = self.engine.now();
        let refused =
            |failure| Unanswered { failure, reason: "the store refuses the request".to_owned() };
        let mut is_lost = false;
        let reply = match request {
            EngineRequest::Transact(lane, it) => {
                if *lane == Lane::Claims {
                    *lock(&self.engine.shared.batches) += 1;
                    let mut faults = lock(&self.engine.faults);
                    is_lost = faults.lost > 0;
                    faults.lost = faults.lost.saturating_sub(1);
                }
                self.engine.store().transact(it).map(EngineReply::Done).map_err(refused)?
            }
            EngineRequest::Grant(_, time) => {
                EngineReply::Granted(self.engine.store().grant_for(now, *time))
            }
            EngineRequest::KeepAlive(lease) => {
                EngineReply::Renewed(self.engine.store().keep_alive(now, *lease))
            }
            EngineRequest::Revoke(lease) => {
                self.engine.store().revoke(*lease);
                EngineReply::Renewed(false)
            }
        };
        if is_lost {
            return pending().await;
        }
        sleep(WAY).await;
        Ok(reply)
    }

    async fn revoke(&mut self, lease: Lease) -> Result<(), Unanswered> {
        self.ask(&EngineRequest::Revoke(lease)).await.map(|_| ())
    }

    fn turn(&mut self) {
        self.member = (self.member + 1) % MEMBERS;
    }
}

#[derive(Debug)]
pub(crate) struct MemoryFollower {
    engine: MemoryEngine,
    member: usize,
    watch: Option<(Range, Revision)>,
}

impl EngineFollower for MemoryFollower {
    fn begin(&mut self, range: Range, from: Revision) {
        self.end();
        self.watch = Some((range, from));
    }

    fn end(&mut self) {
        if self.watch.take().is_some() {
            self.member = (self.member + 1) % MEMBERS;
        }
    }

    async fn next(&mut self) -> Watched {
        loop {
            let Some((range, from)) = &mut self.watch else { return pending().await };
            let is_silent = lock(&self.engine.faults).silent.contains(&self.member);
            if is_silent || self.engine.is_hung(self.member) {
                sleep(LOOK).await;
                continue;
            }
            let reports = self.engine.store().since(range, *from);
            match reports {
                Reports::Compacted => {
                    self.watch = None;
                    return Watched::Compacted;
                }
                Reports::Changes(changes, _) if changes.is_empty() => sleep(LOOK).await,
                Reports::Changes(changes, next) => {
                    *from = next;
                    return Watched::Changes(changes);
                }
            }
        }
    }
}
