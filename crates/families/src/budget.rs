//! The memory budget of the process, computed from the configuration, and the part of it that one
//! connection of a transport may hold.

use config::Common;

/// The lower bound in bytes of an automatic budget. It applies where a quarter of the memory is
/// less.
const BUDGET_MIN: u64 = 16 << 20;

/// One connection of `kcp://` holds at most the budget divided by this number for repairs, but at
/// least a quarter MiB: two round trips of 50 ms at 20 Mbit/s.
const REPAIRS_SHARE: u64 = 32;
const REPAIRS_MIN: usize = 256 << 10;

/// The memory budget of the process in bytes: the configured value, or else a quarter of the memory
/// of the machine or of the cgroup of this process.
pub fn budget(common: &Common) -> u64 {
    let configured = common.memory_budget.map(config::Size::bytes);
    configured.unwrap_or_else(|| (available() / 4).max(BUDGET_MIN))
}

/// The bytes that one connection of `kcp://` may hold for repairs: `most`, or a part of the budget.
pub(crate) fn of_repairs(common: &Common, most: usize) -> usize {
    let share = usize::try_from(budget(common) / REPAIRS_SHARE).unwrap_or(usize::MAX);
    share.max(REPAIRS_MIN).min(most)
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
