//! TLS on loopback with a certificate made on the spot.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::listen_group;
use tempfile::TempDir;
use testkit::certs::Authority;
use tls::{ClientConfig, ServerConfig};
use tls::{Identity, Trust, client_config, server_config, server_name};
use transport::{ALPN, Listener};
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient};
use transport_ws::{Request, WsDialer, WsListener};

pub(crate) struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    _folder: TempDir,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let leaf = Authority::new("tests").unwrap().server(&["tunnel.example"]).unwrap();
        let (certificate, key) = leaf.save(folder.path(), "server").unwrap();
        let identity = Identity::load(&certificate, &key).unwrap();
        let server = server_config(&identity, None, &[ALPN]).unwrap();
        let trust = Trust::Pins(vec![identity.pin()]);
        let client = client_config(&trust, None, &[ALPN]).unwrap();
        Self { server, client, _folder: folder }
    }

    pub(crate) fn listen(&self) -> (Box<dyn Listener>, u16) {
        listen(Some(Arc::clone(&self.server)))
    }

    pub(crate) fn dialer(&self) -> Rc<TcpDialer> {
        let name = server_name("tunnel.example").unwrap();
        Rc::new(TcpDialer::new(Some(TlsClient { config: Arc::clone(&self.client), name })))
    }

    /// The same without TLS.
    pub(crate) fn listen_bare() -> (Box<dyn Listener>, u16) {
        listen(None)
    }
}

/// One of `ws://`, and a dialer to it.
pub(crate) fn web_socket() -> (Box<dyn Listener>, WsDialer, u16) {
    let still = Duration::from_secs(25);
    let (inner, port) = bind(None);
    let listener = WsListener::new(
        inner.speaking(Speech::Http),
        None,
        transport_ws::Terms::without_proxies(still),
    );
    let request = Request::new("/", "127.0.0.1", &[]).unwrap();
    let inner = TcpDialer::new(None).speaking(Speech::Http);
    (Box::new(listener), WsDialer::new(inner, request, still), port)
}

fn listen(tls: Option<Arc<ServerConfig>>) -> (Box<dyn Listener>, u16) {
    let (listener, port) = bind(tls);
    (Box::new(listener), port)
}

fn bind(tls: Option<Arc<ServerConfig>>) -> (TcpListener, u16) {
    let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
    let listener = TcpListener::new(socket, tls.map(Into::into)).unwrap();
    let port = listener.local_addr().port();
    (listener, port)
}
