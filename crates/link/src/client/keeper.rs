//! The state of a client that maintains a link to one server.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::error::DialError;
use super::plan::{Client, Report};
use crate::inner::Owner;

pub(super) struct Keeper {
    pub(super) client: Client,
    pub(super) owner: Rc<dyn Owner>,
    pub(super) report: Rc<dyn Fn(Report<'_>)>,
}

impl Keeper {
    /// The indexes of all paths in the order in which they are tried.
    pub(super) fn order(&self) -> Vec<usize> {
        let count = self.client.paths.len();
        let chosen = self.client.choice.as_ref().map(|choice| choice.order());
        let mut order = Vec::with_capacity(count);
        for path in chosen.into_iter().flatten().chain(0..count) {
            if path < count && !order.contains(&path) {
                order.push(path);
            }
        }
        order
    }

    /// Whether the first of two paths is tried before the second.
    pub(super) fn precedes(&self, one: usize, other: usize) -> bool {
        let order = self.order();
        let place = |path| order.iter().position(|known| *known == path);
        place(one) < place(other)
    }

    /// The path that is tried after this path; the first path follows the last path.
    pub(super) fn after(&self, path: usize) -> usize {
        let order = self.order();
        let place = order.iter().position(|known| *known == path).unwrap_or(0);
        order.get((place + 1) % order.len().max(1)).copied().unwrap_or(0)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.client.leaving.load(Ordering::Relaxed)
    }

    pub(super) fn report_failure(&self, path: usize, error: &DialError, pause: Duration) {
        if let Some(path) = self.client.paths.get(path) {
            (self.report)(Report::Unreachable { path, error, pause });
        }
    }
}
