//! Another node, as this node dials it.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use cluster::names::NodeId;
use cluster::record::PeerAddress;
use node::session::{Session, Worker};
use tokio::task::spawn_local;

use super::keeper::{self, Keeper};
use super::news::News;
use super::paths::paths;
use crate::lock::lock;
use crate::mail::Mailbox;
use crate::names::certificate_name;
use crate::shared::Shared;

/// Another node.
pub(crate) struct Remote {
    pub(crate) node: NodeId,
    /// The session of all links to it.
    pub(crate) session: Arc<Session>,
    /// The messages that wait for it.
    pub(super) mailbox: Arc<Mailbox>,
    /// The links that carry its messages.
    pub(super) news: News,
    shared: Weak<Shared>,
    state: Mutex<RemoteState>,
}

#[derive(Default)]
struct RemoteState {
    /// The addresses in its record.
    addresses: Vec<PeerAddress>,
    /// The tasks that keep a link, by worker.
    keepers: HashMap<usize, Keeper>,
    /// The tasks whose links retire, because the addresses have changed.
    former: Vec<Keeper>,
    /// Why there is no link.
    trouble: Option<String>,
    /// No more links are made.
    is_over: bool,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.node)
    }
}

impl Remote {
    /// A node without addresses.
    pub(super) fn new(shared: &Arc<Shared>, node: &NodeId) -> Arc<Self> {
        let (mailbox, of) = (shared.mail.open(node), Arc::downgrade(shared));
        Arc::new_cyclic(|remote: &Weak<Self>| {
            let remote = Weak::clone(remote);
            let demand = move |worker| {
                if let Some(remote) = remote.upgrade() {
                    remote.demand(worker);
                }
            };
            let name = certificate_name(node);
            let session = Session::of_node(&name, shared.handles.len(), Box::new(demand));
            let (news, state) = (News::default(), Mutex::default());
            Self { node: node.clone(), session, mailbox, news, shared: of, state }
        })
    }

    /// Why there is no link.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.state).trouble.clone()
    }

    /// Records why there is no link. `lasts`: the visitors that wait for one are refused.
    pub(super) fn fail(&self, why: String, lasts: bool) {
        let mut state = lock(&self.state);
        let is_news = state.trouble.as_ref() != Some(&why);
        state.trouble = Some(why.clone());
        drop(state);
        let node = &self.node;
        if is_news {
            tracing::warn!(%node, "no link to node {node}: {why}; trying again");
        } else {
            tracing::debug!(%node, "no link to node {node}: {why}; trying again");
        }
        if lasts {
            self.session.refuse_waiting();
        }
    }

    /// Records that there is a link.
    pub(super) fn succeed(&self) {
        lock(&self.state).trouble = None;
    }

    /// Makes a link for a visitor on a worker that has none, unless one is being made. Must be
    /// called on a worker.
    fn demand(self: &Arc<Self>, worker: usize) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(handle) = shared.handles.get(worker).cloned() else { return };
        let state = lock(&self.state);
        let is_kept = state.keepers.get(&worker).is_some_and(|keeper| !keeper.is_finished());
        if is_kept || state.is_over || shared.is_leaving() {
            return;
        }
        drop(state);
        let remote = Arc::clone(self);
        // A worker that has stopped makes no links.
        spawn_local(async move {
            let _ = handle.run(move |worker| remote.keep(worker, &shared)).await;
        });
    }

    /// Starts to keep a link on this worker, unless one is kept.
    pub(super) fn keep(self: &Arc<Self>, worker: &Rc<Worker>, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        let is_kept = state.keepers.get(&worker.index).is_some_and(|known| !known.is_finished());
        if is_kept || state.is_over || shared.is_leaving() {
            return;
        }
        match paths(shared, worker, &self.node, &state.addresses) {
            Ok(paths) => {
                let keeper = keeper::start(worker, shared, self, paths);
                state.keepers.insert(worker.index, keeper);
            }
            Err(problem) => {
                drop(state);
                self.fail(format!("{problem:#}"), true);
            }
        }
    }

    /// Changes the addresses. The links over former addresses retire, and the caller starts to keep
    /// another link. Must be called on a worker.
    pub(super) fn set(&self, addresses: &[PeerAddress], shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        if state.addresses == addresses {
            return;
        }
        state.addresses = addresses.to_vec();
        state.trouble = None;
        let former: Vec<_> = state.keepers.drain().map(|(_, keeper)| keeper).collect();
        former.iter().for_each(Keeper::stop);
        state.former.retain(|keeper| !keeper.is_finished());
        let has_links = !former.is_empty();
        state.former.extend(former);
        drop(state);
        if has_links {
            self.retire(shared);
        }
    }

    /// Asks all present links to retire.
    fn retire(&self, shared: &Arc<Shared>) {
        let (handles, session) = (Arc::clone(&shared.handles), self.session.id);
        spawn_local(async move {
            for handle in handles.iter() {
                let retire = move |worker: &Rc<Worker>| {
                    let links = worker.state.links_of(session);
                    links.iter().for_each(|(_, link)| link.go_away());
                };
                // A worker that has stopped has no links.
                let _ = handle.call(retire).await;
            }
        });
    }

    /// Makes no more links; the present links go on.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.keepers.values().chain(&state.former).for_each(Keeper::stop);
    }

    /// Ends all links and attempts: the node is gone.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        let keepers: Vec<_> = state.keepers.drain().map(|(_, keeper)| keeper).collect();
        let former = std::mem::take(&mut state.former);
        drop(state);
        // The drop of a task closes its links.
        keepers.iter().chain(&former).for_each(Keeper::end);
        self.session.refuse_waiting();
    }
}
