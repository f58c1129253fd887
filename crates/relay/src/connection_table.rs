//! The connections and flows of a worker that no link carries, so that they can be listed and
//! aborted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Bound;
use std::rc::{Rc, Weak};

/// A connection or a flow in a [`ConnectionTable`].
pub(crate) trait Tracked {
    /// Its counters and addresses. `None`: it has just ended.
    fn entry(&self) -> Option<ConnectionEntry>;

    /// Aborts it: both ends are reset or closed.
    fn abort(&self);
}

/// The description of a connection or a flow.
#[derive(Clone, Debug)]
pub struct ConnectionEntry {
    /// The address of the visitor, if it has one.
    pub visitor: Option<SocketAddr>,
    /// Bytes that the visitor sent.
    pub bytes_in: u64,
    /// Bytes that the target sent.
    pub bytes_out: u64,
    /// The identity of the counters of its service.
    pub counted: *const (),
}

/// The connections, or the flows, of one worker, keyed by number. Numbers are not reused.
#[derive(Default)]
pub struct ConnectionTable {
    all: RefCell<BTreeMap<u32, Weak<dyn Tracked>>>,
    last: RefCell<u32>,
}

impl ConnectionTable {
    /// Inserts an entry, which is removed when the returned `Place` is dropped.
    pub(crate) fn enter(self: &Rc<Self>, entry: Weak<dyn Tracked>) -> Place {
        let mut last = self.last.borrow_mut();
        *last = last.wrapping_add(1);
        self.all.borrow_mut().insert(*last, entry);
        Place { table: Rc::clone(self), number: *last }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    /// At most `most` entries with numbers above `after`, in the order of their numbers.
    #[must_use]
    pub fn list(&self, after: u32, most: usize) -> Vec<(u32, Option<ConnectionEntry>)> {
        let all = self.all.borrow();
        let some = all.range((Bound::Excluded(after), Bound::Unbounded)).take(most);
        let entry = |entry: &Weak<dyn Tracked>| entry.upgrade().and_then(|entry| entry.entry());
        some.map(|(number, weak)| (*number, entry(weak))).collect()
    }

    /// Aborts an entry. Returns false if no entry has this number.
    pub fn abort(&self, number: u32) -> bool {
        let entry = self.all.borrow().get(&number).and_then(Weak::upgrade);
        entry.is_some_and(|entry| {
            entry.abort();
            true
        })
    }
}

impl fmt::Debug for ConnectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionTable({})", self.len())
    }
}

/// An entry's place in a table.
pub(crate) struct Place {
    table: Rc<ConnectionTable>,
    number: u32,
}

impl Place {
    /// Replaces the entry: the connection has another form and keeps its number.
    pub(crate) fn renew(&self, entry: Weak<dyn Tracked>) {
        self.table.all.borrow_mut().insert(self.number, entry);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.all.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ptr;

    use super::*;

    #[derive(Default)]
    struct Fake(Cell<bool>);

    impl Tracked for Fake {
        fn entry(&self) -> Option<ConnectionEntry> {
            Some(ConnectionEntry { visitor: None, bytes_in: 1, bytes_out: 2, counted: ptr::null() })
        }

        fn abort(&self) {
            self.0.set(true);
        }
    }

    #[test]
    fn an_entry_has_its_number_until_its_place_is_dropped_and_nobody_gets_it_again() {
        let (table, fakes) =
            (Rc::<ConnectionTable>::default(), [(); 3].map(|()| Rc::<Fake>::default()));
        let enter = |fake: &Rc<Fake>| {
            let fake: Rc<dyn Tracked> = Rc::<Fake>::clone(fake);
            table.enter(Rc::downgrade(&fake))
        };
        let numbers = || table.list(0, 9).into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        let [first, second] = [&fakes[0], &fakes[1]].map(enter);
        assert_eq!(numbers(), [1, 2]);
        assert!(table.abort(2) && fakes[1].0.get() && !fakes[0].0.get());
        drop(second);
        assert!(!table.abort(2));
        let third = enter(&fakes[2]);
        assert_eq!(numbers(), [1, 3]);
        assert_eq!(table.list(1, 9).len(), 1);
        drop((first, third));
        assert!(table.is_empty());
    }
}
