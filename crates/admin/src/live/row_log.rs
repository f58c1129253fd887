//! The listed rows: which of them have been added, changed or removed since a revision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The largest number of removed rows that are remembered. A reader that has missed more gets the
/// whole list.
const GONE: usize = 1_000;

/// The keys of the listed rows.
#[derive(Debug)]
pub(super) struct RowLog<K> {
    /// With the revision at which the row was added to the list.
    listed: BTreeMap<K, u64>,
    /// The removed rows, latest last, with the revision of their removal.
    gone: VecDeque<(u64, K)>,
    /// Removals up to this revision may have been forgotten.
    forgotten: u64,
}

/// The changes of a list since a revision. A reader removes the rows of `gone` before it inserts
/// those of `listed`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Since<'a, K> {
    /// All rows are listed, and replace the previously listed rows.
    pub(super) whole: bool,
    pub(super) listed: Vec<&'a K>,
    pub(super) gone: Vec<&'a K>,
}

impl<K> Default for RowLog<K> {
    fn default() -> Self {
        Self { listed: BTreeMap::new(), gone: VecDeque::new(), forgotten: 0 }
    }
}

impl<K: Ord + Clone> RowLog<K> {
    /// Lists these rows from `revision` on.
    pub(super) fn set(&mut self, rows: BTreeSet<K>, revision: u64) {
        let mut before = std::mem::take(&mut self.listed);
        let entry = |key| {
            let since = before.remove(&key).unwrap_or(revision);
            (key, since)
        };
        self.listed = rows.into_iter().map(entry).collect();
        for key in before.into_keys() {
            if self.gone.len() >= GONE
                && let Some((at, _)) = self.gone.pop_front()
            {
                self.forgotten = at;
            }
            self.gone.push_back((revision, key));
        }
    }

    /// The changes after the revision `after`; 0: the reader has no list yet. `changed` returns the
    /// revision of the last change of a row.
    pub(super) fn since(&self, after: u64, changed: impl Fn(&K) -> u64) -> Since<'_, K> {
        let whole = after == 0 || after < self.forgotten;
        let is_news = |(key, came): &(&K, &u64)| whole || **came > after || changed(key) > after;
        let gone = self.gone.iter().rev().take_while(|(at, _)| !whole && *at > after);
        Since {
            whole,
            listed: self.listed.iter().filter(is_news).map(|(key, _)| key).collect(),
            gone: gone.map(|(_, key)| key).collect(),
        }
    }

    /// All listed rows.
    pub(super) fn all(&self) -> Vec<&K> {
        self.listed.keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_log(sets: &[(u64, &[u32])]) -> RowLog<u32> {
        let mut row_log = RowLog::default();
        for (revision, rows) in sets {
            row_log.set(rows.iter().copied().collect(), *revision);
        }
        row_log
    }

    /// Listed and gone after a revision, where row 2 changed at revision 7.
    fn since(row_log: &RowLog<u32>, after: u64) -> (bool, Vec<u32>, Vec<u32>) {
        let Since { whole, listed, gone } =
            row_log.since(after, |key| if *key == 2 { 7 } else { 1 });
        (whole, listed.into_iter().copied().collect(), gone.into_iter().copied().collect())
    }

    #[test]
    fn a_reader_gets_what_came_changed_and_went_since_its_last_line() {
        let row_log = row_log(&[(1, &[1, 2, 3]), (5, &[1, 2, 4]), (8, &[1, 2, 3])]);
        assert_eq!(since(&row_log, 0), (true, vec![1, 2, 3], vec![]), "all at first");
        // Row 3 went and came again: it is taken out and put in.
        assert_eq!(since(&row_log, 4), (false, vec![2, 3], vec![4, 3]));
        assert_eq!(since(&row_log, 5), (false, vec![2, 3], vec![4]));
        assert_eq!(since(&row_log, 7), (false, vec![3], vec![4]));
        assert_eq!(since(&row_log, 8), (false, vec![], vec![]), "nothing has changed");
    }

    #[test]
    fn a_reader_that_has_missed_too_much_begins_anew() {
        let mut row_log = row_log(&[(1, &[1])]);
        let rows = |from: u32| (from..from + 600).collect::<BTreeSet<u32>>();
        for (revision, from) in [(2, 1_000), (3, 2_000), (4, 3_000)] {
            row_log.set(rows(from), revision);
        }
        assert_eq!(row_log.gone.len(), GONE);
        // Of revision 3, some rows that went are forgotten.
        assert!(since(&row_log, 2).0 && since(&row_log, 1).0);
        let (whole, listed, gone) = since(&row_log, 3);
        assert_eq!((whole, listed.len(), gone.len()), (false, 600, 600));
    }
}
