//! Slices of a long survey on a worker.

use tokio::task::yield_now;

/// The looks between two turns of the other tasks of the worker. A look at a stream takes up to half a
/// microsecond, so a slice delays a stream by 0.1 ms.
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
