//! Where the links of visitors are. A link lives on the worker where its first carrier came; its
//! later carriers may come on any worker.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use ::link::server::{Greeted, Placement};
use ::link::{Link, Settings};
use logging::AUDIT;
use proto::greeting::LinkSecret;
use proto::{InstanceId, LinkId, Side};
use tls::Shown;
use tokio::task::spawn_local;

use super::owner::PeerOwner;
use super::proof::{Proved, is_valid};
use super::{Whose, lock};
use crate::home::Home;
use node::memory;
use node::session::{Handle, Session, Worker};

/// Links of one visitor to one service: those of processes that have gone wait for their carriers
/// for a while.
const LINKS_MAX: usize = 16;

/// The links of visitors, by their ids.
#[derive(Debug)]
pub(super) struct Places {
    links: Mutex<HashMap<LinkId, Place>>,
    /// The first bytes of the ids of links.
    generation: [u8; 4],
}

/// A link of a visitor.
#[derive(Debug)]
struct Place {
    whose: Whose,
    worker: usize,
    serial: u64,
    session: Arc<Session>,
    secret: LinkSecret,
    instance: InstanceId,
    /// What the visitor proved.
    proved: Proved,
}

impl Default for Places {
    fn default() -> Self {
        Self { links: Mutex::default(), generation: ::link::random() }
    }
}

impl Places {
    fn links(&self) -> MutexGuard<'_, HashMap<LinkId, Place>> {
        lock(&self.links)
    }

    pub(super) const fn generation(&self) -> [u8; 4] {
        self.generation
    }

    /// Whether the visitor may have a further link to the service.
    pub(super) fn have_room(&self, whose: &Whose) -> bool {
        self.links().values().filter(|place| place.whose == *whose).count() < LINKS_MAX
    }

    /// The secret of a link of this visitor to this service, and what the link began with.
    pub(super) fn secret(
        &self,
        whose: &Whose,
        instance: InstanceId,
        link: LinkId,
    ) -> Option<(LinkSecret, Proved)> {
        let links = self.links();
        let place = links.get(&link)?;
        let is_own = place.whose == *whose && place.instance == instance;
        is_own.then(|| (place.secret.clone(), place.proved.clone()))
    }

    /// Forgets a link that has ended.
    pub(super) fn forget(&self, link: LinkId) {
        self.links().remove(&link);
    }

    /// Ends the links that have neither a stream nor a flow.
    pub(super) async fn close_idle(&self, handles: &[Handle]) {
        let all: Vec<_> = {
            let links = self.links();
            let all = links.values();
            all.map(|place| (place.worker, place.serial, Arc::clone(&place.session))).collect()
        };
        for (worker, serial, session) in all {
            let Some(handle) = handles.get(worker) else { continue };
            let close = move |worker: &Rc<Worker>| {
                let link = worker.state.link(&session, serial);
                let is_idle = |link: &Link| link.stream_count() == 0 && link.flow_count() == 0;
                if let Some(link) = link.filter(is_idle) {
                    link.say_goodbye();
                }
            };
            // A worker that has stopped has no links.
            let _ = handle.call(close).await;
        }
    }

    /// Ends the links that are `gone`.
    pub(super) async fn close(&self, handles: &[Handle], gone: impl Fn(&Whose, &Proved) -> bool) {
        let gone: Vec<_> = {
            let links = self.links();
            let gone = links.values().filter(|place| gone(&place.whose, &place.proved));
            gone.map(|place| {
                (place.worker, place.serial, Arc::clone(&place.session), place.whose.clone())
            })
            .collect()
        };
        for (worker, serial, session, Whose { visitor, service }) in gone {
            tracing::info!(
                target: AUDIT, client = visitor.as_str(), service = service.as_str(),
                "client {visitor} may not visit the private service {service} any more"
            );
            let Some(handle) = handles.get(worker) else { continue };
            let close = move |worker: &Rc<Worker>| {
                if let Some(link) = worker.state.link(&session, serial) {
                    link.close();
                }
            };
            // A worker that has stopped has closed its links.
            let _ = handle.call(close).await;
        }
    }
}

/// A carrier of a visitor on its way to its link.
pub(super) struct Arrival<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) shared: &'a Arc<dyn Home>,
    pub(super) whose: &'a Whose,
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
                    // A carrier that is lost meanwhile is dialled again.
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
    /// Worker, serial number and session of the link of a carrier. Notes a new link.
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
        // A reload whose review looked at the links before has not seen this link.
        if !is_valid(self.shared, &self.shared.config().load(), self.whose, &proved) {
            return None;
        }
        let secret = greeted.accepted.secret.clone()?;
        let serial = self.shared.serials().fetch_add(1, Ordering::Relaxed);
        let Whose { visitor, service } = self.whose;
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
    whose: &Whose,
    (id, serial): (LinkId, u64),
    session: &Arc<Session>,
    greeted: Greeted,
) {
    let Whose { visitor, service } = whose;
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
