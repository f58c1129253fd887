//! A carrier: one live connection over a transport, and how it comes to be.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::{Begun, CarrierError, Datagrams, Dialled, Lane, Lanes, Say};

/// A future of one thread, boxed.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A way to connect. The name is the scheme of its URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// `tls://`: TLS 1.3 over TCP.
    Tls,
    /// `tcp://`: TCP without TLS.
    Tcp,
    /// `wss://`: WebSocket over TLS.
    Wss,
    /// `ws://`: WebSocket without TLS of ours; a reverse proxy may have it.
    Ws,
    /// `quic://`: QUIC with TLS 1.3 (RFC 9000, RFC 9001).
    Quic,
    /// In memory, for tests.
    Memory,
}

impl Transport {
    /// The scheme in URLs, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Wss => "wss",
            Self::Ws => "ws",
            Self::Quic => "quic",
            Self::Memory => "memory",
        }
    }

    /// Whether its connections are driven where they were accepted, whoever uses them: a link that
    /// begins on one had best live there.
    #[must_use]
    pub const fn stays(self) -> bool {
        matches!(self, Self::Quic)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known of the far end of a carrier once its handshake is done.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address as this end sees it.
    pub address: SocketAddr,
    /// Over what.
    pub transport: Transport,
    /// The TCP connection below; `None` where there is none.
    pub connection: Option<Connection>,
    /// How it fares, where the transport sees to that itself.
    pub watch: Option<Arc<dyn Watch>>,
    /// Keying material of the TLS session that carries us (RFC 5705, RFC 8446 section 7.5, label
    /// [`EXPORTER_LABEL`], no context): binds the greeting to this very connection. `None` where a
    /// proxy may end TLS in between or there is none.
    pub exporter: Option<[u8; 32]>,
    /// The name of the verified client certificate (first DNS name of its SAN, else its CN), on a
    /// server that asks for one.
    pub certificate_name: Option<String>,
}

/// The two ends of a TCP connection as the kernel has them, which can be asked by these how the
/// connection fares. Of a proxy's connection the far end is the proxy, whomever it speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The end on this machine.
    pub local: SocketAddr,
    /// The other one.
    pub remote: SocketAddr,
}

/// Tells how a connection fares. It may be asked from any thread.
pub trait Watch: fmt::Debug + Send + Sync {
    /// As it is now.
    fn fares(&self) -> Fares;
}

/// How a connection fares that its transport drives itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fares {
    /// Packets sent since it began.
    pub sent_packets: u64,
    /// Of those the ones that were lost, or seemed to be.
    pub lost_packets: u64,
    /// Bytes in them, which were sent again.
    pub lost_bytes: u64,
    /// Bytes that have arrived, as acknowledgements say.
    pub acked_bytes: u64,
    /// Of those, while there was more to send than the path took.
    pub limited_bytes: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Largest UDP payload that the path takes, bytes.
    pub mtu: u16,
    /// Smoothed round trip.
    pub round_trip: Duration,
}

/// Label of the TLS exporter that binds a greeting to its connection.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-tunnel-greeting";

/// ALPN protocol of carriers.
pub const ALPN: &[u8] = b"tunnel/1";

/// One live connection whose handshake is done and whose greeting is not.
#[derive(Debug)]
pub struct Carrier {
    /// Who is at the far end.
    pub peer: Peer,
    /// Its first byte pipe, on most transports the only one. Dropping it closes the connection.
    pub lane: Box<dyn Lane>,
    /// Lanes of single streams, where the transport has them.
    pub lanes: Option<Box<dyn Lanes>>,
    /// Datagrams, where the transport has them.
    pub datagrams: Option<Box<dyn Datagrams>>,
}

impl Carrier {
    /// A connection that is one byte pipe and nothing else.
    #[must_use]
    pub fn single(peer: Peer, lane: Box<dyn Lane>) -> Self {
        Self { peer, lane, lanes: None, datagrams: None }
    }
}

/// Waits for connections. Accepting and shaking hands are apart: [`Listener::poll_accept`] never
/// waits for a peer, so a silent one costs nobody but itself.
pub trait Listener: fmt::Debug {
    /// The next connection. Cancel-safe. An error is of the listener (out of descriptors), not of
    /// a peer; the caller waits a moment and goes on.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>>;

    /// Where it listens, port filled in.
    fn local_addr(&self) -> SocketAddr;

    /// Over what.
    fn transport(&self) -> Transport;
}

/// A connection that was accepted and has shaken no hand yet.
pub trait Incoming: fmt::Debug {
    /// The address of the far end.
    fn remote(&self) -> SocketAddr;

    /// Shakes hands in a task of the caller, who sets the deadline. Dropping the future closes the
    /// connection. Reads a bounded number of bytes whatever the peer sends.
    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>>;

    /// The same, but ready before the handshake is done where the client may have said something
    /// early.
    fn handshake_early(self: Box<Self>) -> LocalFuture<'static, Begun> {
        let handshake = self.handshake();
        Box::pin(async { Ok((handshake.await?, None)) })
    }
}

/// Dials one configured path. Names are resolved by the caller, anew for each attempt.
pub trait Dialer: fmt::Debug {
    /// Connects and shakes hands. The caller sets the deadline; dropping the future closes.
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>>;

    /// The same, but says something before the handshake is done, where the transport can and the
    /// server has allowed it.
    fn dial_early(&self, address: SocketAddr, _say: Say) -> LocalFuture<'static, Dialled> {
        let dial = self.dial(address);
        Box::pin(async { Ok((dial.await?, None)) })
    }

    /// Over what.
    fn transport(&self) -> Transport;
}
