//! Certificates in a folder, listeners and dialers with these certificates, and connected pairs.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::future::{Future, poll_fn};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use net::Current;
use net::udp::{WANTED, raise};
use rustls::{ClientConfig, ServerConfig};
use tempfile::TempDir;
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{ALPN, Carrier, CarrierError, Dialer, Listener, RecvLane, SendLane};
use transport_quic::{Keys, QuicDialer, QuicListener, QuicServer, QuicSettings, TlsClient};

/// The deadline of a test, many times the time that it takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A server's identity, and the settings of clients that trust it.
#[derive(Debug)]
pub(crate) struct Setup {
    _folder: TempDir,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) settings: QuicSettings,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with(QuicSettings::default())
    }

    pub(crate) fn with(settings: QuicSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = self_signed(folder.path(), &[]).unwrap();
        let server = server_config(&identity, None, &[ALPN]).unwrap();
        let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &[ALPN]).unwrap();
        Self { _folder: folder, server, client, settings }
    }

    pub(crate) fn server(tls: Current<ServerConfig>, settings: &QuicSettings) -> QuicServer {
        let keys = Keys::fleeting().unwrap();
        QuicServer::new(tls, None, settings.clone(), keys, None).unwrap()
    }

    pub(crate) fn listener(&self) -> QuicListener {
        listener(Arc::clone(&self.server), &self.settings)
    }

    pub(crate) fn dialer(&self) -> QuicDialer {
        dialer(Arc::clone(&self.client), "tunnel.example", &self.settings)
    }

    /// A connected pair over the address `via(address of the listener)`.
    pub(crate) async fn pair(&self, via: impl FnOnce(SocketAddr) -> SocketAddr) -> Pair {
        let mut listener = self.listener();
        let address = via(listener.local_addr());
        let (dialled, accepted) = shake(&mut listener, &self.dialer(), address).await;
        Pair { dialled: dialled.unwrap(), accepted: accepted.unwrap(), _listener: listener }
    }
}

/// Both ends of a connection, and the listener, whose endpoint must live as long.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) dialled: Carrier,
    pub(crate) accepted: Carrier,
    _listener: QuicListener,
}

impl Pair {
    /// The pair after both ends have greeted.
    pub(crate) fn authenticated(mut self) -> Self {
        for carrier in [&mut self.dialled, &mut self.accepted] {
            carrier.lanes.as_mut().unwrap().authenticated(32 << 20);
        }
        self
    }
}

pub(crate) fn server(tls: Current<ServerConfig>, settings: &QuicSettings) -> QuicServer {
    let keys = Keys::fleeting().unwrap();
    QuicServer::new(tls, None, settings.clone(), keys, None).unwrap()
}

/// A socket with the buffer sizes of a daemon.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    raise(&socket, WANTED).unwrap();
    socket
}

pub(crate) fn listener(config: Arc<ServerConfig>, settings: &QuicSettings) -> QuicListener {
    QuicListener::new(
        socket(),
        net::udp::SteeringSlot::ALONE,
        &server(Current::from(config), settings),
    )
    .unwrap()
}

pub(crate) fn dialer(config: Arc<ClientConfig>, name: &str, settings: &QuicSettings) -> QuicDialer {
    let tls = TlsClient { config, name: server_name(name).unwrap() };
    QuicDialer::new(&tls, settings.clone(), WANTED).unwrap()
}

/// Runs the handshake; returns the outcome on both sides.
pub(crate) async fn shake(
    listener: &mut QuicListener,
    dialer: &QuicDialer,
    address: SocketAddr,
) -> (Result<Carrier, CarrierError>, Result<Carrier, CarrierError>) {
    let accept = async {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        incoming.handshake().await
    };
    tokio::join!(dialer.dial(address), accept)
}

/// Runs a test on the same kind of runtime as a worker's, within [`DEADLINE`].
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let within = async { tokio::time::timeout(DEADLINE, test).await };
    assert!(local.block_on(&runtime, within).is_ok(), "not done within {DEADLINE:?}");
}

/// The bytes of a stream at each offset, so that a lost, doubled or moved byte is detected.
pub(crate) fn pattern(seed: u64, from: u64, length: usize) -> Bytes {
    (from..from + length as u64).map(|at| testkit::conformance::pattern(seed, at)).collect()
}

pub(crate) async fn write_all(lane: &mut dyn SendLane, bytes: Bytes) -> std::io::Result<()> {
    let mut frames = std::collections::VecDeque::from([bytes]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    Ok(())
}

/// All bytes up to the end of the lane.
pub(crate) async fn read_all(lane: &mut dyn RecvLane) -> std::io::Result<BytesMut> {
    let mut all = BytesMut::new();
    loop {
        all.reserve(64 << 10);
        if poll_fn(|cx| lane.poll_read(cx, &mut all)).await? == 0 {
            return Ok(all);
        }
    }
}

/// The next `length` bytes.
pub(crate) async fn read_exact(
    lane: &mut dyn RecvLane,
    length: usize,
) -> std::io::Result<BytesMut> {
    let mut all = BytesMut::with_capacity(length);
    while all.len() < length {
        let mut buf = BytesMut::with_capacity(length - all.len()).split_off(0);
        assert!(poll_fn(|cx| lane.poll_read(cx, &mut buf)).await? > 0, "an end before its time");
        all.extend_from_slice(&buf);
    }
    Ok(all)
}
