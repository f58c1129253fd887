//! What a worker of a server has beside the state of every worker: doors.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use proto::greeting::Name;
use relay::{Listening, Stats, Straight};
use tokio::sync::Notify;

use crate::session::{PrivateStats, Session};

/// The state of a server on one worker.
#[derive(Default)]
pub(crate) struct ServerState {
    /// The listeners of doors.
    pub(super) doors: RefCell<Vec<Listening>>,
    /// The default targets of `mux://` doors, with the URLs of the doors.
    pub(crate) defaults: RefCell<Vec<(String, Rc<Straight>)>>,
    /// The counters of private services. Those of sessions that have ended leave at the next look.
    private: RefCell<Vec<PrivateStats>>,
    /// This process leaves: connections of HTTP end that end here.
    is_leaving: Cell<bool>,
    /// Notified when this process leaves.
    leaving: Notify,
}

impl ServerState {
    /// The counters of a private service of this session.
    pub(super) fn stats_of(&self, session: &Arc<Session>, service: &Name) -> Rc<Stats> {
        let mut all = self.private.borrow_mut();
        let is_it = |one: &&PrivateStats| one.session.id == session.id && one.service == *service;
        if let Some(known) = all.iter().find(is_it) {
            return Rc::clone(&known.stats);
        }
        all.retain(|one| one.session.has_links() || Rc::strong_count(&one.stats) > 1);
        let stats = Rc::<Stats>::default();
        let (session, service) = (Arc::clone(session), service.clone());
        all.push(PrivateStats { session, service, stats: Rc::clone(&stats) });
        stats
    }

    /// Shows the counters of each private service.
    pub(crate) fn each_private(&self, show: impl FnMut(&PrivateStats)) {
        self.private.borrow().iter().for_each(show);
    }

    /// This process leaves.
    pub(super) fn leave(&self) {
        self.is_leaving.set(true);
        self.leaving.notify_waiters();
    }

    /// Waits until this process leaves.
    pub(super) async fn left(&self) {
        // State and future live on one thread, so nothing happens between the two.
        if !self.is_leaving.get() {
            self.leaving.notified().await;
        }
    }
}
