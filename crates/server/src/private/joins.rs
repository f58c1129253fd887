//! Joins visitors' streams with streams to the client of the service.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::link::Link;
use proto::greeting::Name;
use proto::{Open, ResetCode};
use relay::{Carried, Crossing, Permit, Span, Stats, bridge, refuse_stream, span};
use tokio::task::spawn_local;
use tokio::time::Instant;
use transport::{Connector as _, Inlet, Outlet};

use super::abroad::{FoundAbroad, seek};
use super::{Absent, FindsAbroad, Found, WAITING_MAX, WAITING_OF_LINK, open};
use crate::registry::Registry;
use node::session::{HOLD, Served, Worker};

/// A slot among the waiting streams.
struct Waiting {
    registry: Arc<Registry>,
    of_link: Rc<Cell<u32>>,
}

impl Waiting {
    fn new(registry: &Arc<Registry>, of_link: &Rc<Cell<u32>>) -> Option<Self> {
        let all = &registry.shared().private.waiting;
        if of_link.get() >= WAITING_OF_LINK {
            return None;
        }
        if all.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        of_link.set(of_link.get() + 1);
        Some(Self { registry: Arc::clone(registry), of_link: Rc::clone(of_link) })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.registry.shared().private.waiting.fetch_sub(1, Ordering::Relaxed);
        self.of_link.set(self.of_link.get().saturating_sub(1));
    }
}

/// The joins of one link of a visitor.
pub(crate) struct Joins {
    worker: Rc<Worker>,
    registry: Arc<Registry>,
    /// The number of waiting streams.
    waiting: Rc<Cell<u32>>,
}

impl Joins {
    pub(crate) fn new(worker: &Rc<Worker>, registry: &Arc<Registry>) -> Self {
        let (worker, registry) = (Rc::clone(worker), Arc::clone(registry));
        Self { worker, registry, waiting: Rc::default() }
    }

    /// Joins a stream of `visitor`, a client with its address, with a stream to the client of the
    /// service.
    pub(crate) fn join(
        &self,
        (visitor, address): (&str, Option<SocketAddr>),
        (client, service): (Name, Name),
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let shared = self.registry.shared();
        let refuse = |code| {
            shared.private.count(Err(code));
            refuse_stream(&*inlet, None, code)
        };
        let known = shared.clients.find(visitor);
        let may =
            |known: &crate::clients::Client| known.visit.permit(client.as_str(), service.as_str());
        let Some(known) = known.filter(|known| may(known)) else {
            tracing::debug!(client = visitor, to = %client, %service, "no right to visit");
            return refuse(ResetCode::Unknown);
        };
        let found = match shared.private.find(&client, &service, visitor) {
            Err(Absent::Service) => {
                tracing::debug!(client = visitor, to = %client, %service, "no such service");
                return refuse(ResetCode::Unknown);
            }
            Err(Absent::Client) => None,
            Ok(found) => Some(found),
        };
        let Some(permit) = known.gate.admit() else { return refuse(ResetCode::Limit) };
        if let Some(found) = &found
            && let Some(link) = self.worker.state.live_link(&found.session)
        {
            return self.join_here((visitor, address), &service, found, &link, permit, inlet);
        }
        let Some(place) = Waiting::new(&self.registry, &self.waiting) else {
            return refuse(ResetCode::Limit);
        };
        self.join_elsewhere((visitor, address), (client, service), (permit, place), inlet)
    }

    /// Joins with a stream over a link of this worker.
    fn join_here(
        &self,
        (visitor, address): (&str, Option<SocketAddr>),
        service: &Name,
        found: &Found,
        link: &Link,
        permit: Permit,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let private = &self.registry.shared().private;
        let refuse = |inlet: Box<dyn Inlet>, code| {
            private.count(Err(code));
            refuse_stream(&*inlet, None, code)
        };
        let Some(open) = open(link, visitor, service, found.priority) else {
            return refuse(inlet, ResetCode::Unknown);
        };
        let Some(of_client) = found.gate.admit() else {
            return refuse(inlet, ResetCode::Limit);
        };
        let stats = self.worker.state.of::<Served>().stats_of(&found.session, service);
        let crossing = Crossing::new(stats, vec![permit, of_client]).of_visitor(address);
        match bridge(inlet, link, open, crossing) {
            Ok(outlet) => {
                private.count(Ok(()));
                outlet
            }
            Err((inlet, error)) => refuse(inlet, relay::open_error_code(error)),
        }
    }

    /// Joins with a stream of a worker that has a link of the client, or a link to a node that has
    /// the client; waits for such a link.
    fn join_elsewhere(
        &self,
        (visitor, address): (&str, Option<SocketAddr>),
        (client, service): (Name, Name),
        (permit, place): (Permit, Waiting),
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let (near, far) = span();
        // The far end counts the bytes, because it knows the service.
        let near = near.carry(Crossing::default().of_visitor(address));
        let outlet = near.outlet();
        let (worker, registry) = (Rc::clone(&self.worker), Arc::clone(&self.registry));
        let visit = ClientVisit { visitor: visitor.to_owned(), address, client, service };
        spawn_local(async move {
            let is_gone = || near.is_reset();
            let found = visit.find_anywhere(&registry, worker.index, HOLD, is_gone).await;
            drop(place);
            // A reload may have revoked the right meanwhile.
            let ClientVisit { visitor, client, service, .. } = &visit;
            let known = registry.shared().clients.find(visitor);
            let may =
                known.is_some_and(|known| known.visit.permit(client.as_str(), service.as_str()));
            let found = if may { found } else { Err(ResetCode::Unknown) };
            let private = &registry.shared().private;
            let (found, at) = match found {
                Ok(found) => found,
                Err(code) => {
                    private.count(Err(code));
                    tracing::debug!(client = visitor, to = %client, %service, %code, "not joined");
                    return near.refuse(&*inlet, code);
                }
            };
            let Some(handle) = worker.peers.get(at).cloned() else { return };
            let permits = vec![permit];
            let job = move |worker: &Rc<Worker>| match &found {
                VisitPlace::Here(found) => visit.lead(worker, found, permits, far),
                VisitPlace::Abroad(found, abroad) => {
                    visit.lead_abroad(worker, (found, abroad), permits, far)
                }
            };
            // A worker that has stopped has no links.
            let outcome = handle.call(job).await.unwrap_or(Err(ResetCode::Shutdown));
            private.count(outcome);
            match outcome {
                Ok(()) => near.join(inlet),
                Err(code) => near.refuse(&*inlet, code),
            }
        });
        outlet
    }
}

/// Where the client of a service was found.
#[derive(Debug)]
pub(crate) enum VisitPlace {
    /// Its links are with this server.
    Here(Found),
    /// At another node of the cluster.
    Abroad(FoundAbroad, Arc<dyn FindsAbroad>),
}

#[cfg(feature = "webrtc")]
impl VisitPlace {
    /// The link of this worker by which the visit goes, and its request. `None`: the link has
    /// ended, or the client is too old.
    pub(crate) fn request(&self, worker: &Worker, visit: &ClientVisit) -> Option<(Link, Open)> {
        match self {
            Self::Here(found) => {
                let link = worker.state.live_link(&found.session)?;
                let open = open(&link, &visit.visitor, &visit.service, found.priority)?;
                Some((link, open))
            }
            Self::Abroad(found, _) => {
                let link = worker.state.live_link(&found.session)?;
                let whom = (visit.visitor.as_str(), visit.address);
                Some((link, found.open(whom, &visit.client, &visit.service)?))
            }
        }
    }
}

/// A client that visits a private service of another client.
#[derive(Clone, Debug)]
pub(crate) struct ClientVisit {
    pub(crate) visitor: String,
    /// The address of the visitor, where this node knows it.
    pub(crate) address: Option<SocketAddr>,
    /// The client that has the service.
    pub(crate) client: Name,
    pub(crate) service: Name,
}

impl ClientVisit {
    /// Waits for a live link of the client for this time at most, and returns the worker of the
    /// link.
    pub(crate) async fn find(
        &self,
        registry: &Registry,
        from: usize,
        patience: Duration,
        is_gone: impl Fn() -> bool,
    ) -> Result<(Found, usize), ResetCode> {
        let whom = (&self.client, &self.service, self.visitor.as_str());
        let until = Instant::now() + patience;
        registry.shared().private.wait(whom, from, until, is_gone).await
    }

    /// As [`Self::find`], also at the other nodes of the cluster.
    pub(crate) async fn find_anywhere(
        &self,
        registry: &Registry,
        from: usize,
        patience: Duration,
        is_gone: impl Fn() -> bool,
    ) -> Result<(VisitPlace, usize), ResetCode> {
        let here = self.find(registry, from, patience, is_gone);
        let abroad = registry.shared().private.abroad.get().and_then(Weak::upgrade);
        let Some(abroad) = abroad else {
            return here.await.map(|(found, worker)| (VisitPlace::Here(found), worker));
        };
        tokio::select! {
            biased;
            found = here => found.map(|(found, worker)| (VisitPlace::Here(found), worker)),
            (found, worker) = seek(&abroad, &self.client, from) => {
                Ok((VisitPlace::Abroad(found, Arc::clone(&abroad)), worker))
            }
        }
    }

    /// A link of this worker to the client, the request, and the counters and the permit of the
    /// stream.
    fn to_client(
        &self,
        worker: &Rc<Worker>,
        found: &Found,
    ) -> Result<(Link, Open, Rc<Stats>, Permit), ResetCode> {
        let link = worker.state.live_link(&found.session).ok_or(ResetCode::Shutdown)?;
        let open = open(&link, &self.visitor, &self.service, found.priority);
        let open = open.ok_or(ResetCode::Unknown)?;
        let permit = found.gate.admit().ok_or(ResetCode::Limit)?;
        let stats = worker.state.of::<Served>().stats_of(&found.session, &self.service);
        Ok((link, open, stats, permit))
    }

    /// Joins a stream of this worker that waited with a stream to the client, over a link of this
    /// worker.
    pub(crate) fn lead_here(
        &self,
        worker: &Rc<Worker>,
        found: &Found,
        near: Carried,
        inlet: Box<dyn Inlet>,
    ) {
        match self.to_client(worker, found) {
            Ok((link, open, stats, permit)) => {
                let crossing = Crossing::new(stats, vec![permit]).of_visitor(self.address);
                near.bridge(inlet, &link, open, crossing);
            }
            Err(code) => near.refuse(&*inlet, code),
        }
    }

    /// Joins `far` with a stream to the client, over a link of this worker.
    pub(crate) fn lead(
        &self,
        worker: &Rc<Worker>,
        found: &Found,
        mut permits: Vec<Permit>,
        far: Span,
    ) -> Result<(), ResetCode> {
        let (link, open, stats, permit) = self.to_client(worker, found)?;
        permits.push(permit);
        // The bytes are counted from the client's side, so the directions are swapped.
        let far = far.carry(Crossing::far(stats, permits).of_visitor(self.address));
        let opened = link.open(open, far.outlet());
        far.join(opened.map_err(relay::open_error_code)?);
        Ok(())
    }

    /// Joins `far` with a stream to the node that has the client, over a link of this worker. That
    /// node counts the bytes of the service.
    fn lead_abroad(
        &self,
        worker: &Rc<Worker>,
        (found, abroad): (&FoundAbroad, &Arc<dyn FindsAbroad>),
        permits: Vec<Permit>,
        far: Span,
    ) -> Result<(), ResetCode> {
        let link = worker.state.live_link(&found.session).ok_or(ResetCode::Shutdown)?;
        let open = found.open((&self.visitor, self.address), &self.client, &self.service);
        let open = open.ok_or(ResetCode::Unknown)?;
        let far = far.carry(Crossing::far(Rc::default(), permits).of_visitor(self.address));
        let outlet = found.watch(Arc::clone(abroad), &self.client, far.outlet());
        far.join(link.open(open, outlet).map_err(relay::open_error_code)?);
        Ok(())
    }
}
