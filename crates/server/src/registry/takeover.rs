//! The end of links: a newer process of a client takes over, or the last link of a session has
//! ended. Entrances outlive their session until the newer process has registered, which the numbers
//! of the sessions tell.

use std::sync::Arc;
use std::time::Duration;

use super::Registry;
use super::sessions::{OfSession, Placed, Removed};
use node::session::Handle;

/// The longest time for which the entrances of a superseded process wait for the registration of
/// the newer process. It equals the time for which a visitor is held; usually one round trip
/// suffices.
const HANDOVER: Duration = Duration::from_secs(10);

impl Registry {
    /// Removes a link that has ended. With the last link of a session its entrances close, except
    /// the entrances that a newer session took over.
    pub(crate) async fn link_ended(&self, serial: u64) {
        let Removed { session: last, in_charge, beside, .. } = {
            let mut sessions = self.sessions();
            let Some(removed) = sessions.remove(serial) else { return };
            self.tell_presence(&sessions, &removed.session.name);
            self.pending.link_ended(removed.session.id, serial);
            if !removed.was_last {
                return;
            }
            removed
        };
        if in_charge {
            let is_connected = |name: &str| self.is_connected(name);
            self.shared.clients.forget_stranger(&last.name, is_connected);
        }
        self.note_end(&last.name);
        let (name, id) = (last.name.clone(), last.id);
        // The totals of a session that has ended are counted once nobody holds it.
        drop(last);
        if !in_charge && !beside {
            self.handed_over(&name, id).await;
        }
        if beside {
            self.review_beside(&name, true).await;
        }
        self.shared.private.withdraw_of(&name, id);
        self.published.withdraw_of(&name, id, (&self.handles, &self.shared.hosts)).await;
        if in_charge || beside {
            // A process alongside the ended one may have requested the addresses that were closed
            // now.
            self.review(&name).await;
        }
    }

    /// Waits until a newer process than that of this session has registered. The ports stay open
    /// meanwhile, and visitors are held until the new process has links.
    async fn handed_over(&self, client: &str, session: u64) {
        let succeeded = self.published.succeeded(client, session);
        if tokio::time::timeout(HANDOVER, succeeded).await.is_err() {
            tracing::debug!(
                client,
                session,
                "the newer process of client {client} has not registered in time"
            );
        }
    }
}

/// Ends links on their workers.
pub(super) async fn close_links(handles: Arc<[Handle]>, links: Vec<OfSession>) {
    for (session, Placed { worker, serial }) in links {
        let Some(handle) = handles.get(worker) else { continue };
        let closing = handle.run(move |worker| {
            if let Some(link) = worker.state.link(&session, serial) {
                link.close();
            }
        });
        // A worker that has stopped has closed its links.
        let _ = closing.await;
    }
}
