//! The answers of look-ups, bounded by their number: the answer that was not used for the longest
//! time is forgotten first.

use std::collections::BTreeMap;

use super::io::{PeerKnowledge, Subject};
use crate::moment::Moment;

#[derive(Clone, Debug, Hash)]
pub(super) struct CachedAnswer {
    pub(super) known: PeerKnowledge,
    /// When the request for it was sent.
    pub(super) read: Moment,
    used: u64,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Cache {
    most: usize,
    entries: BTreeMap<Subject, CachedAnswer>,
    /// By the number of their last use.
    order: BTreeMap<u64, Subject>,
    uses: u64,
}

impl Cache {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    pub(super) fn insert(&mut self, subject: Subject, known: PeerKnowledge, read: Moment) {
        self.remove(&subject);
        self.uses += 1;
        self.order.insert(self.uses, subject.clone());
        self.entries.insert(subject, CachedAnswer { known, read, used: self.uses });
        while self.entries.len() > self.most {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.entries.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, subject: &Subject) {
        if let Some(entry) = self.entries.remove(subject) {
            self.order.remove(&entry.used);
        }
    }

    /// An answer, which counts as used.
    pub(super) fn used(&mut self, subject: &Subject) -> Option<&CachedAnswer> {
        let entry = self.entries.get_mut(subject)?;
        self.order.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.order.insert(self.uses, subject.clone());
        Some(entry)
    }

    /// An answer, without a use.
    pub(super) fn peek(&self, subject: &Subject) -> Option<&CachedAnswer> {
        self.entries.get(subject)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ClientName;

    #[test]
    fn the_answer_that_was_not_used_for_the_longest_time_is_forgotten() {
        let subject = |name| Subject::Client(ClientName::new(name).unwrap());
        let mut cache = Cache::new(2);
        for name in ["a", "b"] {
            cache.insert(subject(name), PeerKnowledge::Absent, Moment::default());
        }
        assert!(cache.used(&subject("a")).is_some());
        cache.insert(subject("c"), PeerKnowledge::Absent, Moment::default());
        cache.insert(subject("c"), PeerKnowledge::Absent, Moment::default());
        assert_eq!((cache.len(), cache.order.len()), (2, 2));
        assert!(cache.peek(&subject("b")).is_none());
        cache.remove(&subject("a"));
        assert_eq!((cache.len(), cache.order.len()), (1, 1));
    }
}
