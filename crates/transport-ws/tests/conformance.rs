//! `ws://` and `wss://` pass the conformance suite of all transports.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use net::listen_group;
use testkit::conformance::{Fixture, check};
use tls::{
    ClientConfig, ServerConfig, Trust, client_config, self_signed, server_config, server_name,
};
use transport::{Dialer, Listener};
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient};
use transport_ws::{Request, Terms, WsDialer, WsListener};

#[derive(Debug)]
struct Ws {
    tls: Option<(Arc<ServerConfig>, Arc<ClientConfig>)>,
    ping_after: Duration,
}

impl Fixture for Ws {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
        let (server, client) = self.tls.clone().unzip();
        let inner =
            TcpListener::new(socket, server.map(Into::into)).unwrap().speaking(Speech::Http);
        let listener =
            WsListener::new(inner, Some("/tunnel"), Terms::without_proxies(self.ping_after));
        let client =
            client.map(|config| TlsClient { config, name: server_name("tunnel.example").unwrap() });
        let inner = TcpDialer::new(client).speaking(Speech::Http);
        let request = Request::new("/tunnel", "tunnel.example", &[]).unwrap();
        (Box::new(listener), Box::new(WsDialer::new(inner, request, self.ping_after)))
    }

    fn silent(&self, address: SocketAddr) -> Option<TcpStream> {
        Some(TcpStream::connect(address).unwrap())
    }

    fn shakes_hands(&self) -> bool {
        true
    }
}

#[test]
fn ws_conforms() {
    check(&Ws { tls: None, ping_after: Duration::from_secs(25) });
}

/// The lane sends pings between all other frames.
#[test]
fn ws_conforms_while_it_pings() {
    check(&Ws { tls: None, ping_after: Duration::from_millis(1) });
}

#[test]
fn wss_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let identity = self_signed(folder.path(), &[]).unwrap();
    let alpn = [Speech::Http.alpn()];
    let server = server_config(&identity, None, &alpn).unwrap();
    let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &alpn).unwrap();
    check(&Ws { tls: Some((server, client)), ping_after: Duration::from_secs(25) });
}
