//! Charges the buffers of a carrier to the memory budget. Streams charge their own memory.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use proto::Budget;

/// The memory of a carrier without its buffers, in bytes: the state of its TLS session (the larger
/// part), the socket, two tasks.
const CARRIER_MEMORY: u64 = 16 << 10;

/// A charge that follows the size of the buffers. Dropping it releases the charge.
pub(crate) struct Charge {
    budget: Rc<dyn Budget>,
    charged: Cell<u64>,
}

impl Charge {
    pub(crate) fn new(budget: Rc<dyn Budget>) -> Self {
        budget.charge(CARRIER_MEMORY);
        Self { budget, charged: Cell::new(CARRIER_MEMORY) }
    }

    /// Sets the current size of the carrier's buffers, in bytes.
    pub(crate) fn set(&self, buffers: usize) {
        // The size of a buffer fits into a u64.
        let held = CARRIER_MEMORY.saturating_add(buffers as u64);
        let charged = self.charged.replace(held);
        if held > charged {
            self.budget.charge(held - charged);
        } else if held < charged {
            self.budget.release(charged - held);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.charged.get());
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.charged.get()).finish()
    }
}
