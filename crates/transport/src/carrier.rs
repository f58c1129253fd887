//! A carrier: one live connection over a transport, and the traits that make carriers.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::{AcceptResult, CarrierError, Datagrams, Dialled, EarlyDataFn, Lane, Lanes};

/// A boxed future that stays on its thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A way to connect, named by the crate that implements it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transport {
    name: &'static str,
    stays: bool,
}

impl Transport {
    /// Makes a transport whose URLs have this scheme.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, stays: false }
    }

    /// The same transport, with connections that are always driven by the worker that accepted
    /// them.
    #[must_use]
    pub const fn staying(self) -> Self {
        Self { stays: true, ..self }
    }

    /// The scheme in URLs, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether a connection stays with the worker that accepted it, so that a new link on it should
    /// be on the same worker.
    #[must_use]
    pub const fn stays(self) -> bool {
        self.stays
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The far end of a carrier, as known after the handshake.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address of the peer after the handshake, as seen by this end. A peer of a transport over
    /// UDP may move later: [`Peer::current_address`].
    pub address: SocketAddr,
    /// The transport of the carrier.
    pub transport: Transport,
    /// The TCP connection below the carrier; `None` without TCP.
    pub connection: Option<Connection>,
    /// Statistics of the connection, if the transport keeps them instead of the kernel.
    pub watch: Option<Arc<dyn Watch>>,
    /// Keying material of the TLS session (RFC 5705, RFC 8446 section 7.5, label
    /// [`EXPORTER_LABEL`], no context). It binds the greeting to this connection. `None` without
    /// TLS, or if a proxy may terminate TLS.
    pub exporter: Option<[u8; 32]>,
    /// The name in the verified client certificate, on a server that requests a certificate: the
    /// first DNS name of the SAN, otherwise the CN.
    pub certificate_name: Option<String>,
    /// The cipher that protects the connection; `None` without TLS. If a proxy may terminate TLS,
    /// the cipher between this end and the proxy.
    pub cipher: Option<Cipher>,
    /// The other server whose stream carries the carrier, by name. `None`: the carrier has a
    /// connection of its own.
    pub via: Option<Arc<str>>,
}

impl Peer {
    /// The present address of the peer, as seen by this end.
    #[must_use]
    pub fn current_address(&self) -> SocketAddr {
        self.watch.as_ref().and_then(|watch| watch.address()).unwrap_or(self.address)
    }

    /// The peer with its present address.
    #[must_use]
    pub fn current(&self) -> Self {
        Self { address: self.current_address(), ..self.clone() }
    }
}

/// The cipher of a TLS session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cipher {
    /// The IANA name of the cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// The library that implements the suite in this process: `aws-lc` or `ring`.
    pub backend: &'static str,
}

/// The two addresses of a TCP connection in the kernel, by which its statistics are queried. Behind
/// a proxy the far end is the proxy, not the client of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The address on this machine.
    pub local: SocketAddr,
    /// The address of the far end.
    pub remote: SocketAddr,
}

/// Returns the statistics and the peer's address of a connection, on any thread.
pub trait Watch: fmt::Debug + Send + Sync {
    /// The current statistics.
    fn stats(&self) -> ConnectionStats;

    /// The present address of the peer, which changes when the peer moves to another network or
    /// its NAT box chooses another port. `None`: the connection has ended.
    fn address(&self) -> Option<SocketAddr>;
}

/// Statistics of a connection that is driven by the transport instead of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Packets sent since the connection began.
    pub sent_packets: u64,
    /// Packets received since the connection began.
    pub received_packets: u64,
    /// Sent packets that were declared lost.
    pub lost_packets: u64,
    /// Bytes in the lost packets.
    pub lost_bytes: u64,
    /// Acknowledged bytes.
    pub acked_bytes: u64,
    /// Acknowledged bytes that were sent while the congestion window limited the sender.
    pub limited_bytes: u64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Largest UDP payload that the path supports, in bytes.
    pub mtu: u16,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Statistics of loss repair; `None` on a transport without forward error correction.
    pub repair: Option<Repair>,
}

/// Statistics of loss repair by forward error correction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Sent packets with retransmitted content.
    pub retransmitted_packets: u64,
    /// Sent packets with parity.
    pub parity_packets: u64,
    /// Lost packets that this end recovered from parity.
    pub recovered_packets: u64,
}

/// Label of the TLS exporter that binds a greeting to its connection.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-tunnel-greeting";

/// ALPN protocol name of carriers.
pub const ALPN: &[u8] = b"tunnel/1";

/// One live connection after the handshake and before the greeting.
#[derive(Debug)]
pub struct Carrier {
    /// The far end.
    pub peer: Peer,
    /// The first lane, on most transports the only one. Dropping it closes the connection.
    pub lane: Box<dyn Lane>,
    /// Opens lanes of single streams, on a transport that has such lanes.
    pub lanes: Option<Box<dyn Lanes>>,
    /// Sends and receives datagrams, on a transport that has datagrams.
    pub datagrams: Option<Box<dyn Datagrams>>,
}

impl Carrier {
    /// Makes a carrier with a single lane and without datagrams.
    #[must_use]
    pub fn single(peer: Peer, lane: Box<dyn Lane>) -> Self {
        Self { peer, lane, lanes: None, datagrams: None }
    }
}

/// Accepts connections. Accept and handshake are separate steps: [`Listener::poll_accept`] never
/// waits for a peer, so a silent peer delays no other peer.
pub trait Listener: fmt::Debug {
    /// Accepts the next connection. Cancel-safe. An error concerns the listener (for example,
    /// descriptors are exhausted), not a peer. After an error the caller waits briefly and
    /// continues.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>>;

    /// The address of the listener, with the actual port.
    fn local_addr(&self) -> SocketAddr;

    /// The transport of the carriers.
    fn transport(&self) -> Transport;
}

/// An accepted connection before the handshake.
pub trait Incoming: fmt::Debug {
    /// The address of the far end.
    fn remote(&self) -> SocketAddr;

    /// The source for which per-source limits count the connection. `None`: a reverse proxy, whose
    /// connections come from many clients.
    fn source(&self) -> Option<IpAddr> {
        Some(self.remote().ip())
    }

    /// Performs the handshake. The caller provides the task and the deadline. Dropping the future
    /// closes the connection. The handshake reads a bounded number of bytes.
    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>>;

    /// As [`Incoming::handshake`], but may be ready before the end of the handshake, if the client
    /// may have sent early data.
    fn handshake_early(self: Box<Self>) -> LocalFuture<'static, AcceptResult> {
        let handshake = self.handshake();
        Box::pin(async { Ok((handshake.await?, None)) })
    }
}

/// The time-outs of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The time-out of name resolution, connect and handshake together.
    pub whole: Duration,
    /// After this time without an answer, a second dial starts in parallel with the first. The loss
    /// that hit the first dial may be over, and a handshake is retransmitted at growing intervals
    /// (RFC 6298, section 5.5). `None`: a dial retransmits often enough.
    pub second: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { whole: Duration::from_secs(10), second: Some(Duration::from_secs(3)) }
    }
}

/// Dials a path to a peer of any kind: the addresses of a host, each dialled by a [`Dialer`], or a
/// transport without addresses.
pub trait PathDialer: fmt::Debug {
    /// Connects and performs the handshake. Sends `say` as early data if the transport supports
    /// early data. The caller sets the deadline. Dropping the future closes the connection.
    fn dial(&self, say: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled>;

    /// How long the caller waits for a dial.
    fn patience(&self) -> Patience {
        Patience::default()
    }

    /// Ready when the path requests an immediate attempt, because a condition for the success of a
    /// dial has changed: the network, or an offer of the far end. The supervisor of the link then
    /// does not wait for the end of its pause. A path whose dials depend only on the network never
    /// requests an attempt.
    fn asks(&self) -> LocalFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Dials addresses of a host. The caller resolves names for each attempt.
pub trait Dialer: fmt::Debug {
    /// Connects and performs the handshake. The caller sets the deadline. Dropping the future
    /// closes the connection.
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>>;

    /// As [`Dialer::dial`], but sends early data before the end of the handshake, if the transport
    /// supports it and the server has allowed it.
    fn dial_early(&self, address: SocketAddr, _say: EarlyDataFn) -> LocalFuture<'static, Dialled> {
        let dial = self.dial(address);
        Box::pin(async { Ok((dial.await?, None)) })
    }

    /// Performs the handshake inside `lane`, which leads to the far end already. The caller sets
    /// the deadline. Dropping the future closes the lane.
    ///
    /// The default fails: the transport is not an ordered byte pipe.
    fn dial_inside(
        &self,
        _lane: Box<dyn Lane>,
    ) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let text = format!("{}:// does not run inside a stream", self.transport());
        Box::pin(async { Err(CarrierError::Config(text)) })
    }

    /// The transport of the carriers.
    fn transport(&self) -> Transport;
}
