//! What a carrier tells the memory budget of its own buffers; those of streams tell it themselves.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use proto::Budget;

/// What a carrier costs beside its buffers: the socket, the state of its TLS session (the larger
/// part), two tasks.
const CARRIER_MEMORY: u64 = 16 << 10;

/// A charge that follows what is held, and is given back when the carrier is dropped.
pub(crate) struct Charge {
    budget: Rc<dyn Budget>,
    told: Cell<u64>,
}

impl Charge {
    pub(crate) fn new(budget: Rc<dyn Budget>) -> Self {
        budget.charge(CARRIER_MEMORY);
        Self { budget, told: Cell::new(CARRIER_MEMORY) }
    }

    /// The carrier's buffers take so many bytes now.
    pub(crate) fn set(&self, buffers: usize) {
        // A buffer's size is far below the end of u64.
        let held = CARRIER_MEMORY.saturating_add(buffers as u64);
        let told = self.told.replace(held);
        if held > told {
            self.budget.charge(held - told);
        } else if held < told {
            self.budget.release(told - held);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.told.get());
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.told.get()).finish()
    }
}
