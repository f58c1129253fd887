//! A part of the memory budget, held for a visitor that is not charged to a stream.

use std::cell::Cell;
use std::rc::Rc;

use proto::Budget;

/// New visitors leave 1/8 of the budget to streams, whose implicit windows cannot be refused.
const RESERVE: u64 = 8;

/// Bytes charged to a budget. Dropping the value releases them.
#[derive(Debug)]
pub struct Held {
    /// `None`: nothing is charged.
    budget: Option<Rc<dyn Budget>>,
    bytes: Cell<u64>,
}

impl Held {
    /// Charges `bytes`. `None`: the budget has too little left.
    #[must_use]
    pub fn draw(budget: &Rc<dyn Budget>, bytes: u64) -> Option<Self> {
        let held = Self::none(Some(budget));
        held.affords(bytes).then(|| {
            held.set(bytes);
            held
        })
    }

    /// Charges nothing yet.
    pub(crate) fn none(budget: Option<&Rc<dyn Budget>>) -> Self {
        Self { budget: budget.cloned(), bytes: Cell::new(0) }
    }

    /// Charges nothing yet, for the same budget.
    pub(crate) fn beside(&self) -> Self {
        Self::none(self.budget.as_ref())
    }

    /// The budget; `None`: nothing is charged.
    pub(crate) const fn budget(&self) -> Option<&Rc<dyn Budget>> {
        self.budget.as_ref()
    }

    /// The number of charged bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether `bytes` more may be charged.
    pub(crate) fn affords(&self, bytes: u64) -> bool {
        self.budget
            .as_ref()
            .is_none_or(|budget| budget.left() >= (budget.total() / RESERVE).saturating_add(bytes))
    }

    /// Sets the number of charged bytes, even beyond the budget.
    pub(crate) fn set(&self, bytes: u64) {
        let before = self.bytes.replace(bytes);
        let Some(budget) = &self.budget else { return };
        if bytes > before {
            budget.charge(bytes - before);
        } else if bytes < before {
            budget.release(before - bytes);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
