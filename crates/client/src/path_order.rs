//! The order in which links try the paths to their server, where the paths are chosen by
//! measurement: one value for the links of all workers.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// The order of the paths of links that were made together. The task that chooses sets it.
#[derive(Debug, Default)]
pub(super) struct PathsInOrder(ArcSwap<Vec<usize>>);

impl PathsInOrder {
    pub(super) fn set(&self, order: Vec<usize>) {
        if **self.0.load() != order {
            self.0.store(Arc::new(order));
        }
    }

    pub(super) fn get(&self) -> Vec<usize> {
        Vec::clone(&self.0.load())
    }
}
