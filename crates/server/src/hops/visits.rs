//! The node that has the client of a private service: streams of visitors that have logged in at
//! other nodes.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::names::Instance;
use node::session::{HOLD, Worker};
use proto::greeting::Name;
use proto::{Hop, ResetCode};
use relay::{Crossing, refuse_stream, span};
use tokio::task::spawn_local;
use tokio::time::sleep;
use transport::{Inlet, Outlet};

use super::serve::{HopSlot, HopVisitor, Hops};
use crate::private::{ClientVisit, Found};

/// The poll interval for the end of the last link of a client.
const LOOK: Duration = Duration::from_millis(100);

impl Hops {
    /// Joins a stream of a visitor of another node with a stream to the client of the service. The
    /// other node has proved the visitor and checked its right; this node checks the right as it
    /// knows it, and whom the service admits.
    pub(crate) fn visit(
        self: &Arc<Self>,
        worker: &Rc<Worker>,
        (hop, visitor): (Hop, &Name),
        stream: HopVisitor,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let Some(place) = HopSlot::new(&self.waiting) else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        let (client, service) = (hop.client.clone(), hop.service.clone());
        let (visitor, address) = (visitor.as_str().to_owned(), stream.address);
        let visit = ClientVisit { visitor, address, client, service };
        let (near, far) = span();
        let near = near.carry(Crossing::default().of_visitor(address));
        let outlet = near.outlet();
        let (own, worker) = (Arc::clone(self), Rc::clone(worker));
        spawn_local(async move {
            let found = own.find_visited(&worker, (&hop, &visit), || near.is_reset()).await;
            drop(place);
            let outcome = match found {
                // Pages pass between links of one worker.
                Ok((found, at)) if at == worker.index => {
                    return visit.lead_here(&worker, &found, near, inlet);
                }
                Ok((found, at)) => {
                    let job = move |worker: &Rc<Worker>| visit.lead(worker, &found, vec![], far);
                    match worker.peers.get(at) {
                        // A worker that has stopped has no links.
                        Some(handle) => handle.call(job).await.unwrap_or(Err(ResetCode::Shutdown)),
                        None => Err(ResetCode::Shutdown),
                    }
                }
                Err(code) => Err(code),
            };
            match outcome {
                Ok(()) => near.join(inlet),
                Err(code) => near.refuse(&*inlet, code),
            }
        });
        outlet
    }

    /// Asks for a verdict, and waits for a worker with a live link of the client.
    async fn find_visited(
        &self,
        worker: &Rc<Worker>,
        (hop, visit): (&Hop, &ClientVisit),
        is_gone: impl Fn() -> bool,
    ) -> Result<(Found, usize), ResetCode> {
        self.judge(hop).await?;
        let ClientVisit { visitor, client, service, .. } = visit;
        // A client that this node does not know may be a guest of the other node, which has checked
        // its right.
        let known = self.registry.shared().clients.find(visitor);
        let may = known.is_none_or(|known| known.visit.permit(client.as_str(), service.as_str()));
        if !may || self.registry.is_revoked(visitor) {
            tracing::debug!(client = visitor, to = %client, %service, "no right to visit");
            return Err(ResetCode::Unknown);
        }
        tokio::select! {
            found = visit.find(&self.registry, worker.index, HOLD, is_gone) => found,
            // The client comes back here or elsewhere.
            () = self.is_left(hop) => Err(ResetCode::Moved),
        }
    }

    /// Waits for the end of the last link of the process.
    async fn is_left(&self, hop: &Hop) {
        while !self.registry.processes_of(hop.client.as_str(), Instance(hop.instance)).is_empty() {
            sleep(LOOK).await;
        }
    }
}
