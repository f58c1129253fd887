//! Accepts the links of visitors. A stream of the server becomes a carrier: TLS and the greeting
//! run in a task with a deadline, and the number of such tasks is bounded.

mod arrival;
mod begun;
mod host;
mod incoming;
mod lock;
#[cfg(feature = "webrtc")]
mod offers;
#[cfg(not(feature = "webrtc"))]
#[path = "without.rs"]
mod offers;
mod owner;
mod places;
mod programs;
mod proof;
mod proved;
mod verifier;
mod welcome;

use std::rc::Rc;
use std::sync::Arc;

use node::session::{Handle, Worker};
use proto::ResetCode;
use proto::greeting::GREETING_TIMEOUT;
use relay::{StreamLane, Visitor, accept_duplex, refuse_stream};
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{Inlet, Outlet};

use crate::home::Home;
use crate::visit::VisitKey;
use crate::wire;
pub use host::PeerHost;
pub(super) use incoming::Ready;
use incoming::Stream;
pub use programs::Programs;
use proof::{is_valid, may_visit};
use proved::Proved;
pub(super) use welcome::welcome;

impl PeerHost {
    /// Accepts a stream that the server has joined with a stream of a visitor.
    pub fn take(
        &self,
        worker: &Rc<Worker>,
        shared: &Arc<dyn Home>,
        whose: VisitKey,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let refuse = |code| refuse_stream(&*inlet, None, code);
        if !may_visit(&shared.config().load(), &whose) {
            let VisitKey { visitor, service } = &whose;
            tracing::debug!(%visitor, %service, "the service is not private, or is for others");
            return refuse(ResetCode::Unknown);
        }
        let Some(turn) = self.greet(&whose) else {
            return refuse(ResetCode::Limit);
        };
        let (outlet, stream) = accept_duplex(inlet, Visitor::Unknown, &Rc::default(), None);
        let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
        spawn_local(async move {
            let mut lane = StreamLane::new(stream);
            match timeout(GREETING_TIMEOUT, wire::byte(&mut lane)).await {
                Ok(Ok(Some(wire::OFFER))) => {
                    offers::take(&worker, &shared, &whose, lane, turn).await;
                }
                Ok(Ok(Some(first))) => {
                    let stream = Stream::new(&shared, &whose, first, lane);
                    let shown = stream.shown.clone();
                    welcome(&worker, &shared, &whose, (Box::new(stream), &shown)).await;
                    drop(turn);
                }
                Ok(Ok(None) | Err(_)) | Err(_) => {}
            }
        });
        outlet
    }

    /// Ends the links of visitors that may no longer visit, after a change of the configuration.
    pub async fn review(&self, shared: &Arc<dyn Home>, handles: &[Handle]) {
        let config = shared.config().load_full();
        let gone = |whose: &VisitKey, proved: &Proved| !is_valid(shared, &config, whose, proved);
        self.programs.close(gone);
        self.places.close(handles, gone).await;
    }
}
