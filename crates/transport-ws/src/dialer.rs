//! The dialer of `ws://` and `wss://` carriers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use transport::{Carrier, CarrierError, Dialer, Lane, LocalFuture, Peer, Side, Transport};
use transport_tcp::TcpDialer;

use crate::handshake;
use crate::lane::WsLane;
use crate::listener::over;
use crate::request::Request;

/// A dialer of `wss://` if the dialer below has TLS, otherwise of `ws://`.
#[derive(Clone, Debug)]
pub struct WsDialer {
    inner: TcpDialer,
    request: Arc<Request>,
    ping_after: Duration,
}

impl WsDialer {
    /// Makes a dialer that upgrades the carriers of `inner`. A carrier that has sent nothing for
    /// `ping_after` sends a ping.
    #[must_use]
    pub fn new(inner: TcpDialer, request: Request, ping_after: Duration) -> Self {
        Self { inner, request: Arc::new(request), ping_after }
    }
}

impl Dialer for WsDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { inner, request, ping_after } = self.clone();
        Box::pin(async move { upgrade(inner.dial(address).await?, &request, ping_after).await })
    }

    fn dial_inside(
        &self,
        lane: Box<dyn Lane>,
    ) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { inner, request, ping_after } = self.clone();
        Box::pin(async move { upgrade(inner.dial_inside(lane).await?, &request, ping_after).await })
    }

    fn transport(&self) -> Transport {
        over(self.inner.transport())
    }
}

/// Performs the handshake of WebSocket over a carrier of TCP.
async fn upgrade(
    carrier: Carrier,
    request: &Request,
    ping_after: Duration,
) -> Result<Carrier, CarrierError> {
    let Carrier { peer, mut lane, .. } = carrier;
    let leftover = handshake::connect(&mut *lane, request).await?;
    let lane = WsLane::new(lane, Side::Client, leftover, ping_after);
    let transport = over(peer.transport);
    let peer = Peer { transport, exporter: None, ..peer };
    Ok(Carrier::single(peer, Box::new(lane)))
}
