//! Log-ins: which process may have a link, which links it may resume, and the worker of each link.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use link::server::Greeted;
use logging::AUDIT;
use net::source::prefix;
use proto::greeting::{Attach, Grant, LinkSecret, Name, Refusal, StoredCredential};
use proto::{InstanceId, LinkId, Preview};

use super::super::clients::Denied;
use super::Registry;
use super::sessions::{LinkEntry, Placed, Sessions};
use super::takeover::close_links;
use crate::presence::instance_of;
use node::session::{Session, Worker};

/// The maximum number of processes of one client that run side by side.
const PROCESSES_MAX: usize = 256;

/// The maximum number of links of one client process. It is far above any number of workers; a
/// client that requests more is misconfigured or hostile.
const LINKS_MAX: usize = 256;

impl Registry {
    pub(crate) fn new_link_id(&self) -> LinkId {
        LinkId::compose(self.generation, link::random())
    }

    pub(crate) fn link_secret(
        &self,
        name: &str,
        instance: InstanceId,
        link: LinkId,
    ) -> Option<LinkSecret> {
        let sessions = self.sessions();
        Some(sessions.link_of(link, name, instance)?.secret.clone())
    }

    /// Whether a client has this link here.
    pub(crate) fn has_link(&self, name: &str, link: LinkId) -> bool {
        self.sessions().link_by_id(link).is_some_and(|entry| entry.session.name == name)
    }

    /// The preview of a link for a client that is about to resume it; see [`link::Link::preview`].
    pub(crate) async fn preview(
        &self,
        name: &str,
        instance: InstanceId,
        claim: Attach,
    ) -> Option<Preview> {
        let (Placed { worker, serial }, session) = {
            let sessions = self.sessions();
            let entry = sessions.link_of(claim.link, name, instance)?;
            (entry.placed, Arc::clone(&entry.session))
        };
        let look = move |worker: &Rc<Worker>| {
            worker.state.link(&session, serial).and_then(|link| link.preview(claim.carrier))
        };
        self.handles.get(worker)?.call(look).await.ok().flatten()
    }

    /// Whether this client process may have a new link. The newest process of a name wins. A
    /// superseded process does not ask to take over, and is refused while another process has
    /// links. So two processes do not supersede each other forever.
    pub(crate) fn admit(&self, grant: &Grant) -> Result<(), Refusal> {
        if self.leaving.load(Ordering::SeqCst) {
            return Err(Refusal::Unavailable);
        }
        let beside = self.stands_beside(grant);
        self.admits_elsewhere(grant, beside)?;
        let (sessions, name) = (self.sessions(), grant.name.as_str());
        let is_full = match sessions.links_of_process(name, grant.instance) {
            0 => beside && sessions.processes(name) >= PROCESSES_MAX,
            links => links >= LINKS_MAX,
        };
        if sessions.in_charge(grant, beside, self.handles.len()).is_none() {
            return Err(Refusal::Superseded);
        }
        if is_full { Err(Refusal::Limit) } else { Ok(()) }
    }

    /// Whether the process asks to take over from a process with links here which has replaced it
    /// before: it has logged in at another node, and not here, so it does not know. Processes that
    /// run alongside others have one number in the cluster, which says nothing about one of them.
    pub(crate) async fn was_replaced(&self, grant: &Grant) -> bool {
        let Some(presence) = &self.presence else { return false };
        let name = grant.name.as_str();
        if !grant.takeover || self.stands_beside(grant) || !self.is_connected(name) {
            return false;
        }
        presence.was_replaced(name, instance_of(name, grant.instance, false)).await
    }

    /// Whether the process runs alongside others of its name: it has a shared service, and the
    /// client may share.
    fn stands_beside(&self, grant: &Grant) -> bool {
        let may = || self.shared.clients.find(grant.name.as_str()).is_some_and(|own| own.shared);
        grant.beside && may()
    }

    /// Introduces a client whose name is unknown: reserves the name for its token. `source` is the
    /// address of the client, which a reverse proxy may have reported.
    pub(crate) fn introduce(
        &self,
        name: &Name,
        token: StoredCredential,
        source: IpAddr,
    ) -> Result<(), Denied> {
        if self.presence.is_some() {
            return Err(Denied::Cluster);
        }
        let is_connected = |name: &str| self.is_connected(name);
        let clients = &self.shared.clients;
        clients.introduce(name.as_str(), token, source, is_connected, Instant::now())?;
        let lines = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        // Limited, because any peer can introduce itself under any name.
        let source = prefix(source);
        if let Some(more) = lines.pass(source, Instant::now()) {
            tracing::info!(target: AUDIT, client = name.as_str(), %source, more, "client {name} has introduced itself; no client of this name was known");
        }
        Ok(())
    }

    /// Chooses the worker of a greeted carrier. A carrier of an existing link goes to the worker of
    /// the link. A new link goes to a worker with the fewest links of the session, not counting
    /// links that are going away, and preferably to the worker of such a link, or to the present
    /// worker `here`. A carrier that cannot move (see `Transport::stays`) begins its
    /// link here.
    pub(crate) fn place(&self, greeted: &Greeted, here: usize) -> Option<Placed> {
        let beside = self.stands_beside(&greeted.grant);
        let mut sessions = self.sessions();
        if let Some(attach) = greeted.grant.attach {
            return Some(sessions.link_by_id(attach.link)?.placed);
        }
        let secret = greeted.accepted.secret.clone()?;
        let (name, instance) = (greeted.grant.name.as_str(), greeted.grant.instance);
        let (session, old) = sessions.in_charge(&greeted.grant, beside, self.handles.len())?;
        let stays = greeted.carrier.peer.transport.stays();
        let worker = if stays { here } else { self.best_worker(&sessions, &session, here) };
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let placed = Placed { worker, serial };
        session.set_hold(self.shared.hosts.holds.of(name).is_some());
        let entry = LinkEntry { placed, secret, instance, session, beside };
        sessions.add(greeted.accepted.link, entry);
        self.tell_presence(&sessions, name);
        drop(sessions);
        if !old.is_empty() {
            tracing::info!(target: AUDIT, client = name, "a new process of client {name} takes over its services");
            tokio::task::spawn_local(close_links(Arc::clone(&self.handles), old));
        }
        Some(placed)
    }

    /// The worker with the fewest links of the session, not counting links that are going away.
    fn best_worker(&self, sessions: &Sessions, session: &Session, here: usize) -> usize {
        let mut counts = vec![0usize; self.handles.len()];
        for placed in sessions.of_session(session) {
            counts[placed.worker] += 1;
        }
        // Flows of a link that is going away keep their worker. With its successor on the same
        // worker the peers of a UDP port need not move.
        let mut succeeds = Vec::new();
        for (worker, count) in counts.iter_mut().enumerate() {
            let leaving = session.leaving(worker);
            *count = count.saturating_sub(leaving);
            if leaving > 0 {
                succeeds.push(worker);
            }
        }
        let least = counts.iter().copied().min().unwrap_or(0);
        let is_best = |worker: &usize| counts.get(*worker) == Some(&least);
        let best = succeeds.into_iter().chain([here]).find(is_best);
        best.or_else(|| (0..counts.len()).find(is_best)).unwrap_or(here)
    }
}
