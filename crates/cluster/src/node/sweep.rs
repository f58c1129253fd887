//! The hourly sweep: records of dead epochs are deleted. Nobody needs the sweep to get a resource,
//! because such a record is as good as absent; the sweep bounds what the store keeps.
//!
//! The living node with the least name sweeps. Two nodes that both take themselves for that node do
//! no harm: each record is deleted only if it has not changed since it was read.

use std::time::Duration;

use super::desk::{Desk, What};
use super::follow::PAGE;
use super::io::Lane;
use super::standing::NodeStanding;
use super::writes::Job;
use crate::engine::{Done, KeyValue, NoReply, Operation, Performed, Range, Transaction};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::record::{At, Former, Holding, Record as _};

/// The time between two sweeps.
pub const SWEEP: Duration = Duration::from_secs(3_600);

/// The time until a page that failed, or for which too many writes wait, is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The most writes that wait when the next page is read. A page has up to 1,000 dead records.
const BACKLOG: usize = 1_000;

#[derive(Clone, Debug, Hash)]
pub(super) struct Sweep {
    at: Moment,
    /// What is left to read, the present table last.
    left: Vec<Range>,
    is_asked: bool,
}

impl Sweep {
    pub(super) const fn new(at: Moment) -> Self {
        Self { at, left: Vec::new(), is_asked: false }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        (!self.is_asked).then_some(self.at)
    }

    /// The store has another life: the rest of the sweep is left out.
    pub(super) fn forget(&mut self) {
        self.left.clear();
        self.is_asked = false;
    }
}

impl Sweep {
    /// Reads the next page. `backlog`: the number of writes that wait.
    pub(super) fn turn(&mut self, desk: &mut Desk, standing: &NodeStanding<'_>, backlog: usize) {
        if self.is_asked || self.at > desk.now {
            return;
        }
        if self.left.is_empty() {
            self.at = desk.now.after(desk.random.about(SWEEP));
            let is_first = standing.follow.nodes().keys().next() == Some(desk.node());
            if !is_first || !standing.is_leased {
                return;
            }
            self.left = desk.keys.unleased().into();
        }
        self.at = desk.now.after(AGAIN);
        if backlog > BACKLOG || !standing.is_leased {
            return;
        }
        let (Some(compare), Some(range)) = (standing.same_epoch(desk), self.left.last()) else {
            return;
        };
        let range = Range { limit: PAGE, ..range.clone() };
        let then = vec![Operation::Range(range)];
        let page = Transaction { compare, then, ..Transaction::default() };
        self.at = desk.now;
        self.is_asked = true;
        desk.transact(What::Sweep, Lane::LookUps, page);
    }

    /// A page was read, or not.
    pub(super) fn swept(
        &mut self,
        desk: &mut Desk,
        standing: &NodeStanding<'_>,
        done: Result<&Done, NoReply>,
    ) {
        self.is_asked = false;
        let Some(Performed::Range { keys, more }) = done.ok().and_then(|done| done.answers.first())
        else {
            self.at = desk.now.after(AGAIN);
            return;
        };
        match (keys.last(), self.left.last_mut()) {
            (Some(last), Some(range)) if *more => {
                range.from = [&last.key[..], &[0]].concat().into();
            }
            (Some(_) | None, Some(_) | None) => {
                self.left.pop();
            }
        }
        if self.left.is_empty() {
            self.at = desk.now.after(desk.random.about(SWEEP));
        }
        for found in keys {
            if is_dead(desk, standing, found) {
                desk.jobs.push_back(Job::Delete(found.key.clone(), found.modified));
            }
        }
    }
}

/// Whether a record names dead epochs alone.
fn is_dead(desk: &Desk, standing: &NodeStanding<'_>, found: &KeyValue) -> bool {
    let value = &found.value;
    match desk.keys.place(&found.key) {
        Some(RecordPlace::At(_)) => At::decode(value)
            .is_ok_and(|at| at.homes.iter().all(|home| standing.is_void(&home.node, home.epoch))),
        Some(RecordPlace::Resource(_)) => {
            Holding::decode(value).is_ok_and(|it| standing.is_free(&it))
        }
        Some(RecordPlace::Former(node, _)) => {
            Former::decode(value).is_ok_and(|it| standing.is_void(&node, it.epoch))
        }
        None
        | Some(
            RecordPlace::Batch(_)
            | RecordPlace::Blob(_)
            | RecordPlace::Incarnation
            | RecordPlace::Node(_)
            | RecordPlace::Revoked(_),
        ) => false,
    }
}
