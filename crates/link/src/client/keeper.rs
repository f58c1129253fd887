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
    pub(super) fn is_leaving(&self) -> bool {
        self.client.leaving.load(Ordering::Relaxed)
    }

    pub(super) fn report_failure(&self, path: usize, error: &DialError, pause: Duration) {
        if let Some(path) = self.client.paths.get(path) {
            (self.report)(Report::Unreachable { path, error, pause });
        }
    }
}
