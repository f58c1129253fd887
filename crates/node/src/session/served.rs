//! The counters of streams without an entrance on a server: of private services, of the default
//! targets of doors, and of detours. A client counts its own detours.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use proto::greeting::Name;
use relay::{Stats, Straight};

use super::Session;

/// The counters of a private service on one worker.
#[derive(Debug)]
pub struct PrivateStats {
    pub session: Arc<Session>,
    pub service: Name,
    pub stats: Rc<Stats>,
}

/// The counters of a worker.
#[derive(Debug, Default)]
pub struct Served {
    /// The default targets of `mux://` doors, with the URLs of the doors.
    pub defaults: RefCell<Vec<(String, Rc<Straight>)>>,
    /// The counters of the streams that lead clients to other servers; on a client, of its own.
    pub detours: Rc<Stats>,
    /// The counters of private services. Those of ended sessions are removed when another is added.
    private: RefCell<Vec<PrivateStats>>,
}

impl Served {
    /// The counters of a private service of this session.
    pub fn stats_of(&self, session: &Arc<Session>, service: &Name) -> Rc<Stats> {
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

    /// Calls `show` with the counters of each private service.
    pub fn each_private(&self, show: impl FnMut(&PrivateStats)) {
        self.private.borrow().iter().for_each(show);
    }
}
