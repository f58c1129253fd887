//! Registrations of clients: each waits for its turn, is published, and is answered. A change of
//! the rights of a client is applied in the same way.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use link::Lease;
use ops::status;
use proto::control::{ControlMessage, Register, Registered};

use super::super::clients::{Changes, Client};
use super::publish::{ClientTurn, Registrant};
use super::sessions::Standing;
use super::takeover::close_links;
use super::{Registry, pending};
use node::session::{AWAY, Session, Worker};
use survey::Prints;

/// A process of a client that runs alongside others.
struct Rank {
    session: Arc<Session>,
    /// The sessions of the processes that keep the addresses that they have.
    outranked_by: Vec<u64>,
}

impl Registry {
    /// Accepts a registration that arrived over a link. It waits for [`Self::turn`], and a newer
    /// registration replaces it. Its memory is charged to `budget`. False: the link has ended.
    pub(crate) fn offer(&self, serial: u64, register: Register, budget: &Lease) -> bool {
        let Some(session) = self.session_of(serial) else { return false };
        let held = budget.hold(pending::weight(&register));
        self.pending.put(session.id, serial, register, held);
        true
    }

    /// Waits until the registrations of the client of this link may be processed. Dropping the
    /// future has no effect.
    pub(crate) async fn turn(&self, serial: u64) -> Option<(Arc<Session>, ClientTurn<'_>)> {
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
    /// registered this generation. `None` when a later registration was applied already.
    pub(crate) async fn register(
        &self,
        session: &Arc<Session>,
        mut turn: ClientTurn<'_>,
        generation: u64,
    ) -> Option<Registered> {
        // The entrances of this client are closed permanently under the same lock.
        if self.leaving.load(Ordering::SeqCst) {
            return None;
        }
        // The registration may have waited since before a newer process logged in.
        match self.sessions().standing(session) {
            Standing::InForce => {}
            Standing::Superseded(by) => {
                let (client, session) = (session.name.as_str(), session.id);
                tracing::debug!(
                    client,
                    session,
                    by,
                    "session {session} of client {client} is superseded by session {by} and registers nothing"
                );
                drop(self.pending.take(session));
                return None;
            }
            Standing::Ended => return None,
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
        let Register { services, standby, .. } = &waiting.register;
        session.set_standby(*standby && services.is_empty());
        let mut results = Vec::new();
        if turn.gives_up(session, &waiting.register) {
            // Another process that requests the address takes it over before it closes.
            for Rank { session: other, outranked_by } in self.ranks(&session.name, Some(session.id))
            {
                let place = self.place_of(&other, &client);
                let place = Registrant { is_alone: false, outranked_by: &outranked_by, ..place };
                if let Some(registered) = turn.review(place).await {
                    results.push((other, registered));
                }
            }
        }
        let ranks = self.ranks(&session.name, None);
        let own = ranks.iter().find(|rank| rank.session.id == session.id);
        let outranked_by = own.map(|own| own.outranked_by.as_slice()).unwrap_or_default();
        let place = Registrant { outranked_by, ..self.place_of(session, &client) };
        let answer = turn.apply(place, waiting.register, waiting.held).await;
        for (other, registered) in results {
            self.tell(&other, &registered).await;
        }
        self.leave_displaced(&session.name).await;
        self.retry_if_waiting(&session.name).await;
        answer
    }

    /// Applies the registrations of a client again, with growing pauses, while one of its services
    /// waits for the directory, and at once when the directory answers again.
    async fn retry_if_waiting(&self, name: &str) {
        let Some(handle) = self.handles.first() else { return };
        if !self.waits(name) || !self.pending.begin_retry(name) {
            return;
        }
        let (registry, client) = (Weak::clone(&self.own), name.to_owned());
        let retry = move |_: &Rc<Worker>| {
            tokio::task::spawn_local(async move { retry(registry, client).await });
        };
        if handle.run(retry).await.is_err() {
            // The worker has stopped, and the server with it.
            self.pending.end_retry(name, || false);
        }
    }

    /// Whether a service of the client waits for the directory.
    pub(super) fn waits(&self, name: &str) -> bool {
        let sessions = self.sessions().in_force(name);
        self.published.waits(&sessions)
    }

    /// The processes of a client except `but`, latest first. An unshared address that several of
    /// them have requested belongs to the latest process that answers.
    fn ranks(&self, name: &str, but: Option<u64>) -> Vec<Rank> {
        let mut all = self.sessions().in_force(name);
        all.iter().for_each(|session| session.set_beside(all.len() > 1));
        all.retain(|session| Some(session.id) != but);
        all.sort_unstable_by_key(|session| std::cmp::Reverse(session.id));
        let rank = |session: &Arc<Session>| {
            let answers = session.answers();
            let outranks = |other: &&Arc<Session>| {
                let is_later = other.id > session.id;
                if answers { is_later && other.answers() } else { is_later || other.answers() }
            };
            let others = all.iter().filter(|other| other.id != session.id);
            let outranked_by: Vec<_> = others.filter(outranks).map(|other| other.id).collect();
            session.set_displaced(!answers && !outranked_by.is_empty());
            Rank { session: Arc::clone(session), outranked_by }
        };
        all.iter().map(rank).collect()
    }

    /// Handles a process of a client that has stopped answering, is lost, or is back. Meanwhile its
    /// unshared addresses belong to another process of the client that requests them, if there is
    /// one.
    pub(crate) fn rank_soon(self: &Arc<Self>, session: &Session) {
        let name = &session.name;
        if self.sessions().in_force(name).len() < 2 || !self.published.has_own(session.id) {
            return;
        }
        let mut due = self.ranked.lock().unwrap_or_else(PoisonError::into_inner);
        if !due.insert(name.clone()) {
            return;
        }
        drop(due);
        let (registry, name) = (Arc::clone(self), name.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(AWAY).await;
            registry.ranked.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            registry.review(&name).await;
        });
    }

    /// Applies the changes of a reload: ends the links of clients that may not stay, and updates
    /// entrances whose rights have changed.
    pub(crate) async fn follow(&self, changes: &Changes) {
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

    /// Reports to connected clients the addresses of their services, after `public_url` has
    /// changed.
    pub(crate) async fn tell_addresses(&self) {
        for name in self.published.clients() {
            self.review(&name).await;
        }
    }

    /// Applies the last registration of a client again, and reports the outcome to the client.
    /// Processes that run side by side have one registration each.
    pub(super) async fn review(&self, name: &str) {
        self.review_beside(name, false).await;
    }

    /// Like [`Self::review`]. `has_other`: a process that has ended still has its addresses, which
    /// stay open.
    pub(super) async fn review_beside(&self, name: &str, has_other: bool) {
        for Rank { session, outranked_by } in self.ranks(name, None) {
            let mut turn = self.published.turn(name).await;
            // A newer process may have registered before it was the turn of this review.
            if self.sessions().standing(&session) != Standing::InForce {
                continue;
            }
            let Some(client) = self.shared.clients.find(name) else { return };
            let place = self.place_of(&session, &client);
            let is_alone = place.is_alone && !has_other;
            let place = Registrant { is_alone, outranked_by: &outranked_by, ..place };
            let registered = turn.review(place).await;
            drop(turn);
            if let Some(registered) = registered {
                self.tell(&session, &registered).await;
            }
        }
        self.leave_displaced(name).await;
        self.retry_if_waiting(name).await;
    }

    /// Moves visitors that wait for a process of a client to the process that has its addresses
    /// now.
    async fn leave_displaced(&self, name: &str) {
        let all = self.sessions().in_force(name);
        for session in all.iter().filter(|session| session.is_displaced()) {
            for handle in self.handles.iter() {
                let id = session.id;
                // A worker that has ended has no visitors.
                let _ = handle.run(move |worker| worker.state.leave_silent(id)).await;
            }
        }
    }

    /// Sends a client, over one of its links, the outcome of its registration.
    async fn tell(&self, session: &Arc<Session>, registered: &Registered) {
        for handle in self.handles.iter() {
            let (session, message) =
                (Arc::clone(session), ControlMessage::Registered(registered.clone()));
            let sent = handle.call(move |worker| {
                let link = worker.state.live_link(&session);
                link.is_some_and(|link| link.send_message(&message))
            });
            if matches!(sent.await, Ok(true)) {
                return;
            }
        }
    }

    fn place_of<'a>(&'a self, session: &'a Arc<Session>, client: &'a Client) -> Registrant<'a> {
        let public_bind = self.shared.public_bind;
        let is_known = self.shared.clients.are_told_of(&session.name);
        let (hosts, clients) = (&self.shared.hosts, &self.shared.clients);
        let (handles, private) = (&self.handles, &self.shared.private);
        let is_alone = self.sessions().is_alone(session);
        Registrant {
            session,
            client,
            is_alone,
            outranked_by: &[],
            is_known,
            public_bind,
            hosts,
            clients,
            private,
            handles,
        }
    }

    /// Adds the services that could not be published to the sessions of a status.
    pub(crate) fn add_failures(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        self.published.add_failures(sessions);
    }

    /// A hash of what [`Self::add_failures`] adds, by session.
    pub(crate) fn failure_prints(&self) -> Prints {
        self.published.failure_prints()
    }

    /// From now on no link is made and nothing is published. Existing entrances stay open.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Clients should go to other nodes: no link is made and nothing is published from now on.
    pub(crate) fn let_go(&self) {
        self.leave();
        self.drain_presence();
    }

    /// Closes the entrances of the sessions whose client has no link here that accepts streams: it
    /// has links to the next generation of this server, which has the listeners.
    pub(crate) async fn close_left(&self) {
        let all = self.sessions().all();
        for session in all.iter().filter(|session| session.has_left()) {
            self.shared.private.withdraw(session);
            self.published.withdraw(session, (&self.handles, &self.shared.hosts)).await;
        }
    }

    /// Closes all entrances, at the start of a shutdown. No link is made and nothing is published
    /// from now on.
    pub(crate) async fn close_entrances(&self) {
        self.leave();
        self.drain_presence();
        self.published.close_all((&self.handles, &self.shared.hosts)).await;
    }
}

/// Applies the registrations of a client again until none of its services waits for the directory.
async fn retry(registry: Weak<Registry>, client: String) {
    let Some(mut outages) = registry.upgrade().map(|registry| registry.published.outages()) else {
        return;
    };
    for pause in pending::pauses() {
        // Fails only when the directory is gone, and the server with it.
        let answers = tokio::time::timeout(pause, outages.changed()).await;
        let Some(registry) = registry.upgrade().filter(|_| !matches!(answers, Ok(Err(_)))) else {
            return;
        };
        registry.review(&client).await;
        if registry.pending.end_retry(&client, || registry.waits(&client)) {
            return;
        }
    }
}
