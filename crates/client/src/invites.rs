//! Invitations: this client asks its server for a one-time code of a visitor, and learns which
//! visitors have come.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use ops::visit::Visited;
use ops::{Inviter, SendFuture};
use proto::control::{ControlMessage, Invite, InviteAction, InviteOutcome, Invited};
use proto::greeting::{Features, Name, StoredCredential};
use tokio::sync::{Notify, oneshot};

use super::Client;

/// The longest time that the answer of a server takes: it may have to wait for a disk and for
/// another change of its clients.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most log-ins that wait to be noted. A later log-in of the visitor is noted as well.
const LOG_INS_MAX: usize = 256;

/// The requests that the server has not answered, and the log-ins that are not noted yet.
#[derive(Debug, Default)]
pub(crate) struct Invites {
    next: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<InviteOutcome>>>,
    visited: Mutex<VecDeque<Visited>>,
    has_visited: Notify,
}

/// A request that is forgotten on drop.
struct Waiting<'a>(&'a Invites, u32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting().remove(&self.1);
    }
}

impl Invites {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<InviteOutcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has answered.
    pub(super) fn answered(&self, Invited { request, outcome }: Invited) {
        if let Some(waits) = self.waiting().remove(&request) {
            // Whoever asked may have given up.
            let _ = waits.send(outcome);
        }
    }

    /// A visitor has proved the token of a private service.
    pub(crate) fn note_visit(&self, visitor: &str, service: &str, token: &StoredCredential) {
        let [service, visitor] = [service, visitor].map(str::to_owned);
        let visit = Visited { service, visitor, token: token.text().to_string() };
        let mut visited = self.visited.lock().unwrap_or_else(PoisonError::into_inner);
        if visited.len() < LOG_INS_MAX && !visited.contains(&visit) {
            visited.push_back(visit);
            self.has_visited.notify_one();
        }
    }

    async fn visited(&self) -> Visited {
        loop {
            let next = self.visited.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(visit) => return visit,
                None => self.has_visited.notified().await,
            }
        }
    }
}

impl Client {
    /// Sends a request over the first link that takes it.
    async fn send(&self, invite: Invite) -> anyhow::Result<()> {
        let session = self.shared.uplinks.preferred().session().id;
        let mut is_old = false;
        for handle in self.workers.handles().iter() {
            let message = ControlMessage::Invite(invite.clone());
            let sent = handle.call(move |worker| {
                let mut is_old = false;
                for (of, link) in worker.state.all_links() {
                    if of.id != session || !link.is_live() {
                        continue;
                    }
                    if !link.features().have(Features::PRIVATE) {
                        is_old = true;
                    } else if link.send_message(&message) {
                        return (true, is_old);
                    }
                }
                (false, is_old)
            });
            match sent.await {
                Ok((true, _)) => return Ok(()),
                Ok((false, old)) => is_old |= old,
                // A worker that has stopped has no links.
                Err(_) => {}
            }
        }
        if is_old {
            bail!("the server is too old for private services; update the server");
        }
        bail!("this client is not connected to its server at present");
    }
}

impl Inviter for Client {
    fn ask(
        &self,
        visitor: Name,
        service: Name,
        action: InviteAction,
    ) -> SendFuture<'_, anyhow::Result<Option<String>>> {
        Box::pin(async move {
            let invites = &self.shared.invites;
            let request = invites.next.fetch_add(1, Ordering::Relaxed);
            let (answer, answered) = oneshot::channel();
            invites.waiting().insert(request, answer);
            let _waiting = Waiting(invites, request);
            self.send(Invite { request, visitor, service, action }).await?;
            let outcome = tokio::time::timeout(PATIENCE, answered).await;
            let seconds = PATIENCE.as_secs();
            let late = || format!("the server did not answer within {seconds} s");
            match outcome.with_context(late)?? {
                InviteOutcome::Done(secret) => Ok(secret.map(|secret| secret.0)),
                InviteOutcome::Refused(why) => bail!("refused by the server: {why}"),
            }
        })
    }

    fn visited(&self) -> SendFuture<'_, Visited> {
        Box::pin(self.shared.invites.visited())
    }
}
