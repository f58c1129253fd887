//! Certificates in a folder, and the two ends of a handshake.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use net::listen_group;
use rustls::{ClientConfig, ServerConfig};
use tempfile::TempDir;
use testkit::certs::Leaf;
use tls::{Identity, Trust, client_config, self_signed, server_name};
use transport::{ALPN, Carrier, CarrierError, Dialer, Listener};
use transport_tcp::{TcpDialer, TcpListener, TlsClient};

/// A folder for the files of one test.
pub(crate) struct Material(TempDir);

impl Material {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn identity(&self, leaf: &Leaf) -> Identity {
        let (certificate, key) = leaf.save(self.folder(), "leaf").unwrap();
        Identity::load(&certificate, &key).unwrap()
    }

    /// Loads an identity even if its dates are wrong: the files of a self-signed folder are loaded
    /// without a check of dates.
    pub(crate) fn flawed(&self, leaf: &Leaf) -> Identity {
        std::fs::write(self.folder().join("cert.pem"), &leaf.certificate).unwrap();
        std::fs::write(self.folder().join("key.pem"), &leaf.key).unwrap();
        self_signed(self.folder(), &[]).unwrap()
    }

    /// Makes a self-signed identity in a folder of its own.
    pub(crate) fn own(&self, name: &str) -> Identity {
        let folder = self.folder().join(name);
        std::fs::create_dir(&folder).unwrap();
        self_signed(&folder, &["a.example".into()]).unwrap()
    }

    /// The configuration of a client that trusts none of the servers in these tests.
    pub(crate) fn any_client(&self) -> Arc<ClientConfig> {
        let pin = self.own("nobody").pin();
        client_config(&Trust::Pins(vec![pin]), None, &[ALPN]).unwrap()
    }
}

/// The outcome of a handshake on both sides.
pub(crate) struct Ends {
    pub(crate) dialled: Result<Carrier, CarrierError>,
    pub(crate) accepted: Result<Carrier, CarrierError>,
}

/// Runs a handshake over loopback.
pub(crate) async fn ends(server: Arc<ServerConfig>, client: Arc<ClientConfig>, name: &str) -> Ends {
    let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
    let mut listener = TcpListener::new(socket, Some(server.into())).unwrap();
    let address = listener.local_addr();
    let accept = async {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        incoming.handshake().await
    };
    let (dialled, accepted) = tokio::join!(dial(address, client, name), accept);
    Ends { dialled, accepted }
}

pub(crate) async fn dial(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    name: &str,
) -> Result<Carrier, CarrierError> {
    let tls = TlsClient { config, name: server_name(name).unwrap() };
    let within = std::time::Duration::from_secs(20);
    tokio::time::timeout(within, TcpDialer::new(Some(tls)).dial(address)).await.unwrap()
}
