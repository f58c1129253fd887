//! The resources that are taken, by any client, and the descriptors that listeners use. The lock is
//! held for the look at a map, and never while a port is opened.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::Key;

/// The table of a server.
#[derive(Debug)]
pub(super) struct Table {
    taken: Mutex<Taken>,
    /// The most descriptors that the listeners of all clients may use.
    most: usize,
    /// The most of them whose numbers lie in the part of the descriptor table that is kept for
    /// links and commands. Connections that have not logged in may hold all numbers below that part
    /// for a while, and a client whose log-in succeeds meanwhile has to get its ports.
    most_kept: usize,
}

#[derive(Debug, Default)]
struct Taken {
    owners: HashMap<Key, Arc<str>>,
    descriptors: usize,
    kept: usize,
}

/// Why a resource cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The client itself has the resource.
    OwnedBySelf,
    /// Another client has the resource.
    OwnedByOther,
    /// The listeners would use more descriptors than they may.
    NoRoom,
}

/// A resource of a client. Dropping it frees the resource.
#[derive(Debug)]
pub(super) struct Claim {
    table: Arc<Table>,
    key: Key,
    descriptors: usize,
    kept: usize,
}

impl Table {
    pub(super) fn new(most: usize, most_kept: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), most, most_kept })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a resource for a client. Its listeners use this number of `descriptors`.
    pub(super) fn claim(
        self: &Arc<Self>,
        key: Key,
        owner: &Arc<str>,
        descriptors: usize,
    ) -> Result<Claim, Refused> {
        let mut taken = self.lock();
        let used = taken.descriptors + descriptors;
        match taken.owners.entry(key.clone()) {
            Entry::Occupied(other) if other.get() == owner => Err(Refused::OwnedBySelf),
            Entry::Occupied(_) => Err(Refused::OwnedByOther),
            Entry::Vacant(_) if used > self.most => Err(Refused::NoRoom),
            Entry::Vacant(place) => {
                place.insert(Arc::clone(owner));
                taken.descriptors = used;
                Ok(Claim { table: Arc::clone(self), key, descriptors, kept: 0 })
            }
        }
    }
}

impl Claim {
    /// The resource.
    pub(super) const fn key(&self) -> &Key {
        &self.key
    }

    /// Records that this number of its listeners lies in the part of the table that is kept for
    /// others. False: no more listeners may lie there.
    pub(super) fn keep(&mut self, listeners: usize) -> bool {
        let mut taken = self.table.lock();
        let is_room = taken.kept + listeners <= self.table.most_kept;
        if is_room {
            taken.kept += listeners;
            self.kept += listeners;
        }
        is_room
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = self.table.lock();
        taken.owners.remove(&self.key);
        taken.descriptors -= self.descriptors;
        taken.kept -= self.kept;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use config::Over;

    use super::*;

    #[test]
    fn a_resource_has_one_owner_and_listeners_share_their_descriptors() {
        let table = Table::new(4, 1);
        let [home, other] = ["home", "other"].map(Arc::<str>::from);
        let key = |over, port| Key::Port(over, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let claim = |key, owner, count| table.claim(key, owner, count).map(|_| ());
        let first = table.claim(key(Over::Tcp, 1), &home, 2).unwrap();
        assert_eq!(claim(key(Over::Tcp, 1), &home, 2), Err(Refused::OwnedBySelf));
        assert_eq!(claim(key(Over::Tcp, 1), &other, 2), Err(Refused::OwnedByOther));
        let second = table.claim(key(Over::Udp, 1), &other, 2).unwrap();
        assert_eq!(claim(key(Over::Tcp, 2), &other, 2), Err(Refused::NoRoom));
        drop(first);
        assert_eq!(claim(key(Over::Tcp, 1), &other, 2), Ok(()));
        drop(second);
        assert_eq!(claim(key(Over::Tcp, 2), &other, 4), Ok(()));

        let mut first = table.claim(key(Over::Tcp, 1), &home, 2).unwrap();
        let mut second = table.claim(key(Over::Tcp, 2), &home, 2).unwrap();
        assert!(!first.keep(2) && first.keep(1) && first.keep(0) && !second.keep(1));
        drop(first);
        assert!(second.keep(1));
    }
}
