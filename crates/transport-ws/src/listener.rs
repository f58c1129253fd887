//! The listener of `ws://` and `wss://` carriers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::Current;
use net::source::Proxies;
use transport::{
    Carrier, CarrierError, Incoming, Listener, LocalFuture, OfferRequest, Peer, Side, Transport,
};
use transport_tcp::TcpListener;

use crate::Pages;
use crate::handshake::{self, Place};
use crate::lane::WsLane;

/// A listener of `wss://` if the listener below has TLS, otherwise of `ws://`.
#[derive(Debug)]
pub struct WsListener {
    inner: TcpListener,
    path: Option<Arc<str>>,
    terms: Current<Terms>,
}

/// The settings of an accepted carrier.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The reverse proxies whose statements about the client's address are believed.
    pub proxies: Proxies,
    /// The time after which a carrier that has sent nothing sends a ping.
    pub ping_after: Duration,
    /// What browsers are offered.
    pub pages: Option<Arc<dyn Pages>>,
    /// The path of offers of WebRTC; `None`: there is none.
    pub offers: Option<Arc<str>>,
}

impl Terms {
    /// Makes settings that believe no proxy.
    #[must_use]
    pub fn without_proxies(ping_after: Duration) -> Self {
        Self { proxies: Proxies::default(), ping_after, offers: None, pages: None }
    }
}

impl WsListener {
    /// Makes a listener that upgrades the connections of `inner`. The request must be for `path`.
    /// With `None` any path is accepted, because a reverse proxy may cut the path off.
    #[must_use]
    pub fn new(inner: TcpListener, path: Option<&str>, terms: impl Into<Current<Terms>>) -> Self {
        Self { inner, path: path.map(Arc::from), terms: terms.into() }
    }
}

/// The WebSocket transport over the transport `below`.
pub(crate) fn over(below: Transport) -> Transport {
    if below == transport_tcp::TLS { crate::WSS } else { crate::WS }
}

impl Listener for WsListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let inner = ready!(self.inner.poll_accept(cx))?;
        let (path, terms) = (self.path.clone(), self.terms.get());
        Poll::Ready(Ok(Box::new(Accepted { inner, path, terms })))
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn transport(&self) -> Transport {
        over(self.inner.transport())
    }
}

/// A connection that was accepted elsewhere; `inner` carries the WebSocket. The request must be for
/// `path`; `None` accepts any path.
#[must_use]
pub fn accepted(
    inner: Box<dyn Incoming>,
    path: Option<Arc<str>>,
    terms: Arc<Terms>,
) -> Box<dyn Incoming> {
    Box::new(Accepted { inner, path, terms })
}

#[derive(Debug)]
struct Accepted {
    inner: Box<dyn Incoming>,
    path: Option<Arc<str>>,
    terms: Arc<Terms>,
}

impl Incoming for Accepted {
    fn remote(&self) -> SocketAddr {
        self.inner.remote()
    }

    fn source(&self) -> Option<IpAddr> {
        self.inner.source().and_then(|ip| self.terms.proxies.source(ip))
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let Self { inner, path, terms } = *self;
            let Terms { proxies, ping_after, offers, pages } = &*terms;
            let Carrier { peer, mut lane, .. } = inner.handshake().await?;
            let (path, pages) = (path.as_deref(), pages.as_deref());
            let place = Place { path, offers: offers.as_deref(), proxies, pages };
            let accepted = handshake::accept(&mut *lane, peer.address, place).await;
            let (leftover, client) = match accepted? {
                handshake::Accepted::WebSocket(leftover, client) => (leftover, client),
                handshake::Accepted::Offer(offer, ask, client) => {
                    let path = offers.as_deref().unwrap_or_default();
                    let mut request = OfferRequest::new(ask, path, &offer.place, client, lane);
                    (request.bearer, request.visit) = (offer.bearer, offer.visit);
                    return Err(CarrierError::Offer(Box::new(request)));
                }
            };
            let lane = WsLane::new(lane, Side::Server, leftover, *ping_after);
            let peer = Peer {
                address: client.unwrap_or(peer.address),
                transport: over(peer.transport),
                connection: peer.connection,
                // A proxy may end TLS in between, which the client cannot know, so no keying
                // material is exported.
                exporter: None,
                certificate_name: peer.certificate_name,
                cipher: peer.cipher,
                watch: peer.watch,
                via: None,
            };
            Ok(Carrier::single(peer, Box::new(lane)))
        })
    }
}
