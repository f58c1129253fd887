//! Slices of a long survey on a worker.

use tokio::task::yield_now;

/// The looks between two turns of the other tasks of the worker. They take less than 0.2 ms without
/// optimisation: beside surveys of 100,000 streams without end, 99 % of the echoes over TCP on the
/// same worker take less than 0.5 ms.
pub(super) const SLICE: usize = 256;

/// Counts the looks of a survey.
#[derive(Debug, Default)]
pub(super) struct Slices {
    looks: usize,
}

impl Slices {
    /// Counts `looks`, and gives way when they fill a slice.
    pub(super) async fn count(&mut self, looks: usize) {
        self.looks += looks;
        if self.looks >= SLICE {
            self.looks = 0;
            yield_now().await;
        }
    }
}
