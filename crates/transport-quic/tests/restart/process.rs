//! A server "process": a thread with a runtime of its own that can die without closing its
//! connections.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::udp::{SteeringSlot, udp_group};
use quinn::{ClientConfig, Connection, ConnectionId, Endpoint, EndpointConfig, TransportConfig};
use rustls::time_provider::DefaultTimeProvider;
use tls::{self, Identity, Trust};
use tokio::sync::oneshot;
use transport_quic::{Keys, ROTATION, SteeringIds, Tickets, client_crypto, server_crypto};

pub(crate) const ALPN: &[&[u8]] = &[b"tunnel/1"];

/// Long enough for any machine, and shorter than every time-out of quinn.
pub(crate) const SOON: Duration = Duration::from_secs(3);

/// The parameters of a server.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) keys: Keys,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) trusted: Vec<rustls::pki_types::CertificateDer<'static>>,
    pub(crate) workers: usize,
    pub(crate) streams: u32,
}

impl Setup {
    /// The setup of a server with one worker and a self-signed certificate.
    pub(crate) fn new(folder: &Path) -> Self {
        let identity = identity(folder);
        Self {
            keys: Keys::of(folder).unwrap(),
            tls: tls::server_config(&identity, None, ALPN).unwrap(),
            trusted: Vec::new(),
            workers: 1,
            streams: 100,
        }
    }
}

pub(crate) fn identity(folder: &Path) -> Identity {
    tls::self_signed(folder, &["localhost".into()]).unwrap()
}

/// The TLS of a client that trusts the server whose identity is in `folder`.
pub(crate) fn client_tls(folder: &Path, own: Option<&Identity>) -> Arc<rustls::ClientConfig> {
    let trust = Trust::Pins(vec![identity(folder).pin()]);
    tls::client_config(&trust, own, ALPN).unwrap()
}

pub(crate) fn client(tls: &rustls::ClientConfig) -> Endpoint {
    let mut endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    endpoint.set_default_client_config(ClientConfig::new(client_crypto(tls).unwrap()));
    endpoint
}

/// A connection that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) id: ConnectionId,
    pub(crate) worker: usize,
}

pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    pub(crate) accepted: mpsc::Receiver<Accepted>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Process {
    pub(crate) fn start(setup: &Setup, address: SocketAddr) -> Self {
        let group = udp_group(address, setup.workers).unwrap();
        let address = group[0].local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (tell, accepted) = mpsc::channel();
        let setup = setup.clone();
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let time = Arc::new(DefaultTimeProvider);
                let tickets = Tickets::new(&setup.keys, &setup.trusted, ROTATION, time);
                let crypto = server_crypto(&setup.tls, &Arc::new(tickets)).unwrap();
                for (worker, socket) in group.into_iter().enumerate() {
                    let ids = SteeringIds::new(SteeringSlot::first(
                        worker.try_into().unwrap(),
                        setup.workers,
                    ));
                    let mut config = EndpointConfig::new(setup.keys.reset_key());
                    let made = ids.clone();
                    config.cid_generator(move || Box::new(made.clone()));
                    let mut server =
                        quinn::ServerConfig::new(Arc::clone(&crypto), setup.keys.token_key());
                    let mut transport = TransportConfig::default();
                    transport.max_concurrent_bidi_streams(setup.streams.into());
                    server.transport_config(Arc::new(transport));
                    let runtime = Arc::new(quinn::TokioRuntime);
                    let endpoint = Endpoint::new(config, Some(server), socket, runtime).unwrap();
                    tokio::spawn(serve(endpoint, ids, worker, tell.clone()));
                }
                drop(stopped.await);
            });
        });
        Self { address, accepted, stop, thread }
    }

    /// Ends the server as `kill -9` does: no connection is closed.
    pub(crate) fn kill(self) -> SocketAddr {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
        self.address
    }
}

async fn serve(endpoint: Endpoint, ids: SteeringIds, worker: usize, tell: mpsc::Sender<Accepted>) {
    while let Some(incoming) = endpoint.accept().await {
        let Ok(connecting) = incoming.accept() else { continue };
        let id = ids.last().unwrap();
        let _ = tell.send(Accepted { id, worker });
        tokio::spawn(async move {
            let Ok(connection) = connecting.await else { return };
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let Ok(said) = receive.read_to_end(1000).await else { return };
                drop(send.write_all(&said).await);
                drop(send.finish());
            }
        });
    }
}

/// Sends bytes over `connection` and receives them again.
pub(crate) async fn echo(connection: &Connection) {
    let exchange = async {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(b"hello").await.unwrap();
        send.finish().unwrap();
        assert_eq!(receive.read_to_end(1000).await.unwrap(), b"hello");
    };
    tokio::time::timeout(SOON, exchange).await.expect("an answer in time");
}
