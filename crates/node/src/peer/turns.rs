//! Bounds on what visitors have this client do at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::greeting::Name;

/// A number of places, of which no visitor may hold all.
#[derive(Debug)]
pub(super) struct Turns {
    all: u32,
    of_visitor: u32,
    /// The places that are taken, by the name of the visitor.
    taken: Mutex<HashMap<Name, u32>>,
}

impl Turns {
    /// So many places, and so many of one visitor.
    pub(super) fn new(all: u32, of_visitor: u32) -> Arc<Self> {
        Arc::new(Self { all, of_visitor, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Name, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. `None`: the visitor has all of its own, or there is none left.
    pub(super) fn take(self: &Arc<Self>, visitor: &Name) -> Option<Turn> {
        let mut taken = self.taken();
        let own = taken.get(visitor).copied().unwrap_or(0);
        if own >= self.of_visitor || taken.values().sum::<u32>() >= self.all {
            return None;
        }
        taken.insert(visitor.clone(), own + 1);
        drop(taken);
        Some(Turn { turns: Arc::clone(self), visitor: visitor.clone() })
    }
}

/// A place of a visitor.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    visitor: Name,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.turns.taken();
        match taken.get_mut(&self.visitor) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(taken.remove(&self.visitor)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::direct::DirectPaths;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_visitor_leaves_places_to_others_and_gives_its_own_back() {
        let turns = Turns::new(3, 2);
        let (own, other) = (name("laptop"), name("phone"));
        let held: Vec<_> = (0..5).filter_map(|_| turns.take(&own)).collect();
        assert_eq!(held.len(), 2);
        let third = turns.take(&other);
        assert!(third.is_some() && turns.take(&other).is_none(), "all are taken");
        drop(held);
        assert!(turns.take(&own).is_some());
        drop(third);
        assert!(turns.taken().is_empty());
    }

    #[test]
    fn the_trials_of_one_visitor_leave_trials_to_others() {
        let paths = DirectPaths::default();
        let held: Vec<_> = (0..100).filter_map(|_| paths.answer(&name("laptop"))).collect();
        assert_eq!(held.len(), 8);
        assert!(paths.answer(&name("phone")).is_some());
    }
}
