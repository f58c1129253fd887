//! What a worker of a server has beside the state of every worker: doors.

use std::cell::RefCell;
use std::rc::Rc;

use relay::{Listening, Straight};
use tokio::sync::Notify;

/// The state of a server on one worker.
#[derive(Default)]
pub(crate) struct ServerState {
    /// The listeners of doors.
    pub(super) doors: RefCell<Vec<Listening>>,
    /// The default targets of `mux://` doors, with the URLs of the doors.
    pub(crate) defaults: RefCell<Vec<(String, Rc<Straight>)>>,
    /// Notified when this process leaves: connections that its HTTP proxy serves end.
    pub(super) leaving: Notify,
}
