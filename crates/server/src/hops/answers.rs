//! Questions and messages of other nodes: the terms of services that are not in the directory of
//! the cluster, for the node that a visitor reached, and which enrolled clients have changed.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use proto::{NodeQuestion, ResetCode};
use relay::{Visitor, accept_duplex, refuse_stream};
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_local;
use transport::{Inlet, Outlet};

use super::serve::{HopSlot, Hops};
use crate::about;

impl Hops {
    /// Answers a question of another node.
    pub(crate) fn answer(
        self: &Arc<Self>,
        question: NodeQuestion,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let Some(place) = HopSlot::new(&self.waiting) else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        let (outlet, mut stream) = accept_duplex(inlet, Visitor::Unknown, &Rc::default(), None);
        let own = Arc::clone(self);
        spawn_local(async move {
            match question {
                NodeQuestion::Terms { client, claim } => {
                    // The other node asks again where the answer is lost.
                    if let Some(terms) = own.terms(client.as_str(), claim).await {
                        let _ = stream.write_all(&terms).await;
                    }
                }
                NodeQuestion::Changed(client) => own.registry.learn(&client).await,
            }
            let _ = stream.shutdown().await;
            drop(place);
        });
        outlet
    }

    /// The complete services at the resource of the claim with this fence.
    async fn terms(&self, client: &str, fence: u64) -> Option<Bytes> {
        let (key, given) = self.places.claimed(client, fence)?;
        let services = self.registry.services_at(client, (&key, given)).await;
        if services.is_empty() { None } else { about::message(services) }
    }
}
