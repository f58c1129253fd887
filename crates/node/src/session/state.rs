//! The state of a worker: the common state of all roles, and the states of the parts above this
//! module, such as the entrances and the roles. A part gets its own state by its type
//! ([`State::of`]), so this module does not depend on the parts.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use ::link::Lease;
use ::link::client::Redial;
use relay::{Dials, Stats};

use crate::memory::Accounts;
use crate::parts::Portion;
use crate::workers;

use super::links::Links;

/// The state of a worker.
pub struct State {
    pub(super) links: Links,
    /// The counters of closed entrances, with the label of their streams.
    former: RefCell<Vec<(Weak<Stats>, String)>>,
    /// The share of this worker in the memory budget.
    pub budget: Rc<Lease>,
    /// The same budget, divided into parts for visitors and clients.
    pub portion: Portion,
    /// The memory of visitors, and the number of those that were refused.
    pub accounts: Accounts,
    /// The dials of this worker. Their accounts are clients on a server, and services on a client.
    pub dials: Dials,
    /// The command that ends the reconnect delays of the links of this worker.
    pub redial: Rc<Redial>,
    /// The states of parts, a handful, each created on first use.
    parts: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
}

/// A worker of any role.
pub type Worker = workers::Worker<State>;
/// A handle of one worker.
pub type Handle = workers::Handle<State>;
/// The set of all workers.
pub type Workers = workers::Workers<State>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl State {
    pub fn new(budget: Lease) -> Self {
        let budget = Rc::new(budget);
        let portion = Portion::new(&budget);
        Self {
            links: Links::default(),
            former: RefCell::default(),
            accounts: Accounts::new(portion.clone()),
            portion,
            dials: Dials::charged_to(Rc::<Lease>::clone(&budget)),
            budget,
            redial: Rc::default(),
            parts: RefCell::default(),
        }
    }

    /// The state of a part on this worker. The state of a part that this process does not run is
    /// empty.
    pub fn of<T: Default + 'static>(&self) -> Rc<T> {
        let wanted = TypeId::of::<T>();
        let known = self.parts.borrow().iter().find_map(|(part, state)| {
            (*part == wanted).then(|| Rc::clone(state).downcast().ok()).flatten()
        });
        known.unwrap_or_else(|| {
            let state = Rc::<T>::default();
            self.parts.borrow_mut().push((wanted, Rc::<T>::clone(&state)));
            state
        })
    }

    /// The labels of closed entrances that have streams, by the identity of the counters.
    pub fn former_names(&self) -> Vec<(*const (), String)> {
        let former = self.former.borrow();
        let known = former.iter();
        known
            .filter_map(|(stats, label)| Some((stats.upgrade()?.identity(), label.clone())))
            .collect()
    }

    /// Keeps the counters of an entrance that closes, or of a session that no longer shares it,
    /// because the streams may outlive it.
    pub fn remember(&self, stats: &Rc<Stats>, label: String) {
        let mut former = self.former.borrow_mut();
        former.retain(|(stats, _)| stats.strong_count() > 0);
        former.push((Rc::downgrade(stats), label));
    }
}
