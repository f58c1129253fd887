//! The stage of the handover: whether the listeners of this process may accept.

use std::sync::LazyLock;

use tokio::sync::watch;

/// The stage of the handover, from the view of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The previous generation serves. This process binds but does not accept.
    Waiting,
    Serving,
    /// The next generation serves.
    HandedOver,
}

static STAGE: LazyLock<watch::Sender<Stage>> = LazyLock::new(|| watch::Sender::new(Stage::Serving));

pub(super) fn set(stage: Stage) {
    STAGE.send_replace(stage);
}

/// Whether this process is the serving generation, which owns the socket files.
#[must_use]
pub fn is_serving() -> bool {
    *STAGE.borrow() == Stage::Serving
}

/// Whether the next generation accepts.
#[must_use]
pub fn is_handed_over() -> bool {
    *STAGE.borrow() == Stage::HandedOver
}

/// Ready when listeners of this process may accept. Cancel-safe.
pub async fn serving() {
    reached(Stage::Serving).await;
}

/// Ready when the next generation accepts. Cancel-safe.
pub async fn handed_over() {
    reached(Stage::HandedOver).await;
}

async fn reached(stage: Stage) {
    // Fails only if the sender is dropped, and the sender is static.
    drop(STAGE.subscribe().wait_for(|now| *now >= stage).await);
}
