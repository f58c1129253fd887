//! `tcp://` and `tls://` pass the conformance suite of all transports.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use net::listen_group;
use rustls::{ClientConfig, ServerConfig};
use testkit::conformance::{Fixture, check};
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{ALPN, Dialer, Listener};
use transport_tcp::{TcpDialer, TcpListener, TlsClient};

#[derive(Debug)]
struct Tcp(Option<(Arc<ServerConfig>, Arc<ClientConfig>)>);

impl Fixture for Tcp {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
        let (server, client) = self.0.clone().unzip();
        let listener = TcpListener::new(socket, server.map(Into::into)).unwrap();
        let client =
            client.map(|config| TlsClient { config, name: server_name("tunnel.example").unwrap() });
        (Box::new(listener), Box::new(TcpDialer::new(client)))
    }

    fn silent(&self, address: SocketAddr) -> Option<TcpStream> {
        // Plain TCP has no handshake, so no peer can be silent in it.
        self.0.as_ref().map(|_| TcpStream::connect(address).unwrap())
    }

    fn shakes_hands(&self) -> bool {
        self.0.is_some()
    }
}

#[test]
fn tcp_conforms() {
    check(&Tcp(None));
}

#[test]
fn tls_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let identity = self_signed(folder.path(), &[]).unwrap();
    let server = server_config(&identity, None, &[ALPN]).unwrap();
    let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &[ALPN]).unwrap();
    check(&Tcp(Some((server, client))));
}
