//! Accepts carriers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::Current;
use transport::{Carrier, CarrierError, Incoming, Listener, LocalFuture, Peer, Side, Transport};
use transport_tcp::TcpListener;

use crate::handshake;
use crate::lane::WsLane;

/// The reverse proxies that are believed when they say for whom they speak.
#[derive(Clone)]
pub struct Proxies(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Proxies {
    /// Those of whose address (canonical: no IPv4 in IPv6) the function says so.
    pub fn new(include: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(include))
    }

    pub(crate) fn include(&self, ip: IpAddr) -> bool {
        (self.0)(ip.to_canonical())
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proxies")
    }
}

/// A listener of `ws://`, or of `wss://` when the listener below has TLS.
#[derive(Debug)]
pub struct WsListener {
    inner: TcpListener,
    path: Option<Arc<str>>,
    terms: Current<Terms>,
}

/// What counts for a carrier that is accepted.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Who is believed.
    pub proxies: Proxies,
    /// A carrier that has sent nothing for so long pings.
    pub ping_after: Duration,
}

impl Terms {
    /// Nobody is believed.
    #[must_use]
    pub fn without_proxies(ping_after: Duration) -> Self {
        Self { proxies: Proxies::new(|_| false), ping_after }
    }
}

impl WsListener {
    /// Upgrades what `inner` accepts at `path`, or at any path with `None` (a reverse proxy may cut
    /// it off).
    #[must_use]
    pub fn new(inner: TcpListener, path: Option<&str>, terms: impl Into<Current<Terms>>) -> Self {
        Self { inner, path: path.map(Arc::from), terms: terms.into() }
    }
}

/// The same over WebSocket.
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

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let Self { inner, path, terms } = *self;
            let Terms { proxies, ping_after } = &*terms;
            let Carrier { peer, mut lane, .. } = inner.handshake().await?;
            let accepted =
                handshake::accept(&mut *lane, peer.address, path.as_deref(), proxies).await;
            let (leftover, client) = accepted?;
            let lane = WsLane::new(lane, Side::Server, leftover, *ping_after);
            let peer = Peer {
                address: client.unwrap_or(peer.address),
                transport: over(peer.transport),
                connection: peer.connection,
                // A proxy may end TLS in between, and the client cannot know.
                exporter: None,
                certificate_name: peer.certificate_name,
                watch: peer.watch,
            };
            Ok(Carrier::single(peer, Box::new(lane)))
        })
    }
}
