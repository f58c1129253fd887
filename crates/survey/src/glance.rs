//! A continuous survey: a poll each second builds the status of the sessions that have changed.
//! Each worker computes a fingerprint of each of its sessions and compares it with the fingerprints
//! in the notes of the previous poll. The fingerprint is the hash of the status itself, made of all
//! links of a session and service by service, so no figure of the status is missing in it. Nothing
//! else is kept of a session.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use ops::status;
use rustc_hash::FxHasher;

use super::sessions::{Depth, add_backend, add_link, add_private, bare, join, part_of};
use super::slices::Slices;
use node::entrance::Entrances;
use node::session::{Handle, Served, Worker};
use node::tcp_info;
use node::tcp_info::Connections;

/// The fingerprints of sessions, in the order of their ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prints(Vec<(u64, u64)>);

impl Prints {
    /// Adds up the fingerprints of the parts of each session, which are in any order.
    pub fn of(mut parts: Vec<(u64, u64)>) -> Self {
        parts.sort_unstable_by_key(|(id, _)| *id);
        parts.dedup_by(|(id, print), (kept, sum)| {
            let is_same = id == kept;
            if is_same {
                *sum = sum.wrapping_add(*print);
            }
            is_same
        });
        Self(parts)
    }

    fn has(&self, id: u64) -> bool {
        self.0.binary_search_by_key(&id, |(id, _)| *id).is_ok()
    }

    /// Calls `new` with each id that is new or has another fingerprint, and `lost` with each
    /// missing id.
    fn differ(&self, before: &Self, mut new: impl FnMut(u64), mut lost: impl FnMut(u64)) {
        let mut old = before.0.iter().peekable();
        for (id, print) in &self.0 {
            while let Some((missing, _)) = old.next_if(|(old, _)| old < id) {
                lost(*missing);
            }
            if old.next_if(|(old, _)| old == id).is_none_or(|(_, before)| before != print) {
                new(*id);
            }
        }
        old.for_each(|(missing, _)| lost(*missing));
    }
}

/// The maximum number of sessions about whose TCP connections the kernel is queried in a poll. The
/// others follow in the next polls. 64 requests take about 0.5 ms.
const ASKED: usize = 64;

/// The state that one poll keeps for the next.
#[derive(Debug, Default)]
pub struct Notes {
    /// The fingerprints of each worker.
    workers: Vec<Prints>,
    /// The fingerprints of the data of sessions that no worker has.
    others: Prints,
    /// The sessions that have changed since the kernel was queried about their connections.
    unasked: BTreeSet<u64>,
    /// The session after which the next query begins.
    asked: u64,
}

/// The delta since the previous poll.
#[derive(Debug, Default)]
pub struct Changes {
    /// The sessions that are new or have changed. The values that are not polled each second are
    /// missing: retained bytes, the totals of ended sessions, the sums by transport.
    pub sessions: BTreeMap<u64, status::Session>,
    /// The sessions that no worker knows any more.
    pub gone: Vec<u64>,
}

/// Compares all sessions with the notes, and makes the status of the changed sessions. `others` are
/// the fingerprints of what the caller adds to the status of a session.
pub async fn changes(handles: &[Handle], notes: Option<Notes>, others: Prints) -> (Changes, Notes) {
    let before = notes.unwrap_or_default();
    let mut now = Notes { others, ..Notes::default() };
    for handle in handles {
        // A worker that has stopped has no sessions.
        now.workers.push(handle.task(prints).await.unwrap_or_default());
    }
    let Differences { mut changed, gone } = compare(&before, &now);
    changed.extend(before.turn());
    let wanted = Arc::new(changed);
    let (mut all, mut connections) = (BTreeMap::new(), Connections::new());
    for handle in handles.iter().filter(|_| !wanted.is_empty()) {
        let wanted = Arc::clone(&wanted);
        let Ok(part) = handle.task(move |worker| part_of(worker, wanted)).await else { continue };
        connections.extend(join(&mut all, part));
    }
    let mut sessions: BTreeMap<_, _> =
        all.into_iter().map(|(id, (_, session))| (id, session)).collect();
    (now.asked, now.unasked) = (before.asked, before.unasked);
    now.unasked.extend(sessions.keys());
    let turn = now.turn();
    for id in tcp_info::ask_some(&mut sessions, &connections, turn, ASKED).await {
        now.unasked.remove(&id);
        now.asked = id;
    }
    let workers = &now.workers;
    now.unasked.retain(|id| workers.iter().any(|prints| prints.has(*id)));
    (Changes { sessions, gone }, now)
}

impl Notes {
    /// The next sessions about whose connections the kernel is queried, at most [`ASKED`].
    fn turn(&self) -> Vec<u64> {
        let behind = self.unasked.range((Bound::Excluded(self.asked), Bound::Unbounded));
        behind.chain(self.unasked.range(..=self.asked)).take(ASKED).copied().collect()
    }
}

/// The sessions that differ.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    changed: HashSet<u64>,
    gone: Vec<u64>,
}

fn compare(before: &Notes, now: &Notes) -> Differences {
    let none = Prints::default();
    let mut found = Differences::default();
    let is_known = |id| now.workers.iter().any(|prints| prints.has(id));
    for worker in 0..before.workers.len().max(now.workers.len()) {
        let [old, new] = [before, now].map(|notes| notes.workers.get(worker).unwrap_or(&none));
        let mut lost = Vec::new();
        new.differ(old, |id| _ = found.changed.insert(id), |id| lost.push(id));
        for id in lost {
            if is_known(id) {
                found.changed.insert(id);
            } else {
                found.gone.push(id);
            }
        }
    }
    let mut others = Vec::new();
    now.others.differ(&before.others, |id| others.push(id), |_| {});
    before.others.differ(&now.others, |id| others.push(id), |_| {});
    found.changed.extend(others.into_iter().filter(|id| is_known(*id)));
    // A session with links on two workers may be missing on both.
    found.gone.sort_unstable();
    found.gone.dedup();
    found
}

/// The fingerprints of all sessions of a worker: of the links of each session and of each service
/// the hash of the status that shows them, made as the status makes it.
pub(super) async fn prints(worker: Rc<Worker>) -> Prints {
    let mut slices = Slices::default();
    let ids = worker.state.session_ids();
    let mut all = Vec::with_capacity(ids.len());
    // The memory of the links of a session serves the next session.
    let mut links = Vec::new();
    for id in ids {
        let mut part = None;
        worker.state.each_link_of(id, |session, link| {
            let part = part.get_or_insert_with(|| {
                let links = std::mem::take(&mut links);
                status::Session { links, ..bare(session, worker.index) }
            });
            add_link(part, (session, link), worker.index, Depth::Printed);
        });
        let Some(part) = part else { continue };
        all.push((id, print_of(&part)));
        links = part.links;
        slices.count(links.len()).await;
        links.clear();
    }
    worker.state.of::<Served>().each_private(|private| {
        let mut part = status::Session::default();
        add_private(&mut part, private);
        all.push((private.session.id, print_of(&part)));
    });
    let entrances: Vec<_> = worker.state.of::<Entrances>().0.borrow().keys().copied().collect();
    for id in entrances {
        if let Some(open) = worker.state.of::<Entrances>().0.borrow().get(&id) {
            for (nth, backend) in open.entrance.backends.counted().iter().enumerate() {
                let mut part = status::Session::default();
                add_backend(&mut part, open, (nth, backend));
                // The age of a fault is in no fingerprint, and another fault has another age.
                let since = backend.picked.health.fault().map(|fault| fault.since_millis());
                all.push((backend.session.id, print_of(&(since, part))));
            }
        }
        slices.count(1).await;
    }
    Prints::of(all)
}

/// The fingerprint of a part of a status.
pub fn print_of(part: &impl Hash) -> u64 {
    let mut hash = FxHasher::default();
    part.hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(workers: &[&[(u64, u64)]], others: &[(u64, u64)]) -> Notes {
        let prints = |all: &[(u64, u64)]| Prints::of(all.to_vec());
        let workers = workers.iter().map(|all| prints(all)).collect();
        Notes { workers, others: prints(others), ..Notes::default() }
    }

    #[test]
    fn sessions_that_are_new_changed_or_gone_are_found() {
        let before = notes(&[&[(1, 7), (2, 7), (3, 7)], &[(3, 9), (4, 9)]], &[(1, 5), (8, 5)]);
        assert_eq!(compare(&before, &before), Differences::default());
        // 2 has changed, 3 has left one worker and 4 the only one, 5 is new.
        let now = notes(&[&[(1, 7), (2, 8), (5, 1)], &[(3, 9)]], &[(1, 5), (8, 5)]);
        let expected = Differences { changed: HashSet::from([2, 3, 5]), gone: vec![4] };
        assert_eq!(compare(&before, &now), expected);
        // All is new at the first look, and a worker that has stopped knows nothing.
        let all = compare(&Notes::default(), &before);
        assert_eq!(all, Differences { changed: HashSet::from([1, 2, 3, 4]), gone: vec![] });
        assert_eq!(compare(&before, &notes(&[], &[])).gone, [1, 2, 3, 4]);
        // What the caller adds counts for sessions that a worker knows.
        let other = notes(&[&[(1, 7), (2, 7), (3, 7)], &[(3, 9), (4, 9)]], &[(2, 5), (8, 6)]);
        assert_eq!(compare(&before, &other).changed, HashSet::from([1, 2]));
    }

    #[test]
    fn parts_of_a_session_add_up_in_any_order_and_figures_differ() {
        let sum = Prints::of(vec![(2, 5), (1, 7), (2, u64::MAX)]);
        assert_eq!(sum, Prints(vec![(1, 7), (2, 4)]));
        let print = |figures: &[u64]| print_of(&figures);
        let mut prints = HashSet::new();
        for n in 0..300_u64 {
            for figures in [[n, 0, 0], [0, n, 0], [0, 0, n], [n, n, 0], [n, 0, n << 40]] {
                prints.insert(print(&figures));
            }
        }
        // 0 in each place is the same, and so is 0 twice.
        assert_eq!(prints.len(), 299 * 5 + 1);
        let text = |text: &str| print_of(&text);
        assert_ne!(text("service-1"), text("service-2"));
        assert_ne!(text("a"), text("a\0"));
    }

    #[test]
    fn each_session_has_its_turn_to_be_asked_about() {
        let mut notes = Notes { unasked: (1..=150).collect(), ..Notes::default() };
        let mut met = BTreeSet::new();
        for _ in 0..3 {
            let turn = notes.turn();
            assert!(turn.len() <= ASKED);
            notes.asked = *turn.last().unwrap();
            met.extend(turn);
            // All of them change each second.
        }
        assert!(met.iter().copied().eq(1..=150), "{met:?}");
    }
}
