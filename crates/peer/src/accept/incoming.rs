//! A stream of a visitor as a connection. A client begins with a TLS handshake; a browser, which
//! has no own TLS, begins with the greeting.

use std::net::SocketAddr;
use std::sync::Arc;

use proto::greeting::{MAGIC, Name};
use relay::StreamLane;
use tls::{PeerMaterial, Shown};
use transport::{ALPN, Carrier, CarrierError, Incoming, LocalFuture, Peer};
use transport_tcp::accept_inside;

use super::begun::StartedLane;
use super::proof::material;
use crate::home::Home;
use crate::visit::VisitKey;
use crate::{RELAY, server_tls};

/// A stream of the server, before its handshake.
#[derive(Debug)]
pub(super) struct Stream {
    /// The first byte, which was read already.
    first: u8,
    lane: StreamLane,
    /// The certificates that the service requires.
    material: Option<Arc<PeerMaterial>>,
    pub(super) shown: Shown,
    visitor: Name,
}

impl Stream {
    pub(super) fn new(
        shared: &Arc<dyn Home>,
        whose: &VisitKey,
        first: u8,
        lane: StreamLane,
    ) -> Self {
        let material = material(shared, &shared.config().load(), whose);
        Self { first, lane, material, shown: Shown::default(), visitor: whose.visitor.clone() }
    }
}

impl Incoming for Stream {
    fn remote(&self) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let address = self.remote();
        let Self { first, lane, material, shown, visitor } = *self;
        Box::pin(async move {
            let lane = Box::new(StartedLane::new(first, Box::new(lane)));
            if Some(&first) == MAGIC.first() {
                // The verifier decides whether the service accepts browsers.
                let peer = Peer {
                    address,
                    transport: RELAY,
                    connection: None,
                    watch: None,
                    exporter: None,
                    certificate_name: None,
                    cipher: None,
                    via: None,
                };
                return Ok(Carrier::single(peer, lane));
            }
            let Some(own) = material else {
                return accept_inside(lane, RELAY, &*server_tls()?).await;
            };
            let config = own.server_config(&[ALPN], &shown)?;
            let mut carrier = accept_inside(lane, RELAY, &config).await?;
            if own.verify(&shown, visitor.as_str()).is_err() {
                // The greeting refuses this visitor like a visitor with a wrong token.
                carrier.peer.certificate_name = None;
            }
            Ok(carrier)
        })
    }
}

/// A carrier whose handshake is done.
#[derive(Debug)]
pub(crate) struct Ready(pub Carrier);

impl Incoming for Ready {
    fn remote(&self) -> SocketAddr {
        self.0.peer.address
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(std::future::ready(Ok(self.0)))
    }
}
