//! Sessions, links and their workers: the only state of a server that all workers share. It is not
//! on the data path: it is used at log-ins, registrations, new forwarded streams, and the end of
//! links.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use link::Lease;
use link::server::Greeted;
use logging::{AUDIT, RepeatLimit};
use net::source::prefix;
use ops::status;
use proto::control::{ControlMessage, Register, Registered};
use proto::greeting::{Attach, Grant, LinkSecret, Name, Refusal, StoredCredential};
use proto::{InstanceId, LinkId, Preview};

use super::ServerShared;
use super::brake::Brake;
use super::clients::{Changes, Client, Denied};
use super::sightings::Sightings;
use crate::descriptors;
use crate::session::{Handle, Session, Worker};

mod entries;
mod listing;
mod pending;
mod publish;
#[cfg(test)]
mod tests;

use pending::Pending;
use publish::{Published, Turn};

/// The number of links of one client process. It is far above any number of workers; a client that
/// asks for more is misconfigured or hostile.
const LINKS_MAX: usize = 256;

/// The time for which the entrances of a superseded process wait for the registration of the newer
/// process. It equals the time for which a visitor is held; usually one round trip suffices.
const HANDOVER: Duration = Duration::from_secs(10);

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    shared: Arc<ServerShared>,
    handles: Arc<[Handle]>,
    brake: Brake,
    /// A random number of this process: the first four bytes of its link ids.
    generation: [u8; 4],
    serials: AtomicU64,
    sessions: Mutex<Sessions>,
    /// Limits the log lines about introductions.
    introduced: Mutex<RepeatLimit<IpAddr>>,
    /// What the server has seen of its clients.
    sightings: Sightings,
    /// Registrations that wait for their turn.
    pending: Pending,
    /// The entrances of services.
    published: Published,
    /// The server is stopping: it takes no new link and publishes nothing. A link that resumes goes
    /// on, because its streams may finish.
    leaving: AtomicBool,
}

#[derive(Debug, Default)]
struct Sessions {
    /// The current session of a client name, with the instance of its process.
    current: HashMap<String, (InstanceId, Arc<Session>)>,
    links: HashMap<LinkId, LinkEntry>,
    ids: HashMap<u64, LinkId>,
    /// The number of links by client name.
    names: HashMap<String, usize>,
}

#[derive(Debug)]
struct LinkEntry {
    serial: u64,
    worker: usize,
    secret: LinkSecret,
    instance: InstanceId,
    session: Arc<Session>,
}

/// The worker and the serial of a link.
type LinkPlace = (usize, u64);

/// The worker and the link of a carrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) worker: usize,
    pub(super) serial: u64,
}

impl Registry {
    pub(super) fn new(
        shared: Arc<ServerShared>,
        handles: Arc<[Handle]>,
        state: Option<&Path>,
    ) -> Self {
        Self {
            shared,
            handles,
            brake: Brake::new(),
            generation: link::random(),
            serials: AtomicU64::new(1),
            sessions: Mutex::default(),
            introduced: Mutex::new(RepeatLimit::new().with_quota()),
            sightings: Sightings::default(),
            pending: Pending::default(),
            published: Published::new(descriptors::of_listeners(), descriptors::kept() / 4, state),
            leaving: AtomicBool::new(false),
        }
    }

    pub(super) fn shared(&self) -> &ServerShared {
        &self.shared
    }

    pub(super) fn brake(&self) -> &Brake {
        &self.brake
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new_link_id(&self) -> LinkId {
        LinkId::compose(self.generation, link::random())
    }

    pub(super) fn link_secret(
        &self,
        name: &str,
        instance: InstanceId,
        link: LinkId,
    ) -> Option<LinkSecret> {
        let sessions = self.sessions();
        let entry = sessions.links.get(&link)?;
        let owns = entry.instance == instance && entry.session.name == name;
        owns.then(|| entry.secret.clone())
    }

    /// The preview of a link for a client that is about to resume it; see [`link::Link::preview`].
    pub(super) async fn preview(
        &self,
        name: &str,
        instance: InstanceId,
        claim: Attach,
    ) -> Option<Preview> {
        let (worker, serial, session) = {
            let sessions = self.sessions();
            let entry = sessions.links.get(&claim.link)?;
            let owns = entry.instance == instance && entry.session.name == name;
            owns.then(|| (entry.worker, entry.serial, Arc::clone(&entry.session)))?
        };
        let look = move |worker: &Rc<Worker>| {
            worker.state.link(&session, serial).and_then(|link| link.preview(claim.carrier))
        };
        self.handles.get(worker)?.call(look).await.ok().flatten()
    }

    /// The session of the link with this serial.
    pub(super) fn session_of(&self, serial: u64) -> Option<Arc<Session>> {
        let sessions = self.sessions();
        let entry = sessions.links.get(sessions.ids.get(&serial)?)?;
        Some(Arc::clone(&entry.session))
    }

    /// Whether this client process may have a new link. The newest process of a name wins. A
    /// superseded process does not ask to take over, and is refused while another process has
    /// links. So two processes do not supersede each other forever.
    pub(super) fn admit(&self, grant: &Grant) -> Result<(), Refusal> {
        if self.leaving.load(Ordering::SeqCst) {
            return Err(Refusal::Unavailable);
        }
        let name = grant.name.as_str();
        let sessions = self.sessions();
        match sessions.current.get(name) {
            Some((instance, session)) if *instance == grant.instance => {
                let count = sessions.links_of(session).count();
                if count < LINKS_MAX { Ok(()) } else { Err(Refusal::Limit) }
            }
            Some((_, session))
                if !grant.takeover && sessions.links_of(session).next().is_some() =>
            {
                Err(Refusal::Superseded)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a client of this name has a link.
    pub(super) fn is_connected(&self, name: &str) -> bool {
        self.sessions().names.contains_key(name)
    }

    /// Introduces a client whose name is unknown: reserves the name for its token. `source` is the
    /// address of the client, which a reverse proxy may have reported.
    pub(super) fn introduce(
        &self,
        name: &Name,
        token: StoredCredential,
        source: IpAddr,
    ) -> Result<(), Denied> {
        let is_connected = |name: &str| self.is_connected(name);
        let clients = &self.shared.clients;
        clients.introduce(name.as_str(), token, source, is_connected, Instant::now())?;
        let told = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        // Limited, because any peer can introduce itself under any name.
        let source = prefix(source);
        if let Some(more) = told.pass(source, Instant::now()) {
            tracing::info!(target: AUDIT, client = name.as_str(), %source, more, "client {name} has introduced itself; no client of this name was known");
        }
        Ok(())
    }

    /// Applies the changes of a reload: ends the links of clients that may not stay, and updates
    /// entrances whose rights have changed.
    pub(super) async fn follow(&self, changes: &Changes) {
        for name in changes.out() {
            let links = self.sessions().links_of_name(name);
            close_links(Arc::clone(&self.handles), links).await;
        }
        for name in &changes.entrances {
            let Some(session) = self.sessions().current.get(name).map(|(_, s)| Arc::clone(s))
            else {
                continue;
            };
            let turn = self.published.turn(name).await;
            let Some(client) = self.shared.clients.find(name) else { continue };
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

    fn place_of<'a>(
        &'a self,
        session: &'a Arc<Session>,
        client: &'a Client,
    ) -> publish::Registrant<'a> {
        let public_bind = self.shared.public_bind;
        let is_known = self.shared.clients.are_told_of(&session.name);
        let (hosts, clients) = (&self.shared.hosts, &self.shared.clients);
        let handles = &self.handles;
        publish::Registrant { session, client, is_known, public_bind, hosts, clients, handles }
    }

    /// Chooses the worker of a greeted carrier. A carrier of an existing link goes to the worker of
    /// the link. A new link goes to a worker with the fewest links of the session, not counting
    /// links that are going away, and preferably to the worker of such a link, or to the present
    /// worker `here`. A carrier that cannot move (see `Transport::stays`) begins its
    /// link here.
    pub(super) fn place(&self, greeted: &Greeted, here: usize) -> Option<Placed> {
        let mut sessions = self.sessions();
        if let Some(attach) = greeted.grant.attach {
            let entry = sessions.links.get(&attach.link)?;
            return Some(Placed { worker: entry.worker, serial: entry.serial });
        }
        let secret = greeted.accepted.secret.clone()?;
        let (name, instance) = (greeted.grant.name.as_str(), greeted.grant.instance);
        let (session, old) = sessions.in_charge(&greeted.grant, self.handles.len())?;
        let mut counts = vec![0usize; self.handles.len()];
        for (worker, _) in sessions.links_of(&session) {
            counts[worker] += 1;
        }
        // Flows of a link that is going away keep their worker. With its successor on the same worker
        // the peers of a UDP port need not move.
        let mut succeeds = Vec::new();
        for (worker, count) in counts.iter_mut().enumerate() {
            let leaving = session.leaving(worker);
            *count = count.saturating_sub(leaving);
            if leaving > 0 {
                succeeds.push(worker);
            }
        }
        let least = counts.iter().copied().min().unwrap_or(0);
        let first = counts.iter().position(|&n| n == least).unwrap_or(here);
        let stays = greeted.carrier.peer.transport.stays();
        let worker = match succeeds.into_iter().find(|worker| counts[*worker] == least) {
            _ if stays => here,
            Some(worker) => worker,
            None if counts.get(here) == Some(&least) => here,
            None => first,
        };
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let id = greeted.accepted.link;
        sessions.ids.insert(serial, id);
        sessions.links.insert(id, LinkEntry { serial, worker, secret, instance, session });
        *sessions.names.entry(name.to_owned()).or_default() += 1;
        drop(sessions);
        if !old.is_empty() {
            tracing::info!(target: AUDIT, client = name, "a new process of client {name} takes over its services");
            tokio::task::spawn_local(close_links(Arc::clone(&self.handles), old));
        }
        Some(Placed { worker, serial })
    }

    /// Removes a link that has ended. With the last link of a session its entrances close, except
    /// the entrances that a newer session took over.
    pub(super) async fn link_ended(&self, serial: u64) {
        let (last, in_charge) = {
            let mut sessions = self.sessions();
            let Some(id) = sessions.ids.remove(&serial) else { return };
            let Some(entry) = sessions.links.remove(&id) else { return };
            sessions.has_one_less(&entry.session.name);
            let session = entry.session;
            self.pending.link_ended(session.id, serial);
            if sessions.links_of(&session).next().is_some() {
                return;
            }
            let in_charge =
                sessions.current.get(&session.name).is_some_and(|(_, now)| now.id == session.id);
            if in_charge {
                sessions.current.remove(&session.name);
            }
            (session, in_charge)
        };
        if in_charge {
            let is_connected = |name: &str| self.is_connected(name);
            self.shared.clients.forget_stranger(&last.name, is_connected);
        }
        self.note_end(&last.name);
        if !in_charge {
            // A newer process of the client took over and is about to register. The ports stay open
            // meanwhile, and visitors are held until the new process has links.
            tokio::time::sleep(HANDOVER).await;
        }
        self.published.withdraw(&last, (&self.handles, &self.shared.hosts)).await;
    }

    /// Takes a registration that came over a link. It waits for [`Self::turn`], and a newer one
    /// takes its place. Its memory is charged to `budget`. False: the link has ended.
    pub(super) fn offer(&self, serial: u64, register: Register, budget: &Lease) -> bool {
        let Some(session) = self.session_of(serial) else { return false };
        let held = budget.hold(pending::weight(&register));
        self.pending.put(session.id, serial, register, held);
        true
    }

    /// Waits until the registrations of the client of this link may be worked on. Dropping the
    /// future has no effect.
    pub(super) async fn turn(&self, serial: u64) -> Option<(Arc<Session>, Turn<'_>)> {
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
    pub(super) async fn register(
        &self,
        session: &Arc<Session>,
        turn: Turn<'_>,
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

    /// Adds the services that could not be published to the sessions of a status.
    pub(super) fn add_failures(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        self.published.add_failures(sessions);
    }

    /// Closes all entrances, at the begin of a stop. No link is made and nothing is published from
    /// now on.
    pub(super) async fn close_entrances(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.published.close_all((&self.handles, &self.shared.hosts)).await;
    }
}

/// Ends links, given by worker and serial, on their workers.
async fn close_links(handles: Arc<[Handle]>, links: Vec<LinkPlace>) {
    for (worker, serial) in links {
        let Some(handle) = handles.get(worker) else { continue };
        let closing = handle.run(move |worker| {
            let all = worker.state.all_links();
            if let Some((_, link)) = all.iter().find(|(_, l)| l.serial() == serial) {
                link.close();
            }
        });
        // A worker that has stopped has closed its links.
        let _ = closing.await;
    }
}

impl Sessions {
    /// The session that a new link joins, and the links of an older process that it replaces.
    /// `None`: a newer process has logged in meanwhile.
    fn in_charge(
        &mut self,
        grant: &Grant,
        workers: usize,
    ) -> Option<(Arc<Session>, Vec<LinkPlace>)> {
        let name = grant.name.as_str();
        let old = match self.current.get(name) {
            Some((instance, session)) if *instance == grant.instance => {
                return Some((Arc::clone(session), Vec::new()));
            }
            Some((_, session)) => self.links_of(session).collect(),
            None => Vec::new(),
        };
        if !old.is_empty() && !grant.takeover {
            return None;
        }
        let session = Session::new(name, workers);
        self.current.insert(name.to_owned(), (grant.instance, Arc::clone(&session)));
        Some((session, old))
    }

    fn has_one_less(&mut self, name: &str) {
        if let Some(count) = self.names.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(name);
            }
        }
    }

    /// Worker and serial of each link of a client, over all its processes.
    fn links_of_name(&self, name: &str) -> Vec<LinkPlace> {
        let entries = self.links.values().filter(|entry| entry.session.name == name);
        entries.map(|entry| (entry.worker, entry.serial)).collect()
    }

    /// Worker and serial of each link of a client, except the links of one process.
    fn links_of_others(&self, name: &str, instance: InstanceId) -> Vec<LinkPlace> {
        let entries = self.links.values();
        let others =
            entries.filter(|entry| entry.session.name == name && entry.instance != instance);
        others.map(|entry| (entry.worker, entry.serial)).collect()
    }

    /// Worker and serial of each link of a session.
    fn links_of(&self, session: &Session) -> impl Iterator<Item = LinkPlace> {
        let id = session.id;
        self.links
            .values()
            .filter(move |entry| entry.session.id == id)
            .map(|entry| (entry.worker, entry.serial))
    }
}
