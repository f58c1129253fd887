//! A connection between one end of ours and one of tokio-tungstenite.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use net::listen_group;
use tls::{
    ClientConfig, ServerConfig, Trust, client_config, self_signed, server_config, server_name,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_async_with_config, client_async_with_config};
use transport::{Dialer as _, Lane, Listener as _};
use transport_tcp::{Speech, TcpDialer, TlsClient};
use transport_ws::{Request, Terms, WsDialer, WsListener};

/// The deadline of a step, far above the duration of the slowest step.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A time after which no test pings.
const NEVER: Duration = Duration::from_secs(3600);

const NAME: &str = "tunnel.example";

/// What the WebSocket of the library runs over: a TCP socket, or TLS over one.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Debug + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Debug + Unpin + Send> Socket for T {}

/// The library's end.
pub(crate) type Theirs = WebSocketStream<Box<dyn Socket>>;

/// Which end is the library's, and what is below both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) theirs: Role,
    pub(crate) is_tls: bool,
    /// Our end's time until a ping.
    pub(crate) ping_after: Duration,
    pub(crate) config: Option<WebSocketConfig>,
}

/// Both roles over `ws://`.
pub(crate) fn roles() -> impl Iterator<Item = Setup> {
    let setup = |theirs| Setup { theirs, is_tls: false, ping_after: NEVER, config: None };
    [Role::Client, Role::Server].into_iter().map(setup)
}

/// Both roles over `ws://` and over `wss://`.
pub(crate) fn roles_and_transports() -> impl Iterator<Item = Setup> {
    roles().flat_map(|setup| [setup, Setup { is_tls: true, ..setup }])
}

impl Setup {
    /// Connects the two ends.
    pub(crate) async fn connect(self) -> (Box<dyn Lane>, Theirs) {
        let tls = self.is_tls.then(certified);
        let connecting = async {
            match self.theirs {
                Role::Client => self.their_client(tls).await,
                Role::Server => self.their_server(tls).await,
            }
        };
        within(connecting).await
    }

    async fn their_client(self, tls: Option<Configs>) -> (Box<dyn Lane>, Theirs) {
        let (server, client) = tls.unzip();
        let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
        let inner = transport_tcp::TcpListener::new(socket, server.map(Into::into)).unwrap();
        let inner = inner.speaking(Speech::Http);
        let terms = Terms::without_proxies(self.ping_after);
        let mut listener = WsListener::new(inner, Some("/tunnel"), terms);
        let address = listener.local_addr();
        let accept = async {
            let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            incoming.handshake().await.unwrap().lane
        };
        let connect = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let socket: Box<dyn Socket> = match client {
                Some(config) => {
                    let name = server_name(NAME).unwrap();
                    Box::new(TlsConnector::from(config).connect(name, stream).await.unwrap())
                }
                None => Box::new(stream),
            };
            let address = format!("ws{}://{NAME}/tunnel", if self.is_tls { "s" } else { "" });
            client_async_with_config(address, socket, self.config).await.unwrap().0
        };
        tokio::join!(accept, connect)
    }

    async fn their_server(self, tls: Option<Configs>) -> (Box<dyn Lane>, Theirs) {
        let (server, client) = tls.unzip();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client.map(|config| TlsClient { config, name: server_name(NAME).unwrap() });
        let request = Request::new("/tunnel", NAME, &[]).unwrap();
        let inner = TcpDialer::new(client).speaking(Speech::Http);
        let dialer = WsDialer::new(inner, request, self.ping_after);
        let dial = async { dialer.dial(listener.local_addr().unwrap()).await.unwrap().lane };
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            let socket: Box<dyn Socket> = match server {
                Some(config) => Box::new(TlsAcceptor::from(config).accept(stream).await.unwrap()),
                None => Box::new(stream),
            };
            accept_async_with_config(socket, self.config).await.unwrap()
        };
        tokio::join!(dial, accept)
    }
}

type Configs = (Arc<ServerConfig>, Arc<ClientConfig>);

fn certified() -> Configs {
    let folder = tempfile::tempdir().unwrap();
    let identity = self_signed(folder.path(), &[]).unwrap();
    let alpn = [Speech::Http.alpn()];
    let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &alpn).unwrap();
    (server_config(&identity, None, &alpn).unwrap(), client)
}

/// Runs a step with the deadline.
pub(crate) async fn within<T>(step: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, step).await.unwrap()
}

/// Our end, which a reader and a writer of one test share.
#[derive(Debug)]
pub(crate) struct Ours(RefCell<Box<dyn Lane>>);

impl Ours {
    pub(crate) fn new(lane: Box<dyn Lane>) -> Self {
        Self(RefCell::new(lane))
    }

    /// Reads once into a buffer of `room` bytes.
    pub(crate) async fn read(&self, room: usize) -> Result<BytesMut, String> {
        let mut buf = BytesMut::with_capacity(room);
        let read = poll_fn(|cx| self.0.borrow_mut().poll_read(cx, &mut buf)).await;
        read.map(|_| buf).map_err(|error| error.to_string())
    }

    /// Reads to the end of the peer's direction and shows `each` what arrived. The result is the
    /// end: a clean end, or the text of the error.
    pub(crate) async fn read_to_end(&self, mut each: impl FnMut(&[u8])) -> Result<(), String> {
        loop {
            let bytes = self.read(64 << 10).await?;
            if bytes.is_empty() {
                return Ok(());
            }
            each(&bytes);
        }
    }

    /// Reads `length` bytes.
    pub(crate) async fn read_exactly(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let read = self.read(length - bytes.len()).await.unwrap();
            assert!(!read.is_empty(), "an early end");
            bytes.extend_from_slice(&read);
        }
        bytes
    }

    /// Writes `frames` and flushes.
    pub(crate) async fn write(&self, frames: impl IntoIterator<Item = Bytes>) {
        let mut frames: VecDeque<Bytes> = frames.into_iter().collect();
        while !frames.is_empty() {
            poll_fn(|cx| self.0.borrow_mut().poll_write(cx, &mut frames)).await.unwrap();
        }
        poll_fn(|cx| self.0.borrow_mut().poll_flush(cx)).await.unwrap();
    }

    pub(crate) async fn close(&self) {
        poll_fn(|cx| self.0.borrow_mut().poll_close(cx)).await.unwrap();
    }

    pub(crate) fn held(&self) -> usize {
        self.0.borrow().held()
    }
}

/// The code and the reason of the Close that the library receives. Other messages before it are
/// ignored.
pub(crate) async fn their_close(
    theirs: &mut (impl futures_util::Stream<Item = Result<Message, Error>> + Unpin),
) -> Option<(u16, String)> {
    loop {
        if let Message::Close(close) = theirs.next().await.unwrap().unwrap() {
            return close.map(|close| (close.code.into(), close.reason.to_string()));
        }
    }
}

/// Bytes that differ at each position of a mask and of a block.
pub(crate) fn pattern(length: usize) -> Bytes {
    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect()
}
