//! The memory budget of the process and the settings of links, computed from the configuration.

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

/// The lower bound in bytes of an automatic budget. It applies where a quarter of the memory is
/// less.
const BUDGET_MIN: u64 = 16 << 20;

/// The read buffers that all workers keep take at most the budget divided by this number.
const POOL_SHARE: u64 = 8;

/// The connections that have not logged in take at most the budget divided by this number.
const STRANGERS_SHARE: u64 = 4;

/// One connection of `kcp://` holds at most the budget divided by this number for repairs, but at
/// least a quarter MiB: two round trips of 50 ms at 20 Mbit/s.
const REPAIRS_SHARE: u64 = 32;
const REPAIRS_MIN: usize = 256 << 10;

/// This number of connections may wait for their log-in at a listener, whatever the budget is.
const STRANGERS_MIN: usize = 32;

/// The connections to a default target take at most the budget divided by this number, of 4 KiB
/// each, without the bytes that wait in them.
const DEFAULTS_SHARE: u64 = 2;
const STRAIGHT: u64 = 4 << 10;

/// The settings of the links of this process.
pub(crate) fn link_config(common: &Common) -> LinkConfig {
    LinkConfig {
        window_initial: common.window_initial.bytes(),
        window_max: common.window_max.bytes(),
        replay_per_stream: common.window_max.bytes(),
        keepalive: common.keepalive.duration(),
        resume_timeout: common.resume_timeout.duration(),
        ..LinkConfig::default()
    }
}

/// The memory budget of the process in bytes: the configured value, or else a quarter of the memory
/// of the machine or of the cgroup of this process.
pub(crate) fn budget(common: &Common) -> u64 {
    let configured = common.memory_budget.map(config::Size::bytes);
    configured.unwrap_or_else(|| (available() / 4).max(BUDGET_MIN))
}

/// Makes the lease of one of `workers` workers. The caller must be on the thread of that worker,
/// because the function also limits the buffer pool of the thread. The buffers that the worker
/// keeps are charged to the lease once.
pub(crate) fn lease(budget: &Arc<ProcessBudget>, workers: NonZeroUsize) -> Lease {
    let lease = Lease::new(Arc::clone(budget));
    let share = lease.total() / POOL_SHARE / workers.get() as u64;
    let kept = usize::try_from(share).map_or(pool::KEPT_BYTES, |n| n.min(pool::KEPT_BYTES));
    pool::limit(kept);
    lease.charge(kept as u64);
    lease
}

/// The bytes that one connection of `kcp://` may hold for repairs: `most`, or a part of the budget.
pub(crate) fn of_repairs(common: &Common, most: usize) -> usize {
    let share = usize::try_from(budget(common) / REPAIRS_SHARE).unwrap_or(usize::MAX);
    share.max(REPAIRS_MIN).min(most)
}

/// The connections that may be waiting for their log-in at one listener of one worker. Each takes
/// `cost` bytes, and all of them at most a quarter of the budget, but at least 32 may wait.
pub(crate) fn strangers(budget: &Lease, workers: usize, cost: u64) -> usize {
    let share = budget.total() / STRANGERS_SHARE / workers.max(1) as u64;
    usize::try_from(share / cost).unwrap_or(usize::MAX).max(STRANGERS_MIN)
}

/// The connections that a default target may have: half of the budget, for what each takes
/// beside the bytes that wait in it.
pub(crate) fn streams_of_default(common: &Common) -> u32 {
    let most = budget(common) / DEFAULTS_SHARE / STRAIGHT;
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// Takes memory for visitors from the budget of a worker, and counts those for which it has too
/// little left.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    budget: Portion,
    refused: Rc<Cell<u64>>,
}

impl Accounts {
    pub(crate) fn new(budget: Portion) -> Self {
        Self { budget, refused: Rc::default() }
    }

    /// The number of visitors and requests that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Takes `bytes` for a visitor that nothing else is charged for. They count for the source of
    /// the visitor.
    pub(crate) fn draw(&self, bytes: u64, visitor: Option<SocketAddr>) -> Option<Held> {
        let budget: Rc<dyn Budget> = Rc::new(self.budget.of(visitor));
        let held = Held::draw(&budget, bytes);
        if held.is_none() {
            count(&self.refused);
        }
        held
    }

    /// An account for a connection that the HTTP proxy serves, with `bytes` in use already. They
    /// count for the source of the visitor.
    pub(crate) fn open(&self, bytes: u64, visitor: Option<SocketAddr>) -> Option<Rc<web::Account>> {
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

/// The bytes of memory that this process may use: the memory of the machine, or the limit of its
/// cgroup (v2 or v1) if that is lower.
fn available() -> u64 {
    let machine = rustix::system::sysinfo();
    let total = machine.totalram.saturating_mul(machine.mem_unit.into());
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = own.lines().filter_map(limit);
    limits.chain([total]).min().unwrap_or(total)
}

/// The limit of the cgroup that a line of /proc/self/cgroup names; `None` when the limit is not a
/// number.
fn limit(line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (controllers, path) = (fields.nth(1)?, fields.next()?);
    let file = if controllers.is_empty() {
        format!("/sys/fs/cgroup{path}/memory.max")
    } else if controllers.split(',').any(|c| c == "memory") {
        format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")
    } else {
        return None;
    };
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}
