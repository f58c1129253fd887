//! Changes as they come in fragments: which of them are complete. All changes of one revision are
//! given out together, so that a watch that goes on elsewhere begins between two revisions.

use std::mem;

use cluster::engine::{Change, Revision};

/// What fragments have brought of the last revision.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    changes: Vec<Change>,
    /// The bytes of their keys and values, and what a change takes besides.
    bytes: usize,
}

/// The changes of a watch go back to an earlier revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backwards;

/// The changes of whole revisions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) changes: Vec<Change>,
    pub(super) last: Revision,
}

impl Fragments {
    /// Takes the changes of a line; those before `from` are known already. Returns all changes of
    /// complete revisions: the last revision of a fragment goes on in the next line.
    pub(super) fn take(
        &mut self,
        changes: Vec<Change>,
        from: Revision,
        is_fragment: bool,
    ) -> Result<Option<Whole>, Backwards> {
        for change in changes.into_iter().filter(|change| revision(change) >= from) {
            if self.changes.last().is_some_and(|last| revision(last) > revision(&change)) {
                return Err(Backwards);
            }
            self.bytes += size(&change);
            self.changes.push(change);
        }
        let Some(last) = self.changes.last().map(revision) else { return Ok(None) };
        let end = if is_fragment {
            self.changes.partition_point(|change| revision(change) < last)
        } else {
            self.changes.len()
        };
        let Some(last) = end.checked_sub(1).and_then(|at| self.changes.get(at)).map(revision)
        else {
            return Ok(None);
        };
        // What is left came with this line, because all earlier changes had one revision.
        let rest = self.changes.split_off(end);
        self.bytes = rest.iter().map(size).sum();
        Ok(Some(Whole { changes: mem::replace(&mut self.changes, rest), last }))
    }

    /// The bytes that are held.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The revision of a change.
const fn revision(change: &Change) -> Revision {
    match change {
        Change::Put(key) => key.modified,
        Change::Delete { at, .. } => *at,
    }
}

/// What a change takes in memory.
fn size(change: &Change) -> usize {
    let bytes = match change {
        Change::Put(key) => key.key.len() + key.value.len(),
        Change::Delete { key, .. } => key.len(),
    };
    size_of::<Change>() + bytes
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(revision: u64) -> Change {
        Change::Delete { key: Bytes::from_static(b"k"), at: Revision(revision) }
    }

    fn list(revisions: &[u64]) -> Vec<Change> {
        revisions.iter().copied().map(at).collect()
    }

    #[test]
    fn the_last_revision_of_a_fragment_waits_for_the_next_line() {
        let mut held = Fragments::default();
        let whole = held.take(list(&[4, 5, 5]), Revision(4), true).unwrap().unwrap();
        assert_eq!(whole, Whole { changes: list(&[4]), last: Revision(4) });
        assert_eq!(held.take(list(&[5]), Revision(5), true), Ok(None));
        assert!(held.bytes() > 0);
        let whole = held.take(list(&[5, 6]), Revision(5), false).unwrap().unwrap();
        assert_eq!(whole, Whole { changes: list(&[5, 5, 5, 5, 6]), last: Revision(6) });
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn changes_that_go_back_are_refused() {
        assert_eq!(Fragments::default().take(list(&[5, 4]), Revision(1), false), Err(Backwards));
    }

    #[test]
    fn changes_that_are_known_already_are_left_out() {
        let whole =
            Fragments::default().take(list(&[1, 2, 3]), Revision(3), false).unwrap().unwrap();
        assert_eq!(whole.changes, list(&[3]));
        assert_eq!(Fragments::default().take(list(&[1]), Revision(3), false), Ok(None));
    }

    proptest! {
        #[test]
        fn no_revision_is_split_and_no_change_is_lost(
            steps in vec(0..2_u64, 1..40),
            fragments in vec(1..6_usize, 1..10),
        ) {
            let revisions: Vec<u64> = steps.iter().scan(1, |sum, step| {
                *sum += step;
                Some(*sum)
            }).collect();
            let (mut held, mut found, mut from) = (Fragments::default(), Vec::new(), Revision(1));
            let (mut rest, mut sizes) = (&revisions[..], fragments.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                rest = after;
                let whole = held.take(list(piece), from, !rest.is_empty()).unwrap();
                let Some(whole) = whole else { continue };
                // Nothing of this revision comes later.
                prop_assert!(rest.iter().all(|revision| *revision > whole.last.0));
                from = Revision(whole.last.0 + 1);
                found.extend(whole.changes);
            }
            prop_assert_eq!(found, list(&revisions));
        }
    }
}
