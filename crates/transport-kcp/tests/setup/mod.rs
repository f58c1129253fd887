//! Certificates in a folder, listeners and dialers with these certificates, and connected pairs.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::future::{Future, poll_fn};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use net::Current;
use net::udp::{WANTED, raise};
use rustls::{ClientConfig, ServerConfig};
use tempfile::TempDir;
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{ALPN, Carrier, CarrierError, Dialer, Listener};
use transport_kcp::{KcpDialer, KcpListener, KcpServer, KcpSettings, Keys, TlsClient};

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
    pub(crate) settings: KcpSettings,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with(KcpSettings::default())
    }

    pub(crate) fn with(settings: KcpSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = self_signed(folder.path(), &[]).unwrap();
        let server = server_config(&identity, None, &[ALPN]).unwrap();
        let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &[ALPN]).unwrap();
        Self { _folder: folder, server, client, settings }
    }

    pub(crate) fn listener(&self) -> KcpListener {
        listener(Arc::clone(&self.server), &self.settings)
    }

    pub(crate) fn dialer(&self) -> KcpDialer {
        dialer(Arc::clone(&self.client), "tunnel.example", &self.settings)
    }

    /// A connected pair whose ends have greeted, over the address `via(address of the listener)`.
    pub(crate) async fn pair(&self, via: impl FnOnce(SocketAddr) -> SocketAddr) -> Pair {
        let mut listener = self.listener();
        let address = via(listener.local_addr());
        let (dialled, accepted) = shake(&mut listener, &self.dialer(), address).await;
        let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
        dialled.lane.authenticated();
        accepted.lane.authenticated();
        Pair { dialled, accepted, _listener: listener }
    }
}

/// Both ends of a connection, and the listener.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) dialled: Carrier,
    pub(crate) accepted: Carrier,
    _listener: KcpListener,
}

/// A socket with the buffer sizes of a daemon.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    raise(&socket, WANTED).unwrap();
    socket
}

pub(crate) fn listener(config: Arc<ServerConfig>, settings: &KcpSettings) -> KcpListener {
    let keys = Keys::fleeting().unwrap();
    let server = KcpServer::new(Current::from(config), settings.clone(), keys, None);
    KcpListener::new(socket(), net::udp::SteeringSlot::ALONE, &server).unwrap()
}

pub(crate) fn dialer(config: Arc<ClientConfig>, name: &str, settings: &KcpSettings) -> KcpDialer {
    let tls = TlsClient { config, name: server_name(name).unwrap() };
    KcpDialer::new(&tls, settings.clone(), WANTED)
}

/// Runs the handshake; returns the outcome on both sides.
pub(crate) async fn shake(
    listener: &mut KcpListener,
    dialer: &KcpDialer,
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
