//! Where memory for streams, windows and replay comes from. The process has one budget; workers
//! lease pieces of it, links draw from their worker's lease.
//!
//! What limits a stream is what is *left*, not a share fixed beforehand: the dynamic threshold of
//! Choudhury and Hahne ("Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
//! IEEE/ACM Transactions on Networking 6(2), 1998). One busy stream may have half of the budget; of
//! many greedy ones each has about as much as the others, and a part is always left for those that
//! come next.

use std::fmt;

/// A worker's lease of the process budget, shared by its links. Counts bytes.
pub trait Budget: fmt::Debug {
    /// Takes `bytes` if they are there.
    fn draw(&self, bytes: u64) -> bool;
    /// Takes `bytes` that are already in use, even beyond the limit; then nothing is left.
    fn charge(&self, bytes: u64);
    /// Gives back what was drawn or charged.
    fn release(&self, bytes: u64);
    /// Bytes that may still be drawn.
    fn left(&self) -> u64;
    /// The whole budget.
    fn total(&self) -> u64;
}

/// Part of the budget that windows and replay leave to new streams and to implicit windows, which
/// cannot be refused to streams that exist. (An eighth of 32 MiB was less than those of 300 streams.)
const RESERVE: u64 = 4;

/// What windows and replay may still take.
pub(crate) fn spare(budget: &dyn Budget) -> u64 {
    budget.left().saturating_sub(budget.total() / RESERVE)
}

/// What a budget was told of the memory that somebody has in use.
#[derive(Debug)]
pub(crate) struct Charge(u64);

impl Charge {
    pub(crate) const NONE: Self = Self(0);

    /// So much is in use now.
    pub(crate) fn set(&mut self, memory: u64, budget: &dyn Budget) {
        if memory > self.0 {
            budget.charge(memory - self.0);
        } else if memory < self.0 {
            budget.release(self.0 - memory);
        }
        self.0 = memory;
    }
}

/// A budget without limit, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Budget for Unlimited {
    fn draw(&self, _bytes: u64) -> bool {
        true
    }
    fn charge(&self, _bytes: u64) {}
    fn release(&self, _bytes: u64) {}
    fn left(&self) -> u64 {
        u64::MAX
    }
    fn total(&self) -> u64 {
        u64::MAX
    }
}
