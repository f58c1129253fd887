//! Limits on concurrent work for visitors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::visit::VisitKey;

/// The limits of the slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: u32,
    /// The maximum number of slots of one visitor, over all services.
    pub(super) of_visitor: u32,
    /// The maximum number of slots of one visitor at one service.
    pub(super) of_service: u32,
}

/// A limited number of slots, of which no visitor may hold all.
#[derive(Debug)]
pub(super) struct Turns {
    bounds: Bounds,
    taken: Mutex<HashMap<VisitKey, u32>>,
}

impl Turns {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<VisitKey, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot. `None`: the visitor has reached its limit, or no slot is left.
    pub(super) fn take(self: &Arc<Self>, whose: &VisitKey) -> Option<Turn> {
        let Bounds { all, of_visitor, of_service } = self.bounds;
        let mut taken = self.taken();
        let own = taken.get(whose).copied().unwrap_or(0);
        let by_visitor = taken.iter().filter(|(other, _)| other.visitor == whose.visitor);
        let by_visitor: u32 = by_visitor.map(|(_, count)| count).sum();
        if own >= of_service || by_visitor >= of_visitor || taken.values().sum::<u32>() >= all {
            return None;
        }
        taken.insert(whose.clone(), own + 1);
        drop(taken);
        Some(Turn { turns: Arc::clone(self), whose: whose.clone() })
    }
}

/// A slot of a visitor.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    whose: VisitKey,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.turns.taken();
        match taken.get_mut(&self.whose) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(taken.remove(&self.whose)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::greeting::Name;

    use super::*;
    use crate::accept::PeerHost;
    use crate::direct::DirectPaths;

    fn whose(visitor: &str, service: u32) -> VisitKey {
        let service = Name::new(&format!("s{service}")).unwrap();
        VisitKey { visitor: Name::new(visitor).unwrap(), service }
    }

    /// Takes nine places at each of many services.
    fn fill(take: impl Fn(&VisitKey) -> Option<Turn>, visitor: &str) -> Vec<Turn> {
        let all = (0..100).flat_map(|service| std::iter::repeat_n(service, 9));
        all.filter_map(|service| take(&whose(visitor, service))).collect()
    }

    #[test]
    fn a_visitor_leaves_places_to_others_and_gives_its_own_back() {
        let turns = Turns::new(Bounds { all: 3, of_visitor: 2, of_service: 1 });
        let take = |visitor, service| turns.take(&whose(visitor, service));
        let held = [take("laptop", 0).unwrap(), take("laptop", 1).unwrap()];
        assert!(take("laptop", 2).is_none());
        let third = take("phone", 0);
        assert!(third.is_some() && take("desktop", 0).is_none(), "all are taken");
        drop(held);
        let again = take("laptop", 0);
        assert!(again.is_some() && take("laptop", 0).is_none(), "the same service");
        drop((third, again));
        assert!(turns.taken().is_empty());
    }

    #[test]
    fn greetings_at_one_service_leave_room_at_others_up_to_the_bounds_of_a_visitor_and_of_all() {
        let host = PeerHost::default();
        let mut held: Vec<_> = (0..9).filter_map(|_| host.greet(&whose("laptop", 0))).collect();
        assert_eq!(held.len(), 8);
        held.extend(host.greet(&whose("laptop", 1)));
        assert_eq!(held.len(), 9, "another service");
        held.extend(fill(|whose| host.greet(whose), "laptop"));
        assert_eq!(held.len(), 64);
        let others = ["a", "b", "c", "d"].map(|visitor| fill(|whose| host.greet(whose), visitor));
        assert_eq!(others.each_ref().map(Vec::len), [64, 64, 64, 0]);
    }

    #[tokio::test]
    async fn the_trials_of_one_visitor_leave_trials_to_others() {
        let paths = DirectPaths::counting(&Arc::default());
        let held = fill(|whose| paths.answer(whose), "laptop");
        assert_eq!(held.len(), 8);
        assert!(paths.answer(&whose("phone", 0)).is_some());
    }
}
