//! The dialer of `kcp://` carriers.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use kcp::own::Session;
use kcp::own::wire::ConnectionId;
use net::SocketOptions;
use net::udp::{self, Buffers, refused};
use rustls::pki_types::ServerName;
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Side, Transport};

use crate::admit::Random;
use crate::driver::{Driver, now};
use crate::error::other_version;
use crate::lane::Hold;
use crate::settings::KcpSettings;
use crate::shared::{Hub, Shared};
use crate::socket::{BATCH, JOINED, Origin, Socket};
use crate::state::State;
use crate::wire::{Cookie, Packet, VERSION};
use crate::{secrets, shake};

/// The first timeout for a Cookie, after which the Hello is repeated; it doubles up to the longest.
const ASK: Duration = Duration::from_millis(250);
const ASK_MOST: Duration = Duration::from_secs(2);

/// The TLS settings of a dialer, with the name of the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// The configuration, from [`tls::client_config`], with the ALPN of carriers.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the certificate must have, which is also the SNI. [`tls::server_name`] makes
    /// it from the host of the URL or from `sni`.
    pub name: ServerName<'static>,
}

/// A dialer of `kcp://`.
#[derive(Clone, Debug)]
pub struct KcpDialer {
    tls: TlsClient,
    settings: KcpSettings,
    /// The options of the sockets, with their buffers.
    options: SocketOptions,
    /// The wanted worker of the server.
    steer: Option<u8>,
}

impl KcpDialer {
    /// Makes a dialer. Each connection has a socket of its own with buffers of the given size, as
    /// far as the kernel grants it. The socket is not bound to an address: when the route changes,
    /// packets leave from another address and the connection goes on.
    #[must_use]
    pub fn new(tls: &TlsClient, settings: KcpSettings, buffers: Buffers) -> Self {
        let options = SocketOptions::with_buffers(buffers);
        Self { tls: tls.clone(), settings, options, steer: None }
    }

    /// Sets the byte that steers the connections of one link to one worker: the byte modulo the
    /// number of workers. A client with several links gives them consecutive bytes, so that the
    /// links are spread over the workers.
    #[must_use]
    pub fn steered(self, byte: u8) -> Self {
        Self { steer: Some(byte), ..self }
    }

    /// Sets the options of the sockets, but for their buffers.
    #[must_use]
    pub fn obeying(self, options: SocketOptions) -> Self {
        let buffers = self.options.buffers;
        Self { options: SocketOptions { buffers, ..options }, ..self }
    }
}

impl Dialer for KcpDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(dial(self.clone(), address))
    }

    fn transport(&self) -> Transport {
        crate::KCP
    }
}

async fn dial(dialer: KcpDialer, address: SocketAddr) -> Result<Carrier, CarrierError> {
    let KcpDialer { tls, settings, options, steer } = dialer;
    let socket = udp::dialled(address, &options)?;
    socket.set_nonblocking(true)?;
    let begun = async {
        let mut random = Random::default();
        let mut drawn = || random.bytes().ok_or_else(no_random);
        let mut wanted = drawn()?;
        if let Some(byte) = steer {
            wanted[0] = byte;
        }
        let client = ConnectionId(drawn()?);
        let (server, cookie) = ask(&socket, address, ConnectionId(wanted), client).await?;
        let hold = begin(&socket, address, (client, server), cookie)?;
        shake::connect(hold, &tls.config, tls.name.clone(), &settings).await
    };
    tokio::select! {
        done = begun => done,
        error = refused(address, &options) => Err(error.into()),
    }
}

fn no_random() -> io::Error {
    io::Error::other("the system gives no random numbers")
}

/// Requests a cookie until one arrives.
async fn ask(
    socket: &UdpSocket,
    address: SocketAddr,
    wanted: ConnectionId,
    own: ConnectionId,
) -> Result<(ConnectionId, Cookie), CarrierError> {
    let socket = tokio::net::UdpSocket::from_std(socket.try_clone()?)?;
    let mut hello = Vec::new();
    Packet::Hello { wanted, version: VERSION, client: own }.encode(&mut hello);
    let mut wait = ASK;
    let mut buffer = [0; 64];
    loop {
        // A route may be missing for a moment; the caller has the deadline.
        let sent = socket.send_to(&hello, address).await;
        let answered = tokio::time::timeout(wait, async {
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await?;
                let packet = Packet::decode(buffer.get(..length).unwrap_or_default());
                if let Some(Packet::Cookie { client, version, server, cookie }) = packet
                    && from == address
                    && client == own
                {
                    return Ok::<_, io::Error>((version, server, cookie));
                }
            }
        });
        match answered.await {
            Ok(Ok((VERSION, server, cookie))) => return Ok((server, cookie)),
            Ok(Ok((version, ..))) => return Err(other_version(version)),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                sent?;
                wait = (wait * 2).min(ASK_MOST);
            }
        }
    }
}

/// Starts the connection and its driver.
fn begin(
    socket: &UdpSocket,
    address: SocketAddr,
    ids: (ConnectionId, ConnectionId),
    cookie: Cookie,
) -> Result<Hold, CarrierError> {
    let (client, server) = ids;
    let keys = secrets::bootstrap(Side::Client, server, client);
    let keys = keys.ok_or_else(|| CarrierError::Tls("no keys for the handshake".into()))?;
    let bootstrap = Session::new(KcpSettings::bootstrap(ids), keys, now());
    let mut opening = Vec::new();
    Packet::Opening { server, client, cookie }.encode(&mut opening);
    let remote = Origin { peer: address, local: None };
    let state = State::new(Side::Client, bootstrap, ids, remote, opening);
    let hub = Arc::<Hub>::default();
    let shared = Shared::new(Arc::clone(&hub), state);
    let driver = Driver::client(Socket::new(socket.try_clone()?)?, hub, Arc::clone(&shared));
    // The driver ends when its connection does.
    tokio::task::spawn_local(driver);
    Ok(Hold::new(shared, BATCH * JOINED))
}
