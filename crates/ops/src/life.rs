//! The phases of the process: running, draining, ending. Signals and `tunnel stop` advance the
//! phase, which never goes back, and any task may wait for a phase. A request to reload uses the
//! same type.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

/// A phase of the process.
///
/// ```text
///   Running --signal, `tunnel stop`--> Draining --either again, drain_timeout--> Ending
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The daemon serves.
    Running,
    /// The daemon takes no new streams and lets the present streams finish.
    Draining,
    /// The daemon ends the remaining streams.
    Ending,
}

/// The shared phase. Clones share one phase.
#[derive(Clone, Debug)]
pub struct Life(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<Phase>,
    reload: Notify,
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl Life {
    /// Starts in phase `Running`.
    pub fn new() -> Self {
        let phase = watch::Sender::new(Phase::Running);
        Self(Arc::new(Inner { phase, reload: Notify::new() }))
    }

    /// Asks for a reload. Requests that arrive before the waiting task handles one count as one.
    pub fn reload(&self) {
        self.0.reload.notify_one();
    }

    /// Completes when a reload is requested. Cancel-safe.
    pub async fn reload_asked(&self) {
        self.0.reload.notified().await;
    }

    /// Asks for a drain. No effect if the drain or the end has already begun.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Requests an immediate end.
    pub fn end(&self) {
        self.advance(Phase::Ending);
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        *self.0.phase.borrow()
    }

    /// Completes when `phase` or a later phase is reached. Cancel-safe.
    pub async fn reached(&self, phase: Phase) {
        // Fails only when the sender is gone, but `self` holds the sender.
        drop(self.0.phase.subscribe().wait_for(|now| *now >= phase).await);
    }

    fn advance(&self, to: Phase) {
        self.0.phase.send_if_modified(|now| {
            let further = to > *now;
            *now = to.max(*now);
            further
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_only_advance_and_a_later_one_includes_an_earlier() {
        let life = Life::new();
        let other = life.clone();
        let waits = tokio::spawn(async move { other.reached(Phase::Draining).await });
        life.end();
        life.drain();
        assert_eq!(life.phase(), Phase::Ending);
        waits.await.unwrap();
    }
}
