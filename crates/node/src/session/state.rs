//! The state of a worker: here what all roles have, and beside it what one role owns
//! ([`ServerState`], [`ClientState`], [`ProxyState`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};

use ::link::Lease;
use relay::{Dials, Stats};

use crate::client::ClientState;
use crate::entrance::OpenEntrance;
use crate::memory::Accounts;
use crate::parts::Portion;
use crate::proxy::ProxyState;
use crate::server::ServerState;
use crate::workers;

use super::links::Links;

/// The state of a worker.
pub(crate) struct State {
    pub(super) links: Links,
    /// Open entrances by their ids.
    pub(crate) entrances: RefCell<HashMap<u64, OpenEntrance>>,
    /// The counters of closed entrances, with the label of their streams.
    former: RefCell<Vec<(Weak<Stats>, String)>>,
    /// The share of this worker in the memory budget.
    pub(crate) budget: Rc<Lease>,
    /// The same budget, of which visitors and clients have parts.
    pub(crate) portion: Portion,
    /// The memory of visitors, and the number of those that were refused.
    pub(crate) accounts: Accounts,
    /// The dials of this worker: an account is a client on a server, and a service on a client.
    pub(crate) dials: Dials,
    /// Empty on a client.
    pub(crate) server: ServerState,
    /// Empty on a server. A proxy has the counters of its targets here.
    pub(crate) client: ClientState,
    /// Empty on a server and on a client.
    pub(crate) proxy: ProxyState,
}

/// A worker of any role.
pub(crate) type Worker = workers::Worker<State>;
/// A handle of one worker.
pub(crate) type Handle = workers::Handle<State>;
/// The set of all workers.
pub(crate) type Workers = workers::Workers<State>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl State {
    pub(crate) fn new(budget: Lease) -> Self {
        let budget = Rc::new(budget);
        let portion = Portion::new(&budget);
        Self {
            links: Links::default(),
            entrances: RefCell::default(),
            former: RefCell::default(),
            accounts: Accounts::new(portion.clone()),
            portion,
            dials: Dials::charged_to(Rc::<Lease>::clone(&budget)),
            budget,
            server: ServerState::default(),
            client: ClientState::default(),
            proxy: ProxyState::default(),
        }
    }

    /// The labels of closed entrances that have streams, by the identity of the counters.
    pub(crate) fn former_names(&self) -> Vec<(*const (), String)> {
        let former = self.former.borrow();
        let known = former.iter();
        known
            .filter_map(|(stats, label)| Some((stats.upgrade()?.identity(), label.clone())))
            .collect()
    }

    /// Keeps the counters of an entrance that closes, or of a session that shares it no more, because
    /// the streams may outlive it.
    pub(crate) fn remember(&self, stats: &Rc<Stats>, label: String) {
        let mut former = self.former.borrow_mut();
        former.retain(|(stats, _)| stats.strong_count() > 0);
        former.push((Rc::downgrade(stats), label));
    }
}
