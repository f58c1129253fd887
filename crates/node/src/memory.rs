//! The shares of the process's memory budget for workers, visitors and unauthenticated connections,
//! and the settings of links.

use std::cell::Cell;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use config::Common;
use link::{Lease, ProcessBudget};
use net::pool;
use proto::{Budget, LinkConfig};
use relay::Held;

use crate::parts::Portion;
use families::budget::budget;

/// The read buffers that all workers keep for reuse take at most the budget divided by this number.
const POOL_SHARE: u64 = 8;

/// Unauthenticated connections take at most the budget divided by this number.
const STRANGERS_SHARE: u64 = 4;

/// The number of connections that may wait for their log-in at a listener, however small the budget
/// is.
const STRANGERS_MIN: usize = 32;

/// The connections to a default target take at most the budget divided by this number, at 4 KiB
/// each without their buffered bytes.
const DEFAULTS_SHARE: u64 = 2;
const STRAIGHT: u64 = 4 << 10;

/// The settings of the links of this process.
pub fn link_config(common: &Common) -> LinkConfig {
    LinkConfig {
        window_initial: common.window_initial.bytes(),
        window_max: common.window_max.bytes(),
        replay_per_stream: common.window_max.bytes(),
        keepalive: common.keepalive.duration(),
        resume_timeout: common.resume_timeout.duration(),
        ..LinkConfig::default()
    }
}

/// Creates the lease of one of `workers` workers. The caller must be on the thread of that worker,
/// because the function also limits the buffer pool of the thread. The buffers that the worker
/// keeps for reuse are charged to the lease once.
pub fn lease(budget: &Arc<ProcessBudget>, workers: NonZeroUsize) -> Lease {
    let lease = Lease::new(Arc::clone(budget));
    let share = lease.total() / POOL_SHARE / workers.get() as u64;
    let kept = usize::try_from(share).map_or(pool::KEPT_BYTES, |n| n.min(pool::KEPT_BYTES));
    pool::limit(kept);
    lease.charge(kept as u64);
    lease
}

/// The number of connections that may wait for their log-in at one listener of one worker. Each
/// takes `cost` bytes, and all together at most a quarter of the budget, but at least 32 may wait.
pub fn strangers(budget: &Lease, workers: usize, cost: u64) -> usize {
    let share = budget.total() / STRANGERS_SHARE / workers.max(1) as u64;
    usize::try_from(share / cost).unwrap_or(usize::MAX).max(STRANGERS_MIN)
}

/// The number of connections that a default target may have: half of the budget, divided by the
/// memory that a connection takes without its buffered bytes.
pub fn streams_of_default(common: &Common) -> u32 {
    let most = budget(common) / DEFAULTS_SHARE / STRAIGHT;
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// Takes memory for visitors from the budget of a worker, and counts the visitors for which too
/// little is left.
#[derive(Clone, Debug)]
pub struct Accounts {
    budget: Portion,
    refused: Rc<Cell<u64>>,
}

impl Accounts {
    pub fn new(budget: Portion) -> Self {
        Self { budget, refused: Rc::default() }
    }

    /// The number of visitors and requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Takes `bytes` for a visitor for which nothing else is charged. The bytes count for the
    /// source of the visitor.
    pub fn draw(&self, bytes: u64, visitor: Option<SocketAddr>) -> Option<Held> {
        let budget: Rc<dyn Budget> = Rc::new(self.budget.of(visitor));
        let held = Held::draw(&budget, bytes);
        if held.is_none() {
            count(&self.refused);
        }
        held
    }

    /// An account for a connection that the HTTP proxy serves, with `bytes` already in use. The
    /// bytes count for the source of the visitor.
    pub fn open(&self, bytes: u64, visitor: Option<SocketAddr>) -> Option<Rc<web::Account>> {
        let Some(account) = web::Account::open(Rc::new(self.budget.of(visitor)), bytes) else {
            count(&self.refused);
            return None;
        };
        let refused = Rc::clone(&self.refused);
        account.on_refusal(Rc::new(move || count(&refused)));
        Some(account)
    }
}

fn count(refused: &Cell<u64>) {
    refused.set(refused.get().wrapping_add(1));
}
