//! Slices of a long survey on a worker.

use tokio::task::yield_now;

/// The number of items between two yields to the other tasks of the worker. They take less than 0.2
/// ms without optimisation: beside endless surveys of 100,000 streams, 99 % of the echoes over TCP
/// on the same worker take less than 0.5 ms.
pub(super) const SLICE: usize = 256;

/// Counts the visited items of a survey.
#[derive(Debug, Default)]
pub(super) struct Slices {
    looks: usize,
}

impl Slices {
    /// Counts `looks` items, and yields when they fill a slice.
    pub(super) async fn count(&mut self, looks: usize) {
        self.looks += looks;
        if self.looks >= SLICE {
            self.looks = 0;
            yield_now().await;
        }
    }
}
