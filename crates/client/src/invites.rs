//! Invitations: the requests for one-time codes of visitors that wait for the server's answer, and
//! the log-ins of visitors.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ops::visit::Visited;
use proto::control::{InviteOutcome, Invited};
use proto::greeting::StoredCredential;
use tokio::sync::{Notify, oneshot};

/// The timeout for the answer of a server, which may have to wait for a disk and for another change
/// of its clients.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum number of log-ins that wait to be recorded. A later log-in of the visitor is
/// recorded as well.
const LOG_INS_MAX: usize = 256;

/// The requests that the server has not answered, and the log-ins that are not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct Invites {
    pub(super) next: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<InviteOutcome>>>,
    visited: Mutex<VecDeque<Visited>>,
    has_visited: Notify,
}

/// A request that is forgotten on drop.
pub(super) struct Waiting<'a>(pub(super) &'a Invites, pub(super) u32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting().remove(&self.1);
    }
}

impl Invites {
    pub(super) fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<InviteOutcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the answer of the server.
    pub(super) fn answered(&self, Invited { request, outcome }: Invited) {
        if let Some(waits) = self.waiting().remove(&request) {
            // The caller may have given up.
            let _ = waits.send(outcome);
        }
    }

    /// Records that a visitor has proved the token of a private service.
    pub(crate) fn note_visit(&self, visitor: &str, service: &str, token: &StoredCredential) {
        let [service, visitor] = [service, visitor].map(str::to_owned);
        let visit = Visited { service, visitor, token: token.text().to_string() };
        let mut visited = self.visited.lock().unwrap_or_else(PoisonError::into_inner);
        if visited.len() < LOG_INS_MAX && !visited.contains(&visit) {
            visited.push_back(visit);
            self.has_visited.notify_one();
        }
    }

    pub(super) async fn visited(&self) -> Visited {
        loop {
            let next = self.visited.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(visit) => return visit,
                None => self.has_visited.notified().await,
            }
        }
    }
}
