//! The descriptors that the listeners of all clients may use together on this server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limit of the descriptors of listeners.
#[derive(Debug)]
pub(super) struct Budget {
    used: Mutex<Used>,
    /// The maximum number of descriptors that the listeners of all clients may use.
    most: usize,
    /// The maximum number of them in the part of the descriptor table that is reserved for links
    /// and commands. Connections that have not logged in may hold all numbers below that part for a
    /// while, and a client whose log-in succeeds meanwhile must get its ports.
    most_kept: usize,
}

#[derive(Debug, Default)]
struct Used {
    descriptors: usize,
    kept: usize,
}

/// The reserved descriptors of one group of listeners. Dropping the value releases them.
#[derive(Debug)]
pub(super) struct Reserved {
    budget: Arc<Budget>,
    descriptors: usize,
    kept: usize,
}

impl Budget {
    pub(super) fn new(most: usize, most_kept: usize) -> Arc<Self> {
        Arc::new(Self { used: Mutex::default(), most, most_kept })
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves this number of descriptors. `None`: the listeners would use more than they may.
    pub(super) fn reserve(self: &Arc<Self>, descriptors: usize) -> Option<Reserved> {
        let mut used = self.used();
        let now = used.descriptors + descriptors;
        (now <= self.most).then(|| {
            used.descriptors = now;
            Reserved { budget: Arc::clone(self), descriptors, kept: 0 }
        })
    }
}

impl Reserved {
    /// Records that this number of its listeners is in the reserved part of the table. False: no
    /// more listeners may be there.
    pub(super) fn keep(&mut self, listeners: usize) -> bool {
        let mut used = self.budget.used();
        let is_room = used.kept + listeners <= self.budget.most_kept;
        if is_room {
            used.kept += listeners;
            self.kept += listeners;
        }
        is_room
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        used.descriptors -= self.descriptors;
        used.kept -= self.kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_share_their_descriptors() {
        let budget = Budget::new(4, 1);
        let mut first = budget.reserve(2).unwrap();
        let mut second = budget.reserve(2).unwrap();
        assert!(budget.reserve(1).is_none() && budget.reserve(0).is_some());
        assert!(!first.keep(2) && first.keep(1) && first.keep(0) && !second.keep(1));
        drop(first);
        assert!(second.keep(1));
        assert!(budget.reserve(3).is_none() && budget.reserve(2).is_some());
    }
}
