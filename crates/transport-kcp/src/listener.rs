//! The listener of `kcp://` carriers, and the state that all listeners of a server process share.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::task::{Context, Poll};

use files::peers::{Noted, PeerId, Peers, RecordedPeer};
use kcp::own::wire::ConnectionId;
use net::Current;
use net::socket::canonical;
use net::source::Proxies;
use net::udp::SteeringSlot;
use transport::{Carrier, CarrierError, Incoming, Listener, LocalFuture, Transport};

use crate::admit::Admission;
use crate::driver::{Driver, now};
use crate::error::ABANDONED;
use crate::keys::Keys;
use crate::lane::Hold;
use crate::settings::KcpSettings;
use crate::shake;
use crate::shared::{Hub, Shared};
use crate::socket::Socket;

/// The shared state of the listeners. Clones share one state.
#[derive(Clone)]
pub struct KcpServer {
    tls: Current<rustls::ServerConfig>,
    settings: Current<KcpSettings>,
    keys: Keys,
    peers: Option<Peers>,
    proxies: Current<Proxies>,
}

impl KcpServer {
    /// Makes the state. The owner of `tls` may replace its value. Without `peers` no connection is
    /// recorded.
    #[must_use]
    pub fn new(
        tls: Current<rustls::ServerConfig>,
        settings: KcpSettings,
        keys: Keys,
        peers: Option<Peers>,
    ) -> Self {
        let proxies = Proxies::default().into();
        Self { tls, settings: settings.into(), keys, peers, proxies }
    }

    /// Sets the reverse proxies, whose connections carry many clients.
    #[must_use]
    pub fn behind(self, proxies: Current<Proxies>) -> Self {
        Self { proxies, ..self }
    }

    /// Sends a Reset to each of `known` that used this socket's port, so that the clients of the
    /// previous process return at once; returns the number of Resets. A starting server calls this
    /// function before it uses the socket. A Reset that the system does not accept at once is
    /// skipped; that client learns of the restart from its next packet.
    ///
    /// # Errors
    /// The socket has no address.
    pub fn call_back(&self, socket: &UdpSocket, known: &[RecordedPeer]) -> io::Result<usize> {
        let here = socket.local_addr()?;
        let (mut sent, mut reset) = (0, Vec::new());
        for one in known {
            let Some(peer) = one.reachable(here) else { continue };
            reset.clear();
            self.keys.reset(ConnectionId(one.id.0), &mut reset);
            sent += usize::from(socket.send_to(&reset, peer).is_ok());
        }
        Ok(sent)
    }

    /// Replaces the settings of new connections.
    pub fn renew(&self, settings: KcpSettings) {
        self.settings.replace(Arc::new(settings));
    }
}

impl fmt::Debug for KcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpServer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A listener of `kcp://`.
pub struct KcpListener {
    hub: Arc<Hub>,
    local: SocketAddr,
    server: KcpServer,
}

impl KcpListener {
    /// Makes a listener from a bound UDP socket in the runtime of this thread. `steering_slot` is
    /// the position of the socket in its group (see [`net::udp::carrier_group`]).
    ///
    /// # Errors
    /// The system refuses an option that the socket needs.
    pub fn new(
        socket: UdpSocket,
        steering_slot: SteeringSlot,
        server: &KcpServer,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let hub = Arc::<Hub>::default();
        let admission = Admission::new(server.keys.clone(), server.proxies.clone(), steering_slot);
        let driver = Driver::server(Socket::new(socket)?, Arc::clone(&hub), admission);
        // The driver outlives the listener as long as it has connections, and ends by itself.
        tokio::task::spawn_local(driver);
        Ok(Self { hub, local, server: server.clone() })
    }
}

impl Listener for KcpListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let mut orders = self.hub.lock();
        if let Some((shared, _queued)) = orders.accepted.pop_front() {
            drop(orders);
            let state = shared.lock();
            let (remote, id) = (state.remote().peer, PeerId(state.ids().0.0));
            drop(state);
            let mut hold = Hold::new(shared, 0);
            hold.noted = self.server.peers.clone().map(|peers| {
                Noted::new(peers, RecordedPeer { id, peer: remote, port: self.local.port() })
            });
            return Poll::Ready(Ok(Box::new(Accepted {
                hold,
                remote,
                server: self.server.clone(),
            })));
        }
        if orders.is_over {
            return Poll::Ready(Err(io::Error::other("the UDP socket of kcp:// has failed")));
        }
        orders.acceptor = Some(cx.waker().clone());
        Poll::Pending
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn transport(&self) -> Transport {
        crate::KCP
    }
}

impl Drop for KcpListener {
    fn drop(&mut self) {
        let mut orders = self.hub.lock();
        orders.is_closed = true;
        let waiting = std::mem::take(&mut orders.accepted);
        drop(orders);
        for (shared, _queued) in waiting {
            close(&shared);
        }
        self.hub.wake();
    }
}

fn close(shared: &Shared) {
    let mut state = shared.lock();
    state.close(now(), ABANDONED);
    shared.touch(state);
}

impl fmt::Debug for KcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpListener").field("local", &self.local).finish_non_exhaustive()
    }
}

/// A connection before its handshake.
struct Accepted {
    hold: Hold,
    remote: SocketAddr,
    server: KcpServer,
}

impl Incoming for Accepted {
    fn remote(&self) -> SocketAddr {
        canonical(self.remote)
    }

    fn source(&self) -> Option<IpAddr> {
        self.server.proxies.get().source(self.remote.ip())
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let Self { hold, server, .. } = *self;
            let (tls, settings) = (server.tls.get(), server.settings.get());
            shake::accept(hold, tls, &settings, |id| server.keys.reset_token(id)).await
        })
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accepted({})", canonical(self.remote))
    }
}
