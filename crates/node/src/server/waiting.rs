//! Connections that are not decided yet: their log-in or their first bytes are still to come. A
//! server holds a bounded number of them, and the oldest leaves when there are too many.

use std::collections::VecDeque;

use tokio::task::{AbortHandle, yield_now};

/// The tasks of connections that are not decided, oldest first. A connection that is decided
/// remains in the list until the next clean-up.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<AbortHandle>);

impl Waiting {
    /// The number of tasks in the list.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, task: AbortHandle) {
        // The list is cleaned before it grows, so its memory follows the number of waiting
        // connections.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|task| !task.is_finished());
        }
        self.0.push_back(task);
    }

    pub(super) fn are_more_than(&mut self, most: usize) -> bool {
        if self.0.len() > most {
            self.0.retain(|task| !task.is_finished());
        }
        self.0.len() > most
    }

    /// Whether the oldest connection can be closed. The newest connection always stays.
    pub(super) fn are_several(&mut self) -> bool {
        self.0.retain(|task| !task.is_finished());
        self.0.len() > 1
    }

    /// Closes the oldest connection. The future is ready when its socket is closed. False when
    /// there is no such connection.
    pub(super) async fn oldest_leaves(&mut self) -> bool {
        if !self.abort_oldest() {
            return false;
        }
        yield_now().await;
        true
    }

    /// Closes the oldest connection; its socket is closed after a turn of the runtime.
    pub(super) fn abort_oldest(&mut self) -> bool {
        while let Some(oldest) = self.0.pop_front() {
            if !oldest.is_finished() {
                oldest.abort();
                return true;
            }
        }
        false
    }
}
