//! Sessions, links and where they live; the only state of a server that all workers share. None of
//! it is on the way of a byte: it is asked at log-ins and at the end of links.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use link::server::Greeted;
use logging::{AUDIT, RepeatLimit};
use ops::status;
use proto::control::{ControlMessage, Register, Registered};
use proto::greeting::{Attach, Grant, LinkSecret, Name, Refusal, StoredCredential};
use proto::{InstanceId, LinkId, Preview};

use super::ServerShared;
use super::brake::Brake;
use super::clients::{Changes, Client};
use super::enrolments::Revoked;
use crate::session::{Handle, Session, Worker};

mod publish;

use publish::Published;

/// Links of one client process. Far more than workers anywhere; a client that asks for more is
/// misconfigured or hostile.
const LINKS_MAX: usize = 256;

/// How long the entrances of a superseded process wait for the newer one to register: as long as a
/// visitor is held. Mostly a round trip suffices.
const HANDOVER: Duration = Duration::from_secs(10);

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    shared: Arc<ServerShared>,
    handles: Arc<[Handle]>,
    brake: Brake,
    /// Of this process; the first bytes of its link ids.
    generation: [u8; 4],
    serials: AtomicU64,
    sessions: Mutex<Sessions>,
    /// Introductions that were told.
    introduced: Mutex<RepeatLimit<()>>,
    /// Entrances of services. Binding takes turns, so that two clients cannot both win a port.
    published: tokio::sync::Mutex<Published>,
}

#[derive(Debug, Default)]
struct Sessions {
    /// The session in charge of a client's name.
    current: HashMap<String, (InstanceId, Arc<Session>)>,
    links: HashMap<LinkId, LinkEntry>,
    ids: HashMap<u64, LinkId>,
    /// How many links there are of a name.
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

/// Worker and serial of a link.
type LinkPlace = (usize, u64);

/// Where a carrier belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) worker: usize,
    pub(super) serial: u64,
}

impl Registry {
    pub(super) fn new(shared: Arc<ServerShared>, handles: Arc<[Handle]>) -> Self {
        Self {
            shared,
            handles,
            brake: Brake::new(),
            generation: link::random(),
            serials: AtomicU64::new(1),
            sessions: Mutex::default(),
            introduced: Mutex::default(),
            published: tokio::sync::Mutex::default(),
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

    /// A link as it stands, for a client that says it is about to come back to it; see
    /// [`link::Link::preview`].
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

    /// The session of a link by its serial.
    pub(super) fn session_of(&self, serial: u64) -> Option<Arc<Session>> {
        let sessions = self.sessions();
        let entry = sessions.links.get(sessions.ids.get(&serial)?)?;
        Some(Arc::clone(&entry.session))
    }

    /// May this process have a new link? The newest process of a name wins; one that was superseded
    /// says so by not asking to take over, and stays out while another lives (no kick loops).
    pub(super) fn admit(&self, grant: &Grant) -> Result<(), Refusal> {
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

    /// Somebody has come in by a code; see [`Enrolments::finish`]. False: the code is not good (any
    /// more).
    ///
    /// [`Enrolments::finish`]: super::enrolments::Enrolments::finish
    pub(super) async fn enroll(
        &self,
        name: &Name,
        code: &StoredCredential,
        enrolled: StoredCredential,
    ) -> anyhow::Result<bool> {
        let shared = &self.shared;
        let _turn = shared.enrolments.turn().await;
        // Somebody may have configured a client of this name since the code was made.
        let is_client = shared.clients.are_told_of(name.as_str());
        let Some(grant) = shared.enrolments.finish(name, code, enrolled, is_client).await? else {
            return Ok(false);
        };
        let changes = shared.clients.put(&grant)?;
        tracing::info!(target: AUDIT, client = name.as_str(), "enrolled");
        self.follow(&changes).await;
        Ok(true)
    }

    /// Whether a client of this name has a link.
    pub(super) fn is_connected(&self, name: &str) -> bool {
        self.sessions().names.contains_key(name)
    }

    /// A client that nobody knew has a token, and wants this name for it.
    pub(super) fn introduce(&self, name: &Name, token: StoredCredential) -> Result<(), Refusal> {
        let is_connected = |name: &str| self.is_connected(name);
        self.shared.clients.introduce(name.as_str(), token, is_connected, Instant::now())?;
        let told = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        // Anybody can do so, under any name.
        if let Some(more) = told.pass((), Instant::now()) {
            tracing::info!(target: AUDIT, client = name.as_str(), more, "nobody knew it, and it has introduced itself");
        }
        Ok(())
    }

    /// Puts a client out that came in by a code. Says whether there was one.
    pub(super) async fn revoke(&self, name: &Name) -> anyhow::Result<bool> {
        let shared = &self.shared;
        let _turn = shared.enrolments.turn().await;
        let Revoked { code, client } = shared.enrolments.revoke(name).await?;
        if !client {
            // One of the configuration stays.
            return Ok(code);
        }
        let changes = shared.clients.remove(name.as_str());
        tracing::info!(target: AUDIT, client = name.as_str(), "revoked");
        self.follow(&changes).await;
        Ok(true)
    }

    /// After a reload: who may not be in any more is put out, and rights that have changed are
    /// those of the entrances.
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
            let Some(client) = self.shared.clients.find(name) else { continue };
            let place = self.place_of(&session, &client);
            let Some(registered) = self.published.lock().await.review(place).await else {
                continue;
            };
            self.tell(&session, &registered).await;
        }
    }

    /// Says to a client, over one of its links, what became of its services.
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
        publish::Registrant { session, client, public_bind, handles: &self.handles }
    }

    /// Finds the worker for a greeted carrier: that of its link, else for a new link the one with
    /// the fewest of the session, the present one if it is among them, or if the carrier stays
    /// here.
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
        let least = counts.iter().copied().min().unwrap_or(0);
        let first = counts.iter().position(|&n| n == least).unwrap_or(here);
        let stays = greeted.carrier.peer.transport.stays();
        let worker = if stays || counts.get(here) == Some(&least) { here } else { first };
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let id = greeted.accepted.link;
        sessions.ids.insert(serial, id);
        sessions.links.insert(id, LinkEntry { serial, worker, secret, instance, session });
        *sessions.names.entry(name.to_owned()).or_default() += 1;
        drop(sessions);
        if !old.is_empty() {
            tracing::info!(target: AUDIT, client = name, "a new process of the client takes over");
            tokio::task::spawn_local(close_links(Arc::clone(&self.handles), old));
        }
        Some(Placed { worker, serial })
    }

    /// A link is over. With the last of a session its entrances close, those that nobody took over.
    pub(super) async fn link_ended(&self, serial: u64) {
        let (last, in_charge) = {
            let mut sessions = self.sessions();
            let Some(id) = sessions.ids.remove(&serial) else { return };
            let Some(entry) = sessions.links.remove(&id) else { return };
            sessions.has_one_less(&entry.session.name);
            let session = entry.session;
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
        } else {
            // A newer process of the client took over and is about to register: its ports stay
            // open meanwhile, and visitors are held until it has links.
            tokio::time::sleep(HANDOVER).await;
        }
        self.published.lock().await.withdraw(&last, &self.handles).await;
    }

    /// Publishes what a client wants; `None` when a later registration was applied already.
    pub(super) async fn register(&self, serial: u64, register: Register) -> Option<Registered> {
        let session = self.session_of(serial)?;
        let mut published = self.published.lock().await;
        // Not before it is our turn: a reload may have had its own meanwhile.
        let client = self.shared.clients.find(&session.name)?;
        published.apply(self.place_of(&session, &client), register).await
    }

    /// Adds what could not be published to the sessions of a status.
    pub(super) async fn add_failures(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        self.published.lock().await.add_failures(sessions);
    }

    /// Closes all entrances.
    pub(super) async fn close_entrances(&self) {
        self.published.lock().await.close_all(&self.handles).await;
    }
}

/// Ends links, by worker and serial, on their workers.
async fn close_links(handles: Arc<[Handle]>, links: Vec<LinkPlace>) {
    for (worker, serial) in links {
        let Some(handle) = handles.get(worker) else { continue };
        let closing = handle.run(move |worker| {
            let all = worker.state.all_links();
            if let Some((_, link)) = all.iter().find(|(_, l)| l.serial() == serial) {
                link.close();
            }
        });
        // A worker that is gone has closed its links.
        let _ = closing.await;
    }
}

impl Sessions {
    /// The session that a new link joins, and the links of an older process whose place it takes.
    /// `None`: a newer one has come meanwhile.
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

    /// Worker and serial of each link of a client, of whichever process.
    fn links_of_name(&self, name: &str) -> Vec<LinkPlace> {
        let entries = self.links.values().filter(|entry| entry.session.name == name);
        entries.map(|entry| (entry.worker, entry.serial)).collect()
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
