//! The progress of the retirement of a link.

use std::cell::Cell;

use tokio::sync::Notify;

/// The progress of a retirement.
#[derive(Debug, Default)]
pub(crate) struct Retirement {
    /// Whether the supervisor must make a successor.
    pub(crate) told_to_go: Cell<bool>,
    /// Whether the owner was notified that no more streams are taken.
    pub(crate) going_away: Cell<bool>,
    /// Whether the peer has no stream left and opens none.
    pub(crate) peer_done: Cell<bool>,
    /// Wakes the supervisor when the link needs a successor or is closed.
    pub(crate) fate: Notify,
}
