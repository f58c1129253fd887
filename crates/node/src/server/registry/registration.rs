//! Registrations of clients: each waits for its turn, is published, and is answered. A change of the
//! rights of a client is applied in the same way.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use link::Lease;
use ops::status;
use proto::control::{ControlMessage, Register, Registered};

use super::super::clients::{Changes, Client};
use super::publish::{ClientTurn, Registrant};
use super::takeover::close_links;
use super::{Registry, pending};
use crate::session::Session;
use crate::survey::Prints;

impl Registry {
    /// Takes a registration that came over a link. It waits for [`Self::turn`], and a newer one
    /// takes its place. Its memory is charged to `budget`. False: the link has ended.
    pub(in crate::server) fn offer(&self, serial: u64, register: Register, budget: &Lease) -> bool {
        let Some(session) = self.session_of(serial) else { return false };
        let held = budget.hold(pending::weight(&register));
        self.pending.put(session.id, serial, register, held);
        true
    }

    /// Waits until the registrations of the client of this link may be worked on. Dropping the
    /// future has no effect.
    pub(in crate::server) async fn turn(
        &self,
        serial: u64,
    ) -> Option<(Arc<Session>, ClientTurn<'_>)> {
        let session = self.session_of(serial)?;
        loop {
            self.pending.pace(&session.name).await;
            let turn = self.published.turn(&session.name).await;
            // Another link of the client may have had its turn meanwhile.
            if self.pending.due(&session.name).is_none() {
                return Some((session, turn));
            }
        }
    }

    /// Publishes the services of the registration that waits. Returns the answer to the link that
    /// asked for this generation. `None` when a later registration was applied already.
    pub(in crate::server) async fn register(
        &self,
        session: &Arc<Session>,
        turn: ClientTurn<'_>,
        generation: u64,
    ) -> Option<Registered> {
        // The entrances of this client are closed for good behind the same lock.
        if self.leaving.load(Ordering::SeqCst) {
            return None;
        }
        if let Some(known) = turn.known(session, generation) {
            self.pending.spend_repeated(&session.name, known.results.len());
            return Some(known);
        }
        // Looked up only now that it is the client's turn, because a reload may have changed the
        // client meanwhile.
        let client = self.shared.clients.find(&session.name)?;
        let waiting = self.pending.take(session.id)?;
        self.pending.spend(&session.name, &waiting.register);
        turn.apply(self.place_of(session, &client), waiting.register, waiting.held).await
    }

    /// Applies the changes of a reload: ends the links of clients that may not stay, and updates
    /// entrances whose rights have changed.
    pub(in crate::server) async fn follow(&self, changes: &Changes) {
        let hosts = &self.shared.hosts;
        for name in &changes.removed {
            hosts.holds.forget(name).await;
        }
        let removed: HashSet<_> = changes.removed.iter().map(String::as_str).collect();
        hosts.forget_names(|client, host| {
            !removed.contains(client) && self.shared.may_have(client, host)
        });
        for name in changes.out() {
            let links = self.sessions().links_of(name, None);
            close_links(Arc::clone(&self.handles), links).await;
        }
        for name in &changes.entrances {
            self.review(name).await;
        }
    }

    /// Tells connected clients the addresses of their services, after `public_url` has changed.
    pub(in crate::server) async fn tell_addresses(&self) {
        for name in self.published.clients() {
            self.review(&name).await;
        }
    }

    /// Applies the last registration of a client again, and tells the client the outcome. The
    /// processes that stand beside each other have a registration each.
    pub(super) async fn review(&self, name: &str) {
        let sessions = self.sessions().in_force(name);
        for session in sessions {
            let turn = self.published.turn(name).await;
            let Some(client) = self.shared.clients.find(name) else { return };
            let place = self.place_of(&session, &client);
            let Some(registered) = turn.review(place).await else { continue };
            self.tell(&session, &registered).await;
        }
    }

    /// Sends a client, over one of its links, the outcome of its registration.
    async fn tell(&self, session: &Arc<Session>, registered: &Registered) {
        for handle in self.handles.iter() {
            let (session, message) =
                (Arc::clone(session), ControlMessage::Registered(registered.clone()));
            let told = handle.call(move |worker| {
                let link = worker.state.live_link(&session);
                link.is_some_and(|link| link.send_message(&message))
            });
            if matches!(told.await, Ok(true)) {
                return;
            }
        }
    }

    fn place_of<'a>(&'a self, session: &'a Arc<Session>, client: &'a Client) -> Registrant<'a> {
        let public_bind = self.shared.public_bind;
        let is_known = self.shared.clients.are_told_of(&session.name);
        let (hosts, clients) = (&self.shared.hosts, &self.shared.clients);
        let (handles, private) = (&self.handles, &self.shared.private);
        let is_alone = self.sessions().processes(&session.name) < 2;
        Registrant {
            session,
            client,
            is_alone,
            is_known,
            public_bind,
            hosts,
            clients,
            private,
            handles,
        }
    }

    /// Adds the services that could not be published to the sessions of a status.
    pub(in crate::server) fn add_failures(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        self.published.add_failures(sessions);
    }

    /// A hash of what [`Self::add_failures`] adds, by session.
    pub(in crate::server) fn failure_prints(&self) -> Prints {
        self.published.failure_prints()
    }

    /// No link is made and nothing is published from now on. What is published stays.
    pub(in crate::server) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Closes the entrances of the sessions whose client has no link here that takes streams: it has
    /// links to the next generation of this server, which has the listeners.
    pub(in crate::server) async fn close_left(&self) {
        let all = self.sessions().all();
        for session in all.iter().filter(|session| session.has_left()) {
            self.shared.private.withdraw(session);
            self.published.withdraw(session, (&self.handles, &self.shared.hosts)).await;
        }
    }

    /// Closes all entrances, at the begin of a stop. No link is made and nothing is published from
    /// now on.
    pub(in crate::server) async fn close_entrances(&self) {
        self.leave();
        self.published.close_all((&self.handles, &self.shared.hosts)).await;
    }
}
