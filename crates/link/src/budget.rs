//! The memory budget of the process, and the part of it that a worker leases. Threads synchronize
//! only when leasing, in pieces of up to 1 MiB.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proto::Budget;

/// A worker leases a piece at a time and keeps up to two unused pieces. A piece is [`PIECE`] bytes
/// of a large budget, or 1/[`PIECES`] of a small budget.
const PIECE: i64 = 1 << 20;
const PIECES: i64 = 64;

/// The memory budget for windows and retransmission buffers of all links of the process.
#[derive(Debug)]
pub struct ProcessBudget {
    left: AtomicI64,
    total: i64,
    piece: i64,
}

impl ProcessBudget {
    /// A budget of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Self> {
        let total = i64::try_from(bytes).unwrap_or(i64::MAX);
        let piece = (total / PIECES).clamp(1, PIECE);
        Arc::new(Self { left: AtomicI64::new(total), total, piece })
    }

    /// Bytes that no worker has leased. Negative if more bytes are in use than the budget allows.
    #[must_use]
    pub fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes bytes that are not charged to a worker, if the budget has them.
    #[must_use]
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Held> {
        let mut held = Held { process: Arc::clone(self), bytes: 0 };
        held.grow(bytes).then_some(held)
    }

    /// The size of the whole budget, in bytes.
    #[must_use]
    pub const fn total(&self) -> i64 {
        self.total
    }
}

/// The part of the process budget that a worker holds.
#[derive(Debug)]
pub struct Lease {
    process: Arc<ProcessBudget>,
    held: Cell<i64>,
}

impl Lease {
    /// A lease that holds no bytes yet.
    #[must_use]
    pub const fn new(process: Arc<ProcessBudget>) -> Self {
        Self { process, held: Cell::new(0) }
    }

    /// The budget from which this lease takes its bytes.
    #[must_use]
    pub fn process(&self) -> &ProcessBudget {
        &self.process
    }

    /// The same budget, for another thread.
    #[must_use]
    pub const fn shared(&self) -> &Arc<ProcessBudget> {
        &self.process
    }

    /// Leased bytes that are not in use. Negative if more bytes are in use than the budget allows.
    #[must_use]
    pub fn unused(&self) -> i64 {
        self.held.get()
    }

    /// Charges bytes that move to another worker, even beyond the budget.
    #[must_use]
    pub fn hold(&self, bytes: u64) -> Held {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.process.left.fetch_sub(bytes, Ordering::Relaxed);
        Held { process: Arc::clone(&self.process), bytes }
    }

    fn refill(&self, wanted: i64) -> bool {
        let missing = wanted.saturating_sub(self.held.get());
        self.lease(missing.max(self.process.piece)) || self.lease(missing)
    }

    fn lease(&self, bytes: i64) -> bool {
        // Another worker may take the bytes first. Then this worker takes nothing.
        let taken = self.process.left.fetch_sub(bytes, Ordering::Relaxed) >= bytes;
        if taken {
            self.held.set(self.held.get() + bytes);
        } else {
            self.process.left.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }
}

/// Bytes of the process budget that are not charged to a worker. Dropping the value releases them.
#[derive(Debug)]
pub struct Held {
    process: Arc<ProcessBudget>,
    bytes: i64,
}

impl Held {
    /// Takes `bytes` more, if the budget has them. Returns whether it has.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let is_there = |left: i64| left.checked_sub(bytes).filter(|left| *left >= 0);
        let taken = self.process.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_there);
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.process.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl Budget for Lease {
    fn draw(&self, bytes: u64) -> bool {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.held.get() < wanted && !self.refill(wanted) {
            return false;
        }
        self.held.set(self.held.get() - wanted);
        true
    }

    fn charge(&self, bytes: u64) {
        if !self.draw(bytes) {
            self.held.set(self.held.get().saturating_sub_unsigned(bytes));
        }
    }

    fn release(&self, bytes: u64) {
        let held = self.held.get().saturating_add_unsigned(bytes);
        let piece = self.process.piece;
        if held > 2 * piece {
            self.process.left.fetch_add(held - piece, Ordering::Relaxed);
            self.held.set(piece);
        } else {
            self.held.set(held);
        }
    }

    fn left(&self) -> u64 {
        // A debt of this worker reduces the sum. A debt of other workers does not.
        let left = self.held.get().saturating_add(self.process.left().max(0));
        u64::try_from(left).unwrap_or(0)
    }

    fn total(&self) -> u64 {
        u64::try_from(self.process.total).unwrap_or(0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.process.left.fetch_add(self.held.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leases_never_draw_more_than_the_process_has() {
        let process = ProcessBudget::new(5 << 20);
        let (a, b) = (Lease::new(process.clone()), Lease::new(process.clone()));
        let mut drawn = 0;
        while a.draw(300 << 10) || b.draw(300 << 10) {
            drawn += 300 << 10;
        }
        assert!(drawn <= 5 << 20, "{drawn}");
        assert!(drawn >= 3 << 20, "pieces may lie unused, but not most of them");
        a.release(drawn);
        drop((a, b));
        assert_eq!(process.left(), 5 << 20);
    }

    #[test]
    fn what_is_in_use_already_is_charged_beyond_the_limit() {
        let process = ProcessBudget::new(1 << 20);
        let lease = Lease::new(process.clone());
        lease.charge(3 << 20);
        assert_eq!(lease.left(), 0);
        lease.release(3 << 20);
        drop(lease);
        assert_eq!(process.left(), 1 << 20);
    }
}
