//! A memory budget that counts, for tests of the memory rules.

use std::cell::Cell;
use std::rc::Rc;

use proto::Budget;

/// A limited budget. Clones share one purse.
#[derive(Clone, Debug, Default)]
pub struct Purse {
    limit: u64,
    used: Rc<Cell<u64>>,
    most: Rc<Cell<u64>>,
}

impl Purse {
    /// A purse of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// The highest number of bytes that was ever in use.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most.get()
    }

    fn set(&self, used: u64) {
        self.used.set(used);
        self.most.set(self.most.get().max(used));
    }
}

impl Budget for Purse {
    fn draw(&self, bytes: u64) -> bool {
        let fits = self.used.get().saturating_add(bytes) <= self.limit;
        if fits {
            self.set(self.used.get() + bytes);
        }
        fits || bytes == 0
    }

    fn charge(&self, bytes: u64) {
        self.set(self.used.get() + bytes);
    }

    fn release(&self, bytes: u64) {
        let left = self.used.get().checked_sub(bytes).expect("released what was never drawn");
        self.used.set(left);
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.get())
    }

    fn total(&self) -> u64 {
        self.limit
    }
}
