//! Accepts carriers.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use quinn::{Endpoint, ServerConfig};
use transport::tls::{Side, explain};
use transport::{Carrier, CarrierError, Incoming, Listener, LocalFuture, Transport};

use crate::ids::SteeringIds;
use crate::peers::{Known, Noted};
use crate::server::QuicServer;
use crate::session::{Fault, Server};
use crate::waiting::Waiting;
use crate::{carrier, endpoint, error};

/// Connections that arrived and were not accepted yet; further ones are passed over, and their
/// clients ask again after a second.
const INCOMING: usize = 1_024;

/// What such a connection may send beyond its first packet until it is accepted, and all together.
const INCOMING_BYTES: u64 = 64 << 10;
const INCOMING_BYTES_ALL: u64 = 4 << 20;

/// Clients that are sent away to prove their address before others of this thread have their turn.
const RETRIES: usize = 64;

/// A listener of `quic://`.
pub struct QuicListener {
    endpoint: Endpoint,
    local: SocketAddr,
    server: QuicServer,
    ids: SteeringIds,
    accepting: Waiting<Option<quinn::Incoming>>,
    handshakes: Handshakes,
}

impl QuicListener {
    /// Takes a bound UDP socket into the runtime of this thread: that of `worker`, of a group of
    /// `workers` (see [`transport::udp::udp_group`]).
    pub fn new(
        socket: UdpSocket,
        worker: usize,
        workers: usize,
        server: &QuicServer,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let worker = u8::try_from(worker).map_err(io::Error::other)?;
        let ids = SteeringIds::new(worker, workers);
        let (config, _) = config(server, local).map_err(io::Error::other)?;
        let settings = server.settings.get();
        let endpoint = endpoint::server(socket, config, &settings, &server.keys, &ids)?;
        let (accepting, handshakes) = (Waiting::default(), Handshakes::default());
        Ok(Self { endpoint, local, server: server.clone(), ids, accepting, handshakes })
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<quinn::Incoming>> {
        let endpoint = &self.endpoint;
        let incoming = ready!(self.accepting.poll(cx, || {
            let endpoint = endpoint.clone();
            async move { endpoint.accept().await }
        }));
        // Only when its driver is gone, with the runtime or the socket.
        Poll::Ready(incoming.ok_or_else(|| io::Error::other("the QUIC endpoint has ended")))
    }
}

impl Listener for QuicListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        for _ in 0..RETRIES {
            let incoming = ready!(self.poll_incoming(cx))?;
            let most = self.server.settings.get().handshakes;
            if self.handshakes.under_way() >= most && !incoming.remote_address_validated() {
                tracing::debug!("a new client has to prove its address");
                // Fails only for who comes back from one, and that one is validated.
                let _ = incoming.retry();
                continue;
            }
            return Poll::Ready(Ok(Box::new(Accepted {
                incoming,
                server: self.server.clone(),
                ids: self.ids.clone(),
                port: self.local.port(),
                turn: self.handshakes.begin(),
            })));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn transport(&self) -> Transport {
        Transport::Quic
    }
}

impl fmt::Debug for QuicListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicListener")
            .field("local", &self.local)
            .field("handshakes", &self.handshakes.under_way())
            .finish_non_exhaustive()
    }
}

/// Counts the handshakes under way of a listener.
#[derive(Debug, Default)]
struct Handshakes(Rc<Cell<usize>>);

impl Handshakes {
    fn under_way(&self) -> usize {
        self.0.get()
    }

    fn begin(&self) -> Turn {
        self.0.set(self.0.get() + 1);
        Turn(Rc::clone(&self.0))
    }
}

/// One of them.
#[derive(Debug)]
struct Turn(Rc<Cell<usize>>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// What a connection with `peer` is to be like, and what keeps what TLS has against its handshake.
fn config(server: &QuicServer, peer: SocketAddr) -> Result<(ServerConfig, Fault), rustls::Error> {
    let crypto = Server::new(server.tls.get(), server.tickets.get())?;
    let fault = crypto.fault();
    let mut config = ServerConfig::new(Arc::new(crypto), server.keys.token_key());
    config
        .transport_config(server.settings.get().transport(Side::Server, peer))
        .migration(true)
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES_ALL);
    Ok((config, fault))
}

struct Accepted {
    incoming: quinn::Incoming,
    server: QuicServer,
    ids: SteeringIds,
    port: u16,
    turn: Turn,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accepted({})", self.incoming.remote_address())
    }
}

impl Incoming for Accepted {
    fn remote(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let Self { incoming, server, ids, port, turn: _turn } = *self;
            // One of its own, as it was configured last.
            let (config, fault) = config(&server, incoming.remote_address())
                .map_err(|error| explain(&error, Side::Server, false))?;
            let refused = |error| error::handshake(&error, Side::Server, fault.take().as_ref());
            let connecting = incoming.accept_with(Arc::new(config)).map_err(refused)?;
            // Made within that call.
            let id = ids.last();
            let connection = connecting.await.map_err(refused)?;
            let noted = server.peers.zip(id).map(|(peers, id)| {
                let known = Known { id, peer: connection.remote_address(), port };
                Noted::new(peers, known)
            });
            carrier::accepted(connection, noted).await
        })
    }
}
