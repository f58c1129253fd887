//! When this process has no descriptor or port for a socket, the worker evicts its least valuable
//! flow. Dials request evictions here and flow tables register here, so they do not depend on each
//! other.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

/// The maximum number of flows that a worker evicts to free one socket: a flow whose name is being
/// resolved has no socket.
const TRIES: usize = 64;

/// Notified when a worker needs a socket and has no flow that may be evicted.
pub(crate) static WANTED: Notify = Notify::const_new();

thread_local! {
    /// The flow tables of this worker.
    static TABLES: RefCell<Vec<Weak<dyn Evict>>> = const { RefCell::new(Vec::new()) };
}

/// A flow that may be evicted. The least candidate is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) rank: u8,
    pub(crate) used: Instant,
    /// The index of the flow in its table.
    pub(crate) index: u32,
}

/// A table whose flows may be evicted.
pub(crate) trait Evict {
    /// The flow that is evicted first. `None`: no flow may be evicted.
    fn candidate(&self) -> Option<Candidate>;

    /// Evicts a flow. Returns whether it had a socket.
    fn evict(&self, candidate: Candidate) -> bool;
}

/// Registers a table of this thread until the table is dropped. Registering a table twice has no
/// effect.
pub(crate) fn register(table: Weak<dyn Evict>) {
    TABLES.with_borrow_mut(|tables| {
        tables.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&table));
        tables.push(table);
    });
}

/// Evicts a flow of this worker, so that its socket is free. Returns false if no flow may be
/// evicted; then other workers are notified, whose evictions take a moment.
pub(crate) fn make_room() -> bool {
    for _ in 0..TRIES {
        let tables: Vec<_> =
            TABLES.with_borrow(|tables| tables.iter().filter_map(Weak::upgrade).collect());
        let of = |table: Rc<dyn Evict>| Some((table.candidate()?, table));
        let least = tables.into_iter().filter_map(of).min_by_key(|(candidate, _)| *candidate);
        let Some((candidate, table)) = least else { break };
        if table.evict(candidate) {
            return true;
        }
    }
    WANTED.notify_waiters();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows by rank, each with whether it has a socket.
    #[derive(Default)]
    struct Table(RefCell<Vec<(u8, bool)>>);

    impl Evict for Table {
        fn candidate(&self) -> Option<Candidate> {
            let (rank, _) = *self.0.borrow().first()?;
            Some(Candidate { rank, used: Instant::now(), index: 0 })
        }

        fn evict(&self, candidate: Candidate) -> bool {
            self.0.borrow_mut().remove(candidate.index as usize).1
        }
    }

    fn table(flows: &[(u8, bool)]) -> Rc<Table> {
        let table = Rc::new(Table(RefCell::new(flows.to_vec())));
        for _ in 0..2 {
            let registered: Rc<dyn Evict> = Rc::<Table>::clone(&table);
            register(Rc::downgrade(&registered));
        }
        table
    }

    #[test]
    fn the_least_valuable_flow_of_all_tables_is_evicted_until_a_socket_is_free() {
        assert!(!make_room(), "there is no table");
        let (one, other) = (table(&[(2, true), (4, true)]), table(&[(1, false), (3, true)]));
        assert!(make_room());
        assert_eq!(*one.0.borrow(), [(4, true)]);
        assert_eq!(*other.0.borrow(), [(3, true)], "this flow had no socket");
        assert!(make_room());
        assert!(other.0.borrow().is_empty());
        drop(one);
        assert!(!make_room(), "a table that is gone has no flows");
        TABLES.with_borrow(|tables| assert_eq!(tables.len(), 2, "each is registered once"));
    }
}
