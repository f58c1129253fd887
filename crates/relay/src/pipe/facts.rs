//! The state of a stream as named flags in one byte, because there are many idle streams.

use std::cell::Cell;

/// A fact about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// The end was dialled: it is a target.
    Target,
    /// A byte or an end arrived from the far side, so the far side serves the stream.
    Served,
    /// The stream has its own rates, so only the pump writes.
    Paced,
    /// Another end may serve the visitor until the far side does.
    Revocable,
    /// The reader of a stream without a socket waits for the silence of the link.
    Asking,
    /// The link of a stream that is [`Self::Revocable`] or [`Self::Asking`] is silent.
    Silent,
    /// A write has reported that the connection is lost.
    Lost,
}

impl Fact {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The facts recorded for a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts(Cell<u8>);

impl Facts {
    /// Whether a fact is recorded.
    pub(super) const fn has(&self, fact: Fact) -> bool {
        self.0.get() & fact.bit() != 0
    }

    /// Records a fact. Returns whether it was recorded before.
    pub(super) fn note(&self, fact: Fact) -> bool {
        let known = self.0.get();
        self.0.set(known | fact.bit());
        known & fact.bit() != 0
    }

    /// Clears a fact. Returns whether it was recorded.
    pub(super) fn forget(&self, fact: Fact) -> bool {
        let known = self.0.get();
        self.0.set(known & !fact.bit());
        known & fact.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Fact; 7] = [
        Fact::Target,
        Fact::Served,
        Fact::Paced,
        Fact::Revocable,
        Fact::Asking,
        Fact::Silent,
        Fact::Lost,
    ];

    #[test]
    fn each_fact_is_noted_and_forgotten_alone() {
        let facts = Facts::default();
        for (nth, fact) in ALL.into_iter().enumerate() {
            assert!(!facts.note(fact) && facts.note(fact), "{fact:?}");
            let known = ALL.into_iter().filter(|fact| facts.has(*fact)).count();
            assert_eq!(known, nth + 1, "{fact:?}");
        }
        assert!(facts.forget(Fact::Silent) && !facts.forget(Fact::Silent));
        let known: Vec<_> = ALL.into_iter().filter(|fact| facts.has(*fact)).collect();
        assert_eq!(known.len(), ALL.len() - 1);
        assert!(!known.contains(&Fact::Silent));
    }
}
