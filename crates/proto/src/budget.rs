//! The memory budget for streams, windows and replay. The process has one budget. Workers lease
//! pieces of it, and links draw from the lease of their worker.
//!
//! The memory that is *left* limits a stream, not a fixed share: this is the dynamic threshold of
//! Choudhury and Hahne ("Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
//! IEEE/ACM Transactions on Networking 6(2), 1998). A single busy stream may have half of the
//! budget. Many busy streams have about equal parts, and a part is always left for new streams.

use std::fmt;

/// A worker's lease of the process budget, shared by its links. Counts bytes.
pub trait Budget: fmt::Debug {
    /// Takes `bytes` if they are left. Returns whether they were.
    fn draw(&self, bytes: u64) -> bool;
    /// Takes `bytes` that are already in use, even beyond the limit.
    fn charge(&self, bytes: u64);
    /// Returns bytes that were drawn or charged.
    fn release(&self, bytes: u64);
    /// Bytes that may still be drawn.
    fn left(&self) -> u64;
    /// Bytes of the whole budget.
    fn total(&self) -> u64;
}

/// Windows and replay leave the `RESERVE`th part of the budget to new streams and to implicit
/// windows, which cannot be refused to open streams. (300 streams needed more than an eighth of 32
/// MiB.)
const RESERVE: u64 = 4;

/// Bytes that windows and replay may still take.
pub(crate) fn spare(budget: &dyn Budget) -> u64 {
    budget.left().saturating_sub(budget.total() / RESERVE)
}

/// The bytes that were charged to a budget for memory in use.
#[derive(Debug, Default)]
pub(crate) struct Charge(u64);

impl Charge {
    pub(crate) const NONE: Self = Self(0);

    /// Sets the charge to the present use, bytes.
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
