//! How far the retirement of a link has come.

use std::cell::Cell;

use tokio::sync::Notify;

/// How far it has come.
#[derive(Debug, Default)]
pub(crate) struct Retirement {
    /// Another link is wanted.
    pub(crate) told_to_go: Cell<bool>,
    /// The owner knows that no more streams are taken.
    pub(crate) going_away: Cell<bool>,
    /// The peer has no stream left and opens none.
    pub(crate) peer_done: Cell<bool>,
    /// Tells whoever keeps links one after the other that this one is not to be used any more.
    pub(crate) fate: Notify,
}
