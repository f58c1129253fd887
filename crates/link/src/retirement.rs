//! How far the retirement of a link has come.

use std::cell::Cell;

use tokio::sync::Notify;

/// The progress of a retirement.
#[derive(Debug, Default)]
pub(crate) struct Retirement {
    /// The supervisor has to make a successor.
    pub(crate) told_to_go: Cell<bool>,
    /// The owner knows that no more streams are taken.
    pub(crate) going_away: Cell<bool>,
    /// The peer has no stream left and opens none.
    pub(crate) peer_done: Cell<bool>,
    /// Wakes the supervisor when the link needs a successor or is closed.
    pub(crate) fate: Notify,
}
