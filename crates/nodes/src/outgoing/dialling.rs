//! The tasks that dial another node: which worker has one, by which addresses, until when.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use cluster::names::NodeId;
use cluster::record::PeerAddress;
use node::session::{Session, Worker};
use tokio::task::spawn_local;

use super::keeper::{self, LinkKeeper};
use super::paths::paths;
use super::remote::Remote;
use crate::lock::lock;
use crate::names::certificate_name;
use crate::shared::NodeShared;

/// The other nodes that were living within the last minute.
#[derive(Debug, Default)]
pub(crate) struct Outgoings(Mutex<BTreeMap<NodeId, Arc<Dialling>>>);

impl Outgoings {
    /// Another node.
    pub(crate) fn remote(&self, node: &NodeId) -> Option<Arc<Remote>> {
        lock(&self.0).get(node).map(|dialling| Arc::clone(&dialling.remote))
    }

    /// All other nodes.
    pub(crate) fn remotes(&self) -> Vec<Arc<Remote>> {
        lock(&self.0).values().map(|dialling| Arc::clone(&dialling.remote)).collect()
    }

    /// Begins to dial a node.
    pub(super) fn add(&self, node: &NodeId, shared: &Arc<NodeShared>) -> Arc<Dialling> {
        let dialling = Dialling::new(shared, node);
        lock(&self.0).insert(node.clone(), Arc::clone(&dialling));
        dialling
    }

    /// Forgets a node that is gone. Its links take no more streams, and end with their last
    /// streams: a node that only the engine does not hear is still there. Must be called on a
    /// worker.
    pub(super) fn forget(&self, node: &NodeId, shared: &Arc<NodeShared>) {
        let Some(dialling) = lock(&self.0).remove(node) else { return };
        dialling.stop();
        let (shared, session) = (Arc::clone(shared), Arc::clone(&dialling.remote.session));
        session.refuse_waiting();
        spawn_local(async move { retire(&shared, session.id).await });
    }

    /// Replaces all links. Must be called on the first worker, whose links are always kept.
    pub(crate) fn begin_anew(&self, worker: &Rc<Worker>, shared: &Arc<NodeShared>) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for dialling in all {
            dialling.begin_anew(shared);
            dialling.keep(worker, shared);
        }
    }

    /// Makes no more links. Each link ends with its last stream.
    pub(crate) async fn leave(&self, shared: &Arc<NodeShared>) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for dialling in all {
            dialling.stop();
            retire(shared, dialling.remote.session.id).await;
        }
    }
}

/// Asks all links of a session to retire.
async fn retire(shared: &Arc<NodeShared>, session: u64) {
    for handle in shared.handles.iter() {
        let retire = move |worker: &Rc<Worker>| {
            let links = worker.state.links_of(session);
            links.iter().for_each(|(_, link)| link.go_away());
        };
        // A worker that has stopped has no links.
        let _ = handle.call(retire).await;
    }
}

/// The links to another node, made and to be made.
pub(super) struct Dialling {
    pub(super) remote: Arc<Remote>,
    shared: Weak<NodeShared>,
    state: Mutex<DiallingState>,
}

#[derive(Default)]
struct DiallingState {
    /// The addresses in the record of the node.
    addresses: Vec<PeerAddress>,
    /// The tasks that keep a link, by worker.
    keepers: HashMap<usize, LinkKeeper>,
    /// The tasks whose links retire, because the addresses have changed.
    former: Vec<LinkKeeper>,
    /// No more links are made.
    is_over: bool,
}

impl fmt::Debug for Dialling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dialling({:?})", self.remote)
    }
}

impl Dialling {
    /// A node without addresses.
    fn new(shared: &Arc<NodeShared>, node: &NodeId) -> Arc<Self> {
        let mailbox = shared.mail.open(node);
        Arc::new_cyclic(|dialling: &Weak<Self>| {
            let dialling = Weak::clone(dialling);
            let demand = move |worker| {
                if let Some(dialling) = dialling.upgrade() {
                    dialling.demand(worker);
                }
            };
            let name = certificate_name(node);
            let session = Session::of_node(&name, shared.handles.len(), Some(Box::new(demand)));
            let remote = Remote::new(node, session, mailbox);
            Self { remote, shared: Arc::downgrade(shared), state: Mutex::default() }
        })
    }

    /// Makes a link for a visitor on a worker that has none, unless one is being made. Must be
    /// called on a worker.
    fn demand(self: &Arc<Self>, worker: usize) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(handle) = shared.handles.get(worker).cloned() else { return };
        if !lock(&self.state).wants(worker) {
            return;
        }
        let dialling = Arc::clone(self);
        // A worker that has stopped makes no links.
        spawn_local(async move {
            let _ = handle.run(move |worker| dialling.keep(worker, &shared)).await;
        });
    }

    /// Starts to keep a link on this worker, unless one is kept.
    pub(super) fn keep(self: &Arc<Self>, worker: &Rc<Worker>, shared: &Arc<NodeShared>) {
        let mut state = lock(&self.state);
        if !state.wants(worker.index) || shared.is_leaving() {
            return;
        }
        match paths(shared, worker, &self.remote.node, &state.addresses) {
            Ok(paths) => {
                let keeper = keeper::start(worker, shared, &self.remote, paths);
                state.keepers.insert(worker.index, keeper);
            }
            Err(problem) => {
                drop(state);
                self.remote.fail(format!("{problem:#}"), true);
            }
        }
    }

    /// Changes the addresses. The links over former addresses retire, and the caller starts to keep
    /// another link. Must be called on a worker.
    pub(super) fn set(&self, addresses: &[PeerAddress], shared: &Arc<NodeShared>) {
        let mut state = lock(&self.state);
        if state.addresses == addresses {
            return;
        }
        state.addresses = addresses.to_vec();
        drop(state);
        self.begin_anew(shared);
    }

    /// Lets all links retire; the caller starts to keep another link. Must be called on a worker.
    fn begin_anew(&self, shared: &Arc<NodeShared>) {
        let mut state = lock(&self.state);
        let former: Vec<_> = state.keepers.drain().map(|(_, keeper)| keeper).collect();
        former.iter().for_each(LinkKeeper::stop);
        state.former.retain(|keeper| !keeper.is_finished());
        let has_links = !former.is_empty();
        state.former.extend(former);
        drop(state);
        self.remote.succeed();
        if has_links {
            let (shared, session) = (Arc::clone(shared), self.remote.session.id);
            spawn_local(async move { retire(&shared, session).await });
        }
    }

    /// Makes no more links; the present links go on.
    fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.keepers.values().chain(&state.former).for_each(LinkKeeper::stop);
    }
}

impl DiallingState {
    /// Whether a task of this worker is to keep a link, and none does.
    fn wants(&self, worker: usize) -> bool {
        let is_kept = self.keepers.get(&worker).is_some_and(|keeper| !keeper.is_finished());
        !is_kept && !self.is_over
    }
}
