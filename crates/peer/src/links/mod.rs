//! Links to private services of other clients. A [`Peer`] is one service as a visitor knows it; its
//! session is that of the forwards that lead to it, so that their visitors find links, move between
//! workers and wait like the visitors of any forward.
//!
//! ```text
//!   a visitor finds no link ──demand──> keeper: dial, greet ──> link of the session
//!        │                                 │
//!        │ <──refused, with the reason── wrong token, no right, the other client is away
//!        └──────────────────────────────── the link is live: its stream is opened
//!                                          no stream for 5 min: the link retires
//! ```

mod connect;
mod dialer;
mod keeper;
mod owner;
mod trouble;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use config::{ClientConfig, Local, PrivateService, Visit};
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};

use crate::home::Home;
use node::session::{Handle, PathBytes, Session, Worker};

pub use connect::{PeerConnector, named};

/// The private services that this client visits.
pub struct PeerLinks {
    /// The number of workers.
    workers: usize,
    peers: Mutex<HashMap<PrivateService, Arc<Peer>>>,
    /// Counts the bytes over the links.
    bytes: Arc<PathBytes>,
    /// How often a link to the server has begun to retire.
    moves: watch::Sender<u64>,
    /// Set when the client has started.
    place: OnceLock<Surroundings>,
}

/// The client around the links.
struct Surroundings {
    handles: Arc<[Handle]>,
    shared: Weak<dyn Home>,
}

impl fmt::Debug for PeerLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerLinks").field("peers", &self.peers().len()).finish_non_exhaustive()
    }
}

/// A private service of another client.
pub struct Peer {
    pub service: PrivateService,
    /// The session of all links to it.
    pub session: Arc<Session>,
    links: Weak<PeerLinks>,
    state: Mutex<PeerState>,
}

#[derive(Default)]
struct PeerState {
    /// The tasks that keep a link, by worker.
    keepers: HashMap<usize, Keeper>,
    /// A link is kept without demand: the first datagram of a UDP program would be lost during the
    /// dial.
    is_kept: bool,
    /// The token and the path, once a link was requested.
    visit: Option<Visit>,
    /// Why there is no link.
    trouble: Option<String>,
}

/// A task that keeps a link.
struct Keeper {
    task: AbortHandle,
    /// No more links are made.
    leaving: Arc<AtomicBool>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.service)
    }
}

impl PeerLinks {
    pub fn new(workers: usize, bytes: &Arc<PathBytes>) -> Arc<Self> {
        let (peers, moves, place) = Default::default();
        Arc::new(Self { workers, peers, bytes: Arc::clone(bytes), moves, place })
    }

    /// Allows links from now on, because the client has started.
    pub fn start(&self, handles: &Arc<[Handle]>, shared: &Arc<dyn Home>) {
        let (handles, shared) = (Arc::clone(handles), Arc::downgrade(shared));
        // Called once.
        let _ = self.place.set(Surroundings { handles, shared });
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<PrivateService, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service as a visitor knows it.
    pub fn peer(self: &Arc<Self>, service: &PrivateService) -> Arc<Peer> {
        let mut peers = self.peers();
        if let Some(known) = peers.get(service) {
            return Arc::clone(known);
        }
        let links = Arc::downgrade(self);
        let made = Arc::new_cyclic(|peer: &Weak<Peer>| {
            let peer = peer.clone();
            let demand = move |worker| {
                if let Some(peer) = peer.upgrade() {
                    peer.demand(worker);
                }
            };
            let name = service.to_string();
            let session =
                Session::of_peer(&name, self.workers, Some(Box::new(demand)), &self.bytes);
            Peer { service: service.clone(), session, links, state: Mutex::default() }
        });
        peers.insert(service.clone(), Arc::clone(&made));
        made
    }

    /// Follows a new configuration: links with a token that is no longer in force end, and links
    /// that are always kept are made.
    pub async fn follow(self: &Arc<Self>, config: &ClientConfig) {
        let known: Vec<_> = self.peers().values().cloned().collect();
        for peer in known {
            let visit = config.visit_of(&peer.service);
            let is_other =
                peer.state().visit.as_ref().is_some_and(|known| Some(known) != visit.as_ref());
            if is_other {
                peer.end();
            }
        }
        let is_udp = |forward: &&config::Forward| matches!(forward.listen, Local::Udp(_));
        let kept = config.forwards.iter().filter(is_udp).filter_map(config::Forward::private);
        let kept: Vec<_> = kept.map(|service| self.peer(service)).collect();
        for peer in self.peers().values() {
            peer.state().is_kept = kept.iter().any(|kept| Arc::ptr_eq(kept, peer));
        }
        let Some(place) = self.place.get() else { return };
        for peer in kept {
            // A worker that has stopped makes no links.
            let Some(first) = place.handles.first() else { return };
            let _ = first.run(move |worker| peer.demand(worker.index)).await;
        }
    }
}

impl PeerLinks {
    /// Handles a retiring link to the server. The streams that carry links of visits over it keep
    /// it and a former process of the server alive, so each link of a visit ends once it is idle,
    /// and the next visit uses the successor.
    pub fn uplink_retires(&self) {
        self.moves.send_modify(|moves| *moves += 1);
    }

    /// Stops making links, because this process is stopping; each link ends with its last stream.
    pub async fn leave(&self, handles: &[Handle]) {
        let sessions: Vec<_> = {
            let peers = self.peers();
            for peer in peers.values() {
                let state = peer.state();
                state.keepers.values().for_each(|own| own.leaving.store(true, Ordering::Relaxed));
            }
            peers.values().map(|peer| peer.session.id).collect()
        };
        for handle in handles {
            let sessions = sessions.clone();
            let leave = move |worker: &Rc<Worker>| {
                let links = worker.state.all_links();
                let own = links.iter().filter(|(session, _)| sessions.contains(&session.id));
                own.for_each(|(_, link)| link.go_away());
            };
            // A worker that has stopped has no links.
            let _ = handle.call(leave).await;
        }
    }
}

impl Peer {
    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why there is no link.
    pub fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// Makes a link for a visitor on this worker that has none, unless a link is being made.
    fn demand(self: &Arc<Self>, worker: usize) {
        self.demand_at(worker, |keepers| keepers.is_empty());
    }

    /// Like [`Self::demand`], for a link on this worker.
    pub(crate) fn demand_here(self: &Arc<Self>, worker: usize) {
        self.demand_at(worker, |keepers| !keepers.contains_key(&worker));
    }

    /// Must be called on a worker.
    fn demand_at(
        self: &Arc<Self>,
        worker: usize,
        is_wanted: impl Fn(&HashMap<usize, Keeper>) -> bool,
    ) {
        let Some(links) = self.links.upgrade() else { return };
        let Some(place) = links.place.get() else { return };
        let Some(shared) = place.shared.upgrade() else { return };
        let Some(handle) = place.handles.get(worker).cloned() else { return };
        if shared.is_leaving() {
            return;
        }
        let mut state = self.state();
        state.keepers.retain(|_, keeper| !keeper.task.is_finished());
        if !is_wanted(&state.keepers) {
            return;
        }
        drop(state);
        let peer = Arc::clone(self);
        let start = move |worker: &Rc<Worker>| peer.keep(worker, &shared);
        // A worker that has stopped makes no links.
        spawn_local(async move {
            let _ = handle.run(start).await;
        });
    }

    /// Starts to keep a link on this worker.
    fn keep(self: &Arc<Self>, worker: &Rc<Worker>, shared: &Arc<dyn Home>) {
        // Read under the lock: a reload either ends the keeper or precedes it.
        let mut state = self.state();
        let visit = shared.config().load().visit_of(&self.service);
        let Some(visit) = visit else {
            drop(state);
            return self.fail(trouble::no_token(&self.service));
        };
        let is_kept = |keeper: &Keeper| !keeper.task.is_finished();
        if state.keepers.get(&worker.index).is_some_and(is_kept) {
            return;
        }
        let keeper = keeper::start(worker, shared, self, &visit);
        state.visit = Some(visit);
        state.keepers.insert(worker.index, keeper);
    }

    /// Records why there is no link, and refuses the visitors that wait for a link.
    fn fail(&self, why: String) {
        let mut state = self.state();
        let is_news = state.trouble.as_ref() != Some(&why);
        state.trouble = Some(why.clone());
        drop(state);
        let service = self.service.to_string();
        if is_news {
            tracing::warn!(service, "no visit of the private service {service}: {why}");
        } else {
            tracing::debug!(service, "no visit of the private service {service}: {why}");
        }
        self.session.refuse_waiting();
    }

    /// Records that there is a link.
    fn succeed(&self) {
        self.state().trouble = None;
    }

    /// Ends all links and attempts.
    fn end(&self) {
        let keepers: Vec<_> = {
            let mut state = self.state();
            state.visit = None;
            state.trouble = None;
            state.keepers.drain().map(|(_, keeper)| keeper.task).collect()
        };
        // The drop of a keeper closes its links.
        keepers.iter().for_each(AbortHandle::abort);
    }
}
