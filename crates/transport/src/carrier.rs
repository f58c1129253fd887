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

/// A way to connect, as the crate that implements it names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transport {
    name: &'static str,
    stays: bool,
}

impl Transport {
    /// A transport whose URLs have this scheme.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, stays: false }
    }

    /// The same, but its connections are driven by the worker that accepted them, whoever uses
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

    /// Whether a connection stays with the worker that accepted it: a link that begins on it had
    /// best live there.
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
    /// The address that this end sees.
    pub address: SocketAddr,
    /// The transport of the carrier.
    pub transport: Transport,
    /// The TCP connection below the carrier; `None` without TCP.
    pub connection: Option<Connection>,
    /// Statistics of the connection, where the transport keeps them instead of the kernel.
    pub watch: Option<Arc<dyn Watch>>,
    /// Keying material of the TLS session (RFC 5705, RFC 8446 section 7.5, label
    /// [`EXPORTER_LABEL`], no context). It binds the greeting to this connection. `None` without
    /// TLS, and where a proxy may end TLS.
    pub exporter: Option<[u8; 32]>,
    /// The name in the verified client certificate, on a server that asks for a certificate: the
    /// first DNS name of the SAN, else the CN.
    pub certificate_name: Option<String>,
    /// The cipher that protects the connection; `None` without TLS. Where a proxy may end TLS, the
    /// cipher between this end and the proxy.
    pub cipher: Option<Cipher>,
}

/// How the bytes of a TLS session are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cipher {
    /// The cipher suite, as IANA names it: `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// The library that computes the suite in this process: `aws-lc` or `ring`.
    pub backend: &'static str,
}

/// The two addresses of a TCP connection in the kernel, which are the key to its statistics. Behind
/// a proxy the far end is the proxy, not the client of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The address on this machine.
    pub local: SocketAddr,
    /// The address of the far end.
    pub remote: SocketAddr,
}

/// Gives the statistics of a connection. Any thread may ask.
pub trait Watch: fmt::Debug + Send + Sync {
    /// The statistics at this moment.
    fn stats(&self) -> ConnectionStats;
}

/// Statistics of a connection that the transport drives instead of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Packets sent since the connection began.
    pub sent_packets: u64,
    /// Sent packets that were declared lost.
    pub lost_packets: u64,
    /// Bytes in the lost packets.
    pub lost_bytes: u64,
    /// Acknowledged bytes.
    pub acked_bytes: u64,
    /// Acknowledged bytes that were sent while the window limited the sender.
    pub limited_bytes: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Largest UDP payload that the path takes, bytes.
    pub mtu: u16,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Figures of the repair of losses; `None` on a transport without forward error correction.
    pub repair: Option<Repair>,
}

/// How a transport with forward error correction repairs losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Sent packets whose content had been sent before.
    pub retransmitted_packets: u64,
    /// Sent packets with parity.
    pub parity_packets: u64,
    /// Packets that did not arrive and that this end rebuilt from parity.
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
    /// The first byte pipe, on most transports the only one. Dropping it closes the connection.
    pub lane: Box<dyn Lane>,
    /// Opens lanes of single streams, on a transport that has such lanes.
    pub lanes: Option<Box<dyn Lanes>>,
    /// Sends and receives datagrams, on a transport that has datagrams.
    pub datagrams: Option<Box<dyn Datagrams>>,
}

impl Carrier {
    /// A connection that is one byte pipe, without further lanes and without datagrams.
    #[must_use]
    pub fn single(peer: Peer, lane: Box<dyn Lane>) -> Self {
        Self { peer, lane, lanes: None, datagrams: None }
    }
}

/// Waits for connections. Accept and handshake are separate steps: [`Listener::poll_accept`] never
/// waits for a peer, so a silent peer delays no other peer.
pub trait Listener: fmt::Debug {
    /// The next connection. Cancel-safe. An error concerns the listener (for example no descriptor
    /// is left), not a peer. The caller waits a moment after an error and continues.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>>;

    /// The address of the listener, with the real port.
    fn local_addr(&self) -> SocketAddr;

    /// The transport of the carriers.
    fn transport(&self) -> Transport;
}

/// An accepted connection before the handshake.
pub trait Incoming: fmt::Debug {
    /// The address of the far end.
    fn remote(&self) -> SocketAddr;

    /// The source that bounds per source count the connection for. `None`: a reverse proxy, whose
    /// connections are of many clients.
    fn source(&self) -> Option<IpAddr> {
        Some(self.remote().ip())
    }

    /// Does the handshake. The caller provides the task and the deadline. Dropping the future
    /// closes the connection. The handshake reads a bounded number of bytes.
    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>>;

    /// As [`Incoming::handshake`], but may be ready before the end of the handshake, where the
    /// client may have sent early data.
    fn handshake_early(self: Box<Self>) -> LocalFuture<'static, AcceptResult> {
        let handshake = self.handshake();
        Box::pin(async { Ok((handshake.await?, None)) })
    }
}

/// How long a dial is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The limit of the whole: name resolution, connect and handshake together.
    pub whole: Duration,
    /// After this time without an answer a second dial starts beside the first dial. The loss that
    /// hit the first dial may be over, and a handshake is retransmitted at growing intervals (RFC
    /// 6298, section 5.5). `None`: a dial sends again often enough by itself.
    pub second: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { whole: Duration::from_secs(10), second: Some(Duration::from_secs(3)) }
    }
}

/// Dials a path to a peer, whatever the path consists of: the addresses of a host, each of which a
/// [`Dialer`] dials, or means of the transport that know no address.
pub trait PathDialer: fmt::Debug {
    /// Connects and does the handshake. Sends `say` as early data where the transport supports
    /// early data. The caller sets the deadline. Dropping the future closes the connection.
    fn dial(&self, say: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled>;

    /// How long the caller waits for a dial.
    fn patience(&self) -> Patience {
        Patience::default()
    }

    /// Ready when the path asks for an attempt at once, because something has changed that decides
    /// whether a dial succeeds: the network, or what the far end offers. The one that keeps the
    /// carriers of a link then does not wait for the end of its pause. A path whose dials depend on
    /// nothing but the network never asks.
    fn asks(&self) -> LocalFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Dials addresses of a host. The caller resolves names for each attempt.
pub trait Dialer: fmt::Debug {
    /// Connects and does the handshake. The caller sets the deadline. Dropping the future closes
    /// the connection.
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>>;

    /// As [`Dialer::dial`], but sends early data before the end of the handshake, where the
    /// transport supports it and the server has allowed it.
    fn dial_early(&self, address: SocketAddr, _say: EarlyDataFn) -> LocalFuture<'static, Dialled> {
        let dial = self.dial(address);
        Box::pin(async { Ok((dial.await?, None)) })
    }

    /// The transport of the carriers.
    fn transport(&self) -> Transport;
}
