//! A stream of a visitor as a connection. A client begins with a handshake of TLS; a browser, which
//! has no TLS of its own, begins with the greeting.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use proto::greeting::{MAGIC, Name};
use relay::{Duplex, StreamLane};
use tls::{PeerMaterial, Shown};
use transport::{ALPN, Carrier, CarrierError, Incoming, Lane, LocalFuture, Peer};
use transport_tcp::accept_inside;

use crate::peer::{RELAY, server_tls};

/// A stream of the server, before the first byte of the visitor.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) stream: Duplex,
    /// The certificates that the service demands.
    pub(super) material: Option<Arc<PeerMaterial>>,
    pub(super) shown: Shown,
    pub(super) visitor: Name,
}

impl Incoming for Stream {
    fn remote(&self) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let address = self.remote();
            let Self { stream, material, shown, visitor } = *self;
            let mut lane = StreamLane::new(stream);
            let mut read = BytesMut::with_capacity(MAGIC.len());
            poll_fn(|cx| lane.poll_read(cx, &mut read)).await?;
            let is_plain = read.first() == MAGIC.first();
            let lane = Box::new(Begun { read, lane });
            if !is_plain {
                let Some(own) = material else {
                    return accept_inside(lane, RELAY, &*server_tls()?).await;
                };
                let config = own.server_config(&[ALPN], &shown)?;
                let mut carrier = accept_inside(lane, RELAY, &config).await?;
                if own.verify(&shown, visitor.as_str()).is_err() {
                    // The greeting refuses this visitor as it refuses one with a wrong token.
                    carrier.peer.certificate_name = None;
                }
                return Ok(carrier);
            }
            // The verifier decides whether the service takes browsers.
            let peer = Peer {
                address,
                transport: RELAY,
                connection: None,
                watch: None,
                exporter: None,
                certificate_name: None,
                cipher: None,
            };
            Ok(Carrier::single(peer, lane))
        })
    }
}

/// A lane of which the first bytes were read already.
#[derive(Debug)]
struct Begun {
    read: BytesMut,
    lane: StreamLane,
}

impl Lane for Begun {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        if self.read.is_empty() {
            return self.lane.poll_read(cx, buf);
        }
        let size = self.read.len().min(buf.capacity() - buf.len());
        buf.extend_from_slice(&self.read[..size]);
        self.read.advance(size);
        Poll::Ready(Ok(size))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.lane.poll_write(cx, frames)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lane.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lane.poll_close(cx)
    }

    fn authenticated(&mut self) {
        self.lane.authenticated();
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.lane.set_send_limit(bytes);
    }

    fn held(&self) -> usize {
        self.lane.held()
    }

    fn detach(&mut self) -> io::Result<()> {
        self.lane.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.lane.attach()
    }
}
