//! The listener of `quic://` carriers.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use net::socket::canonical;
use net::source::{Rates, Share, Shares};
use net::udp::SteeringSlot;
use quinn::{Endpoint, ServerConfig};
use tls::explain;
use transport::{
    AcceptResult, Carrier, CarrierError, Early, Incoming, Listener, LocalFuture, Peer, Side,
    Transport,
};

use crate::early::EarlySecrets;
use crate::ids::SteeringIds;
use crate::lane::Hold;
use crate::past::PastPaths;
use crate::pending::PendingFuture;
use crate::server::QuicServer;
use crate::session::{Fault, Server};
use crate::settings::QuicSettings;
use crate::socket::Beside;
use crate::{carrier, endpoint, error};
use files::peers::{Noted, PeerId, RecordedPeer};

/// The largest number of connections that have arrived and are not accepted yet. Further
/// connections are ignored, and their clients retry after a second.
const INCOMING: usize = 1_024;

/// The bytes that a connection may send beyond its first packet before it is accepted, and the
/// limit for all such connections together.
const INCOMING_BYTES: u64 = 64 << 10;
const INCOMING_BYTES_ALL: u64 = 4 << 20;

/// The number of clients that get a Retry, or nothing, before other tasks of this thread run.
const RETRIES: usize = 64;

/// The share of [`QuicSettings::handshakes`] that one source may have in progress before its
/// further clients must prove their address: a quarter.
const SOURCE_PART: usize = 4;

/// The largest number of connections that one source may start per second at one worker, about
/// twice as many as a core serves (5,000 clients at once take 9 to 12 s). Beyond that, clients that
/// have not proved their address must do so, and the packets of others are ignored; their clients
/// retry after a second.
const RATE: u32 = 1_000;

/// A listener of `quic://`.
pub struct QuicListener {
    endpoint: Endpoint,
    local: SocketAddr,
    server: QuicServer,
    ids: SteeringIds,
    accepting: PendingFuture<Option<quinn::Incoming>>,
    handshakes: Handshakes,
    rates: Rates,
    past: PastPaths,
}

impl QuicListener {
    /// Makes a listener from a bound UDP socket in the runtime of this thread. `steering_slot` is
    /// the position of the socket in its group (see [`net::udp::carrier_group`]).
    pub fn new(
        socket: UdpSocket,
        steering_slot: SteeringSlot,
        server: &QuicServer,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let ids = SteeringIds::new(steering_slot);
        let past = PastPaths::default();
        let (config, ..) = config(server, local, &past).map_err(io::Error::other)?;
        let settings = server.settings.get();
        let beside = server.stun.clone().map(|stun| stun as Arc<dyn Beside>);
        let beside = (beside, &server.proxies);
        let endpoint = endpoint::server(socket, config, &settings, &server.keys, &ids, beside)?;
        let (accepting, handshakes) = (PendingFuture::default(), Handshakes::default());
        let (server, rates) = (server.clone(), Rates::new(RATE));
        Ok(Self { endpoint, local, server, ids, accepting, handshakes, rates, past })
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<quinn::Incoming>> {
        let endpoint = &self.endpoint;
        let incoming = ready!(self.accepting.poll(cx, || {
            let endpoint = endpoint.clone();
            async move { endpoint.accept().await }
        }));
        // The endpoint ends only when its driver is gone, with the runtime or with the socket.
        Poll::Ready(incoming.ok_or_else(|| io::Error::other("the QUIC endpoint has ended")))
    }
}

impl Listener for QuicListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        for _ in 0..RETRIES {
            let incoming = ready!(self.poll_incoming(cx))?;
            let most = self.server.settings.get().handshakes;
            let source = self.server.proxies.get().source(incoming.remote_address().ip());
            let is_validated = incoming.remote_address_validated();
            // A client that must prove its address does not count as a new connection.
            let is_unproved = !is_validated && self.handshakes.are_many(source, most);
            if is_unproved || !self.rates.take(now(), source) {
                if is_validated {
                    tracing::debug!("a source begins too many connections");
                    incoming.ignore();
                } else {
                    tracing::debug!("a new client has to prove its address");
                    // The call fails only for a client that returns after a Retry, and such a
                    // client is validated.
                    let _ = incoming.retry();
                }
                continue;
            }
            return Poll::Ready(Ok(Box::new(Accepted {
                incoming,
                server: self.server.clone(),
                ids: self.ids.clone(),
                port: self.local.port(),
                turn: self.handshakes.begin(source),
                past: self.past.clone(),
            })));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn transport(&self) -> Transport {
        crate::QUIC
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        // The endpoint stays for its connections, and would keep new clients waiting.
        self.endpoint.set_server_config(None);
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

/// The id of a connection in the record of connections.
fn peer_id(id: quinn::ConnectionId) -> Option<PeerId> {
    id.as_ref().try_into().ok().map(PeerId)
}

/// Counts the handshakes in progress of a listener, in total and per source.
#[derive(Debug)]
struct Handshakes {
    all: Rc<Cell<usize>>,
    of_sources: Arc<Shares>,
}

impl Default for Handshakes {
    fn default() -> Self {
        // The table only counts: the bound decides which clients must prove their address, and
        // refuses none.
        Self { all: Rc::default(), of_sources: Shares::new(u32::MAX) }
    }
}

impl Handshakes {
    fn under_way(&self) -> usize {
        self.all.get()
    }

    /// Whether a new client of this source must prove its address, where `most` handshakes are
    /// allowed without.
    fn are_many(&self, source: Option<IpAddr>, most: usize) -> bool {
        let held = source.map_or(0, |source| self.of_sources.held(source));
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        self.under_way() >= most || held >= (most / SOURCE_PART).max(1)
    }

    fn begin(&self, source: Option<IpAddr>) -> CountedHandshake {
        self.all.set(self.all.get() + 1);
        let share = self.of_sources.take(source);
        CountedHandshake { all: Rc::clone(&self.all), _share: share }
    }
}

/// One counted handshake.
#[derive(Debug)]
struct CountedHandshake {
    all: Rc<Cell<usize>>,
    _share: Option<Share>,
}

impl Drop for CountedHandshake {
    fn drop(&mut self) {
        self.all.set(self.all.get().saturating_sub(1));
    }
}

/// The time of tokio, which tests may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The configuration of a connection with `peer`, the record of the TLS error of its handshake, and
/// the secrets that tie early data to it.
fn config(
    server: &QuicServer,
    peer: SocketAddr,
    past: &PastPaths,
) -> Result<(ServerConfig, Fault, Arc<EarlySecrets>), rustls::Error> {
    let crypto = Server::new(server.tls.get(), server.tickets.get())?;
    let (fault, secrets) = (crypto.fault(), crypto.secrets());
    let settings = QuicSettings::clone(&server.settings.get()).on_route_to(peer);
    let mut config = ServerConfig::new(Arc::new(crypto), server.keys.token_key());
    config
        .transport_config(settings.transport(Side::Server, peer, past))
        .migration(true)
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES_ALL);
    Ok((config, fault, secrets))
}

struct Accepted {
    incoming: quinn::Incoming,
    server: QuicServer,
    ids: SteeringIds,
    port: u16,
    turn: CountedHandshake,
    past: PastPaths,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accepted({})", canonical(self.incoming.remote_address()))
    }
}

/// A handshake in progress.
struct Shaking {
    hold: Hold,
    secrets: Arc<EarlySecrets>,
    done: LocalFuture<'static, Result<Peer, CarrierError>>,
    noted: Option<Noted>,
}

impl Accepted {
    async fn begin(self) -> Result<Shaking, CarrierError> {
        let Self { incoming, server, ids, port, turn, past } = self;
        // Each connection has a configuration of its own, made from the latest settings.
        let (config, fault, secrets) = config(&server, incoming.remote_address(), &past)
            .map_err(|error| explain(&error, Side::Server, false))?;
        let refused = move |error| error::handshake(&error, Side::Server, fault.take().as_ref());
        let connecting = incoming.accept_with(Arc::new(config)).map_err(&refused)?;
        // The call above generated this id.
        let id = ids.last();
        let (connection, done) = match connecting.into_0rtt() {
            Ok((connection, done)) => (connection, Some(done)),
            // For a server `into_0rtt` always succeeds.
            Err(connecting) => (connecting.await.map_err(&refused)?, None),
        };
        let noted = server.peers.zip(id.and_then(peer_id)).map(|(peers, id)| {
            let known = RecordedPeer { id, peer: connection.remote_address(), port };
            Noted::new(peers, known)
        });
        let hold = Hold::new(connection.clone());
        let done = Box::pin(async move {
            if let Some(done) = done {
                done.await;
            }
            drop(turn);
            match connection.close_reason() {
                Some(error) => Err(refused(error)),
                None => carrier::peer(&connection, Side::Server),
            }
        });
        Ok(Shaking { hold, secrets, done, noted })
    }
}

impl Incoming for Accepted {
    fn remote(&self) -> SocketAddr {
        canonical(self.incoming.remote_address())
    }

    fn source(&self) -> Option<IpAddr> {
        self.server.proxies.get().source(self.incoming.remote_address().ip())
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let Shaking { hold, done, noted, .. } = self.begin().await?;
            carrier::accepted(hold, done.await?, noted).await
        })
    }

    fn handshake_early(self: Box<Self>) -> LocalFuture<'static, AcceptResult> {
        Box::pin(async move {
            let Shaking { hold, secrets, mut done, noted } = self.begin().await?;
            let early = tokio::select! {
                biased;
                peer = &mut done => {
                    return Ok((carrier::accepted(hold, peer?, noted).await?, None));
                }
                early = secrets.settled() => early,
            };
            let Some(binding) = early else {
                return Ok((carrier::accepted(hold, done.await?, noted).await?, None));
            };
            let peer = carrier::unknown(&hold.connection);
            let carrier = carrier::accepted(hold, peer, noted).await?;
            Ok((carrier, Some(Early { binding, done })))
        })
    }
}
