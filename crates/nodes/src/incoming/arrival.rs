//! A carrier of another node that is not attached to its link yet.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::link::server::{Greeted, Placement};
use ::link::{Link, Settings};
use cluster::names::NodeId;
use logging::AUDIT;
use node::session::{Session, Worker};
use proto::{LinkId, Side};
use tokio::task::spawn_local;

use super::owner::IncomingOwner;
use super::places::IncomingPlace;
use crate::names::certificate_name;
use crate::shared::NodeShared;

/// A carrier of another node that is not attached to its link yet.
pub(super) struct NodeArrival<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) shared: &'a Arc<NodeShared>,
}

/// The link of a carrier.
struct FoundLink {
    id: LinkId,
    node: NodeId,
    worker: usize,
    serial: u64,
    session: Arc<Session>,
}

impl Placement for NodeArrival<'_> {
    fn place(&self, mut greeted: Greeted) -> bool {
        let Some(found) = self.find(&greeted) else { return false };
        if found.worker == self.worker.index {
            arrive(self.worker, self.shared, &found, greeted);
            return true;
        }
        if greeted.detach().is_err() {
            return false;
        }
        let Some(handle) = self.worker.peers.get(found.worker).cloned() else { return false };
        let shared = Arc::clone(self.shared);
        spawn_local(async move {
            // A worker that has stopped has no links.
            let _ = handle
                .run(move |worker| {
                    // A carrier that is lost meanwhile is redialled.
                    if greeted.join().is_ok() {
                        arrive(worker, &shared, &found, greeted);
                    }
                })
                .await;
        });
        true
    }
}

impl NodeArrival<'_> {
    /// The link of a carrier. Records a new link.
    fn find(&self, greeted: &Greeted) -> Option<FoundLink> {
        let id = greeted.accepted.link;
        let name = &greeted.grant.name;
        let mut places = self.shared.incomings.places();
        if greeted.grant.attach.is_some() {
            let IncomingPlace { node, worker, serial, session, .. } = places.get(&id)?;
            let (node, session) = (node.clone(), Arc::clone(session));
            return Some(FoundLink { id, node, worker: *worker, serial: *serial, session });
        }
        let node = NodeId::new(name.as_str()).ok()?;
        let secret = greeted.accepted.secret.clone()?;
        let serial = self.shared.serials.fetch_add(1, Ordering::Relaxed);
        let known = places.values().find(|place| place.name == *name);
        let session = known.map_or_else(
            || Session::of_node(&certificate_name(&node), self.worker.peers.len(), None),
            |known| Arc::clone(&known.session),
        );
        let (instance, worker) = (greeted.grant.instance, self.worker.index);
        let place = IncomingPlace {
            name: name.clone(),
            node: node.clone(),
            worker,
            serial,
            session: Arc::clone(&session),
            secret,
            instance,
        };
        places.insert(id, place);
        Some(FoundLink { id, node, worker, serial, session })
    }
}

/// Attaches a carrier to its link, on the worker of the link.
fn arrive(worker: &Rc<Worker>, shared: &Arc<NodeShared>, found: &FoundLink, greeted: Greeted) {
    let FoundLink { id, node, serial, session, .. } = found;
    let is_new = greeted.grant.attach.is_none();
    let link = match worker.state.link(session, *serial) {
        Some(link) => link,
        None if is_new => {
            let settings = Settings {
                side: Side::Server,
                config: shared.link_config(),
                budget: Rc::new(worker.state.portion.of_client(&certificate_name(node))),
                serial: *serial,
                features: greeted.accepted.features,
            };
            let owner = IncomingOwner::new(worker, shared, (*id, node), session);
            let link = Link::new(settings, owner);
            worker.state.add_link(worker.index, session, &link);
            link
        }
        // The link has ended meanwhile.
        None => return,
    };
    let transport = greeted.carrier.peer.transport;
    if greeted.attach_to(&link) {
        let what = if is_new { "has connected with" } else { "has resumed" };
        tracing::info!(
            target: AUDIT, %node, link = serial, %transport,
            "node {node} {what} link {serial} over {transport}"
        );
    }
}
