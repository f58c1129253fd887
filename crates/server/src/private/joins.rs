//! Joins visitors' streams with streams to the client of the service.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::link::Link;
use proto::ResetCode;
use proto::greeting::Name;
use relay::{Crossing, Permit, bridge, refuse_stream, span};
use tokio::task::spawn_local;
use tokio::time::Instant;
use transport::{Connector as _, Inlet, Outlet};

use super::{Absent, Found, WAITING_MAX, WAITING_OF_LINK, open};
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

    /// Joins with a stream of a worker that has a link of the client; waits for such a link.
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
        let visitor = visitor.to_owned();
        let until = Instant::now() + HOLD;
        spawn_local(async move {
            let (private, whom) =
                (&registry.shared().private, (&client, &service, visitor.as_str()));
            let found = private.wait(whom, worker.index, until, || near.is_reset()).await;
            drop(place);
            // A reload may have revoked the right meanwhile.
            let known = registry.shared().clients.find(&visitor);
            let may =
                known.is_some_and(|known| known.visit.permit(client.as_str(), service.as_str()));
            let found = if may { found } else { Err(ResetCode::Unknown) };
            let (found, at) = match found {
                Ok(found) => found,
                Err(code) => {
                    private.count(Err(code));
                    tracing::debug!(client = visitor, to = %client, %service, %code, "not joined");
                    return near.refuse(&*inlet, code);
                }
            };
            let Some(handle) = worker.peers.get(at).cloned() else { return };
            let job = move |worker: &Rc<Worker>| -> Result<(), ResetCode> {
                let link = worker.state.live_link(&found.session).ok_or(ResetCode::Shutdown)?;
                let open = open(&link, &visitor, &service, found.priority);
                let open = open.ok_or(ResetCode::Unknown)?;
                let of_client = found.gate.admit().ok_or(ResetCode::Limit)?;
                let stats = worker.state.of::<Served>().stats_of(&found.session, &service);
                // The bytes are counted from the client's side, so the directions are swapped.
                let crossing = Crossing::far(stats, vec![permit, of_client]).of_visitor(address);
                let far = far.carry(crossing);
                let opened = link.open(open, far.outlet());
                far.join(opened.map_err(relay::open_error_code)?);
                Ok(())
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
