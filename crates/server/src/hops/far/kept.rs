//! The order in which names became known, for the name that makes room for another.

use std::collections::VecDeque;

use cluster::names::Key;

/// The names that are known, the oldest first.
#[derive(Debug)]
pub(super) struct KeptNames {
    /// Also has names that are not known any more, and at most twice the number of names.
    order: VecDeque<Key>,
    known: usize,
    most: usize,
}

impl KeptNames {
    /// At most this number of names.
    pub(super) const fn new(most: usize) -> Self {
        Self { order: VecDeque::new(), known: 0, most }
    }

    /// A name is about to become known. Returns the name that makes room for it: the name that is
    /// known for the longest time. A visitor of that name has the cluster asked once more.
    pub(super) fn admit(&mut self, key: &Key, is_known: impl Fn(&Key) -> bool) -> Option<Key> {
        if self.order.len() >= 2 * self.most {
            self.order.retain(&is_known);
        }
        let mut gone = None;
        while self.known >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            if is_known(&oldest) {
                self.known -= 1;
                gone = Some(oldest);
            }
        }
        self.order.push_back(key.clone());
        self.known += 1;
        gone
    }

    /// A name is not known any more.
    pub(super) const fn forget(&mut self) {
        self.known = self.known.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use cluster::names::Space;

    use super::*;

    #[test]
    fn the_oldest_name_that_is_known_makes_room() {
        let key = |name: &str| Key::Host(Space::Http, name.into());
        let mut known: HashSet<Key> = HashSet::new();
        let mut kept = KeptNames::new(3);
        let admit = |kept: &mut KeptNames, known: &mut HashSet<Key>, name: &str| {
            let gone = kept.admit(&key(name), |key| known.contains(key));
            if let Some(gone) = &gone {
                known.remove(gone);
            }
            known.insert(key(name));
            gone
        };
        for name in ["a", "b", "c"] {
            assert_eq!(admit(&mut kept, &mut known, name), None);
        }
        assert_eq!(admit(&mut kept, &mut known, "d"), Some(key("a")));
        // A name that its client has withdrawn has left room.
        known.remove(&key("b"));
        kept.forget();
        assert_eq!(admit(&mut kept, &mut known, "e"), None);
        assert_eq!(admit(&mut kept, &mut known, "f"), Some(key("c")));
        assert_eq!(known.len(), 3);
    }
}
