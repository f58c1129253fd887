//! The workers of the links of visitors. A link is on the worker where its first carrier arrived;
//! its later carriers may arrive on any worker.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use ::link::Link;
use logging::AUDIT;
use node::session::{Handle, Session, Worker};
use proto::greeting::LinkSecret;
use proto::{InstanceId, LinkId};

use super::lock::lock;
use super::proved::Proved;
use crate::visit::VisitKey;

/// The maximum number of links of one visitor to one service: links of processes that have exited
/// wait some time for their carriers.
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
pub(super) struct Place {
    pub(super) whose: VisitKey,
    pub(super) worker: usize,
    pub(super) serial: u64,
    pub(super) session: Arc<Session>,
    pub(super) secret: LinkSecret,
    pub(super) instance: InstanceId,
    /// The proof of the visitor.
    pub(super) proved: Proved,
}

impl Default for Places {
    fn default() -> Self {
        Self { links: Mutex::default(), generation: ::link::random() }
    }
}

impl Places {
    pub(super) fn links(&self) -> MutexGuard<'_, HashMap<LinkId, Place>> {
        lock(&self.links)
    }

    pub(super) const fn generation(&self) -> [u8; 4] {
        self.generation
    }

    /// Whether the visitor may have another link to the service.
    pub(super) fn have_room(&self, whose: &VisitKey) -> bool {
        self.links().values().filter(|place| place.whose == *whose).count() < LINKS_MAX
    }

    /// The secret of a link of this visitor to this service, and the proof with which the link
    /// began.
    pub(super) fn secret(
        &self,
        whose: &VisitKey,
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
    pub(super) async fn close(
        &self,
        handles: &[Handle],
        gone: impl Fn(&VisitKey, &Proved) -> bool,
    ) {
        let gone: Vec<_> = {
            let links = self.links();
            let gone = links.values().filter(|place| gone(&place.whose, &place.proved));
            gone.map(|place| {
                (place.worker, place.serial, Arc::clone(&place.session), place.whose.clone())
            })
            .collect()
        };
        for (worker, serial, session, VisitKey { visitor, service }) in gone {
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
