//! The requests about invitations that a client sends to its server.

use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use ops::visit::Visited;
use ops::{Inviter, SendFuture};
use proto::control::{ControlMessage, Invite, InviteAction, InviteOutcome};
use proto::greeting::{Features, Name};
use tokio::sync::oneshot;

use super::Client;
use super::invites::{PATIENCE, Waiting};

impl Client {
    /// Sends a request over the first link that accepts it.
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

    fn server(&self) -> String {
        self.shared.uplinks.preferred().label().as_str().to_owned()
    }

    fn visited(&self) -> SendFuture<'_, Visited> {
        Box::pin(self.shared.invites.visited())
    }
}
