//! Where memory for windows and replay comes from. The process has one budget; workers lease
//! pieces of it, links draw from their worker's lease.

use std::fmt;

/// A worker's lease of the process budget, shared by its links. Counts bytes.
pub trait Budget: fmt::Debug {
    /// Takes `bytes` if they are there.
    fn draw(&self, bytes: u64) -> bool;
    /// Takes `bytes` that are already in use, even beyond the limit; then [`Budget::is_spent`].
    fn charge(&self, bytes: u64);
    /// Gives back what was drawn or charged.
    fn release(&self, bytes: u64);
    /// Whether nothing is left: streams then hold no more than their implicit window.
    fn is_spent(&self) -> bool;
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
    fn is_spent(&self) -> bool {
        false
    }
}
