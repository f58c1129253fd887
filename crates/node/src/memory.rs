//! The memory budget of the process, and the settings of links, from the configuration.

use std::num::NonZeroUsize;
use std::sync::Arc;

use config::Common;
use link::{Lease, ProcessBudget};
use net::pool;
use proto::{Budget, LinkConfig};

/// Least budget on a machine so small that a quarter of it would be less.
const BUDGET_MIN: u64 = 16 << 20;

/// The buffers that all workers keep for their next reads take at most this part of the budget.
const POOL_SHARE: u64 = 8;

/// Settings of the links of this process.
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

/// The process's memory budget: as configured, else a quarter of what the machine or the cgroup
/// of this process has.
pub(crate) fn budget(common: &Common) -> u64 {
    let configured = common.memory_budget.map(config::Size::bytes);
    configured.unwrap_or_else(|| (available() / 4).max(BUDGET_MIN))
}

/// The lease of one of `workers`; to be made on its thread. The buffers that the worker keeps are
/// charged to it once and for all.
pub(crate) fn lease(budget: &Arc<ProcessBudget>, workers: NonZeroUsize) -> Lease {
    let lease = Lease::new(Arc::clone(budget));
    let share = lease.total() / POOL_SHARE / workers.get() as u64;
    let kept = usize::try_from(share).map_or(pool::KEPT_BYTES, |n| n.min(pool::KEPT_BYTES));
    pool::limit(kept);
    lease.charge(kept as u64);
    lease
}

/// Memory that this process may use: the machine's, or less by a cgroup (v2, then v1).
fn available() -> u64 {
    let machine = rustix::system::sysinfo();
    let total = machine.totalram.saturating_mul(machine.mem_unit.into());
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = own.lines().filter_map(limit);
    limits.chain([total]).min().unwrap_or(total)
}

/// The limit that a line of /proc/self/cgroup leads to, if it is a number.
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
