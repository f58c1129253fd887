//! Questions and messages of other nodes: the terms of services that are not in the directory of
//! the cluster, for the node that a visitor reached; which enrolled clients have changed; and the
//! carriers of clients that reached another node and have their link here.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cluster::names::NodeId;
use node::session::Worker;
use nodes::NodeAsks;
use proto::greeting::{Binding, GREETING_TIMEOUT, Name, PassedGreeting};
use proto::{LinkId, NodeQuestion, ResetCode};
use relay::{Duplex, StreamLane, Visitor, accept_duplex, refuse_stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{Carrier, Inlet, Outlet, Peer, Transport};

use super::serve::{HopSlot, Hops};
use crate::strays::CarrierSlot;
use crate::{about, accept};

/// The transports whose carriers are passed on: those with a single lane.
const SINGLE: [&str; 4] = ["tls", "tcp", "wss", "ws"];

/// A carrier whose client reached another node.
struct PassedCarrier {
    from: NodeId,
    client: Name,
    link: LinkId,
    /// The address of the client.
    address: SocketAddr,
}

impl Hops {
    /// Answers a question of another node.
    pub(crate) fn answer(
        self: &Arc<Self>,
        worker: &Rc<Worker>,
        asks: NodeAsks,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let NodeAsks { from, question, client: address } = asks;
        let Some(place) = HopSlot::new(&self.waiting) else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        if let NodeQuestion::Carrier { client, link } = question {
            let Some(address) = address else {
                return refuse_stream(&*inlet, None, ResetCode::Unknown);
            };
            return self.carrier(
                worker,
                PassedCarrier { from, client, link, address },
                place,
                inlet,
            );
        }
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
                NodeQuestion::Carrier { .. } => {}
            }
            let _ = stream.shutdown().await;
            drop(place);
        });
        outlet
    }

    /// Completes the greeting of a carrier, and passes the carrier to its link.
    fn carrier(
        self: &Arc<Self>,
        worker: &Rc<Worker>,
        passed: PassedCarrier,
        place: HopSlot,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        // The other node asks the next node. The secret of the link is proved later.
        if !self.registry.has_link(passed.client.as_str(), passed.link) {
            return refuse_stream(&*inlet, None, ResetCode::Moved);
        }
        let Some(slot) = CarrierSlot::new(&self.carriers) else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        let (outlet, mut stream) = accept_duplex(inlet, Visitor::Unknown, &Rc::default(), None);
        let (own, worker) = (Arc::clone(self), Rc::clone(worker));
        spawn_local(async move {
            let read = timeout(GREETING_TIMEOUT, read_greeting(&mut stream)).await;
            let Some((greeting, transport)) = read.ok().flatten() else { return };
            let PassedCarrier { from, client, address, .. } = passed;
            let exporter = match greeting.binding {
                Binding::Exporter(exporter) => Some(exporter),
                Binding::None => None,
            };
            let peer = Peer {
                address,
                transport,
                connection: None,
                watch: None,
                exporter,
                certificate_name: greeting.certificate.then(|| client.to_string()),
                cipher: None,
                via: Some(from.as_str().into()),
            };
            let lane = StreamLane::new(stream).accompanied(Box::new(slot));
            let carrier = Carrier::single(peer, Box::new(lane));
            accept::welcome_passed(&worker, &own.registry, carrier, greeting.nonce).await;
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

/// Reads what precedes the bytes of the client. `None`: the other node said something else.
async fn read_greeting(stream: &mut Duplex) -> Option<(PassedGreeting, Transport)> {
    let mut head = [0; PassedGreeting::HEAD];
    stream.read_exact(&mut head).await.ok()?;
    let mut body = [0; PassedGreeting::MAX];
    let body = body.get_mut(..PassedGreeting::length(head)?)?;
    stream.read_exact(body).await.ok()?;
    let greeting = PassedGreeting::decode(body)?;
    let name = SINGLE.into_iter().find(|known| *known == greeting.transport)?;
    Some((greeting, Transport::new(name)))
}
