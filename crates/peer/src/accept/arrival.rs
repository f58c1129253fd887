//! A carrier of a visitor that is not attached to its link yet.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::link::server::{Greeted, Placement};
use ::link::{Link, Settings};
use logging::AUDIT;
use node::memory;
use node::session::{Session, Worker};
use proto::{LinkId, Side};
use tls::Shown;
use tokio::task::spawn_local;

use super::owner::PeerOwner;
use super::places::Place;
use super::proof::is_valid;
use super::proved::Proved;
use crate::home::Home;
use crate::visit::VisitKey;

/// A carrier of a visitor that is not attached to its link yet.
pub(super) struct Arrival<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) shared: &'a Arc<dyn Home>,
    pub(super) whose: &'a VisitKey,
    pub(super) shown: &'a Shown,
}

impl Placement for Arrival<'_> {
    fn place(&self, mut greeted: Greeted) -> bool {
        let id = greeted.accepted.link;
        let Some((at, serial, session)) = self.find(&greeted) else { return false };
        if at == self.worker.index {
            arrive(self.worker, self.shared, self.whose, (id, serial), &session, greeted);
            return true;
        }
        if greeted.detach().is_err() {
            return false;
        }
        let Some(handle) = self.worker.peers.get(at).cloned() else { return false };
        let (shared, whose) = (Arc::clone(self.shared), self.whose.clone());
        spawn_local(async move {
            // A worker that has stopped has no links.
            let _ = handle
                .run(move |worker| {
                    // A carrier that is lost meanwhile is redialled.
                    if greeted.join().is_ok() {
                        arrive(worker, &shared, &whose, (id, serial), &session, greeted);
                    }
                })
                .await;
        });
        true
    }
}

impl Arrival<'_> {
    /// Worker, serial number and session of the link of a carrier. Records a new link.
    fn find(&self, greeted: &Greeted) -> Option<(usize, u64, Arc<Session>)> {
        let id = greeted.accepted.link;
        let mut links = self.shared.host().places.links();
        if greeted.grant.attach.is_some() {
            let place = links.get(&id)?;
            return Some((place.worker, place.serial, Arc::clone(&place.session)));
        }
        let proved = if greeted.grant.certificate {
            Proved::Certificate(self.shown.clone())
        } else {
            Proved::Token(greeted.grant.credential.clone())
        };
        // A reload that reviewed the links before this point has not seen this link.
        if !is_valid(self.shared, &self.shared.config().load(), self.whose, &proved) {
            return None;
        }
        let secret = greeted.accepted.secret.clone()?;
        let serial = self.shared.serials().fetch_add(1, Ordering::Relaxed);
        let VisitKey { visitor, service } = self.whose;
        let known = links.values().find(|place| place.whose == *self.whose);
        let session = known.map_or_else(
            || {
                let (name, workers) = (format!("{visitor} at {service}"), self.worker.peers.len());
                Session::of_peer(&name, workers, None, self.shared.direct().bytes())
            },
            |known| Arc::clone(&known.session),
        );
        let instance = greeted.grant.instance;
        let worker = self.worker.index;
        let whose = self.whose.clone();
        let place = Place {
            whose,
            worker,
            serial,
            session: Arc::clone(&session),
            secret,
            instance,
            proved,
        };
        links.insert(id, place);
        Some((worker, serial, session))
    }
}

/// Attaches a carrier to its link, on the worker of the link.
fn arrive(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    whose: &VisitKey,
    (id, serial): (LinkId, u64),
    session: &Arc<Session>,
    greeted: Greeted,
) {
    let VisitKey { visitor, service } = whose;
    let link = match worker.state.link(session, serial) {
        Some(link) => link,
        None if greeted.grant.attach.is_none() => {
            let settings = Settings {
                side: Side::Server,
                config: memory::link_config(&shared.config().load().common),
                budget: Rc::new(worker.state.portion.of_client(visitor.as_str())),
                serial,
                features: greeted.accepted.features,
            };
            let owner = PeerOwner::new(worker, shared, whose, id, session);
            let link = Link::new(settings, owner);
            worker.state.add_link(worker.index, session, &link);
            link
        }
        // The link has ended meanwhile.
        None => return,
    };
    let is_new = greeted.grant.attach.is_none();
    let token = greeted.grant.credential.clone();
    if !greeted.attach_to(&link) {
        return;
    }
    if is_new {
        shared.note_visit(visitor.as_str(), service.as_str(), &token);
        tracing::info!(
            target: AUDIT, client = visitor.as_str(), service = service.as_str(), link = serial,
            "client {visitor} visits the private service {service} over link {serial}"
        );
    }
}
