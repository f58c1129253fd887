//! One attempt at a direct path, from its socket to its carrier.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::SocketOptions;
use net::socket::canonical;
use punch::{Attempt, Nat, Pair, Role, Settings, SignalError};
use quinn::{ClientConfig, ConnectError, Endpoint, ServerConfig};
use tls::explain;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, timeout};
use transport::{Carrier, CarrierError, Incoming, LocalFuture, Side};

use super::hosts;
use super::shared::{InUse, Shared};
use super::{Begin, DIRECT, DirectPath, Failure, Puncher};
use crate::lane::Hold;
use crate::session::Server;
use crate::socket::Receiving;
use crate::{carrier, endpoint, error};

/// The timeout of the QUIC handshake over a working pair: three lost packets.
const HANDSHAKE: Duration = Duration::from_secs(8);

/// One attempt of one end. Dropping it ends the attempt, but not the carrier that it has made.
#[derive(Debug)]
pub struct Trial {
    puncher: Puncher,
    endpoint: Endpoint,
    shared: Arc<Shared>,
    receiving: Receiving,
    timer: Arc<Timer>,
    in_use: InUse,
}

/// The timer task of an attempt.
#[derive(Debug)]
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Puncher {
    /// Starts the attempt of a visitor, in the runtime of this thread.
    ///
    /// # Errors
    /// This machine has no socket or no random numbers for it.
    pub fn visitor(&self, begin: &Begin) -> io::Result<Trial> {
        self.begin(Role::Visitor, begin)
    }

    /// Starts the attempt of a publisher, after the first signal of the visitor has arrived. The
    /// signal must be passed to [`Trial::handle_signal`] as well.
    ///
    /// # Errors
    /// This machine has no socket or no random numbers for it.
    pub fn publisher(&self, begin: &Begin) -> io::Result<Trial> {
        self.begin(Role::Publisher, begin)
    }

    fn begin(&self, role: Role, begin: &Begin) -> io::Result<Trial> {
        let settings = &self.settings;
        let socket = hosts::bind(settings)?;
        let options = SocketOptions::with_buffers(settings.buffers);
        options.at_bind(&socket, Some(&SocketOptions::UNSET))?;
        let hosts = hosts::hosts(&socket, settings, &begin.stun)?;
        let mut failed = None;
        let mut random = |bytes: &mut [u8]| failed = getrandom::fill(bytes).err().or(failed);
        let bound = socket.local_addr()?;
        let own = Settings {
            kinds: settings.kinds,
            ipv4: true,
            ipv6: bound.is_ipv6(),
            loopback: settings.loopback,
        };
        let addresses = (&hosts[..], &begin.stun[..], begin.is_mapping);
        let now = Instant::now().into_std();
        let attempt = Attempt::new(now, (role, begin.round), own, addresses, &mut random);
        if let Some(error) = failed {
            // The passwords would not be random.
            return Err(io::Error::other(error));
        }
        let shared = Shared::new(attempt, own, &begin.pace);
        let receiving = Receiving::within(settings.buffers);
        let mut quic = settings.quic.clone();
        quic.mtu = quic.mtu.min(receiving.largest());
        let server = match role {
            Role::Visitor => None,
            Role::Publisher => Some(self.server(bound).map_err(io::Error::other)?.0),
        };
        let beside = Arc::clone(&shared) as _;
        let (endpoint, socket) = endpoint::punched(socket, server, &quic, receiving, beside)?;
        shared.sends_through(&socket);
        let driven = Arc::clone(&shared);
        let timer = spawn_local(async move { driven.drive().await }).abort_handle();
        let (puncher, timer) = (self.clone(), Arc::new(Timer(timer)));
        let in_use = InUse::default();
        Ok(Trial { puncher, endpoint, shared, receiving, timer, in_use })
    }

    /// The configuration of a connection with the visitor at `peer`.
    fn server(
        &self,
        peer: SocketAddr,
    ) -> Result<(ServerConfig, crate::session::Fault), rustls::Error> {
        let crypto = Server::new(Arc::clone(&self.server), Arc::clone(&self.tickets))?;
        let fault = crypto.fault();
        let mut config = ServerConfig::new(Arc::new(crypto), self.keys.token_key());
        let settings = self.settings.quic.clone().on_route_to(peer);
        config.transport_config(settings.transport(Side::Server, peer, &self.past)).migration(true);
        Ok((config, fault))
    }
}

impl Trial {
    /// Handles a signal of the peer.
    ///
    /// # Errors
    /// The signal cannot be decoded; the attempt continues without it.
    pub fn handle_signal(&self, signal: &[u8]) -> Result<(), SignalError> {
        self.shared.with(|attempt, now| attempt.handle_signal(now, signal))
    }

    /// The next signal to the peer. Cancel-safe; pending while there is none.
    pub async fn signal(&self) -> Vec<u8> {
        self.shared.signal().await
    }

    /// Completes when neither this trial nor its carrier uses the socket any more.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.in_use.ended()
    }

    /// The port of the socket.
    ///
    /// # Errors
    /// The system no longer knows the socket.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.endpoint.local_addr()?.port())
    }

    /// The known network properties of this end.
    #[must_use]
    pub fn nat(&self) -> Nat {
        self.shared.attempt().nat()
    }

    /// The path that this trial makes, for its figures and for a port of the router.
    #[must_use]
    pub fn path(&self) -> DirectPath {
        DirectPath(Arc::clone(&self.shared))
    }

    /// The visitor's end: waits for a pair, and connects over it. The attempt bounds the time.
    ///
    /// # Errors
    /// No pair was found, or QUIC failed over it.
    pub async fn dial(&self) -> Result<Carrier, Failure> {
        let pair = self.found().await?;
        self.connect(pair.remote.1).await.map_err(Failure::Quic)
    }

    async fn found(&self) -> Result<Pair, Failure> {
        let mut outcome = self.shared.outcome();
        let found = outcome.wait_for(Option::is_some).await.ok().and_then(|found| *found);
        match found {
            Some(found) => found.map_err(Failure::NoPath),
            None => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }

    async fn connect(&self, remote: SocketAddr) -> Result<Carrier, CarrierError> {
        let Puncher { client, clients, past, settings, .. } = &self.puncher;
        let mut quic = settings.quic.clone().on_route_to(remote);
        quic.mtu = quic.mtu.min(self.receiving.largest());
        let crypto = clients.one(client.name.clone());
        let fault = crypto.fault();
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(quic.transport(Side::Client, remote, past));
        let connecting = self
            .endpoint
            .connect_with(config, remote, &client.name.to_str())
            .map_err(|error: ConnectError| CarrierError::Config(error.to_string()))?;
        let connection = timeout(HANDSHAKE, connecting)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
            .map_err(|error| error::handshake(&error, Side::Client, fault.take().as_ref()))?;
        let hold = Hold::alone(connection.clone(), self.receiving.buffers(quic.mtu()));
        spawn_local(Arc::clone(&self.shared).keep(connection, self.in_use.clone()));
        carrier::dialled(hold, false).await.map(direct)
    }

    /// The publisher's end: waits for the visitor, whose address has proved that it knows the
    /// password of the checks. The attempt bounds the time.
    ///
    /// # Errors
    /// No pair was found in time.
    pub async fn accept(&self) -> Result<Box<dyn Incoming>, Failure> {
        let incoming = tokio::select! {
            biased;
            incoming = self.endpoint.accept() => incoming,
            failed = self.found() => {
                // A publisher learns of a pair only from the visitor.
                failed?;
                None
            }
        };
        let incoming =
            incoming.ok_or_else(|| io::Error::other("the endpoint of a direct path has ended"))?;
        let remote = incoming.remote_address();
        self.shared.with(|attempt, now| attempt.adopt(now, remote));
        // One path has one connection.
        self.endpoint.set_server_config(None);
        Ok(Box::new(Arrived {
            incoming,
            puncher: self.puncher.clone(),
            shared: Arc::clone(&self.shared),
            buffers: self.receiving.buffers(self.puncher.settings.quic.mtu()),
            timer: Arc::clone(&self.timer),
            in_use: self.in_use.clone(),
        }))
    }
}

/// The connection of the visitor, before its handshake.
struct Arrived {
    incoming: quinn::Incoming,
    puncher: Puncher,
    shared: Arc<Shared>,
    buffers: usize,
    timer: Arc<Timer>,
    in_use: InUse,
}

impl Incoming for Arrived {
    fn remote(&self) -> SocketAddr {
        canonical(self.incoming.remote_address())
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { incoming, puncher, shared, buffers, timer, in_use } = *self;
        Box::pin(async move {
            let (config, fault) = puncher
                .server(incoming.remote_address())
                .map_err(|error| explain(&error, Side::Server, false))?;
            let failed = |error| error::handshake(&error, Side::Server, fault.take().as_ref());
            let connecting = incoming.accept_with(Arc::new(config)).map_err(&failed)?;
            let connection = connecting.await.map_err(&failed)?;
            let hold = Hold::alone(connection.clone(), buffers);
            spawn_local(shared.keep(connection.clone(), in_use));
            drop(timer);
            let peer = carrier::peer(&connection, Side::Server)?;
            carrier::accepted(hold, peer, None).await.map(direct)
        })
    }
}

impl fmt::Debug for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arrived({})", self.remote())
    }
}

/// The carrier, renamed to the transport of direct paths.
fn direct(mut carrier: Carrier) -> Carrier {
    carrier.peer.transport = DIRECT;
    carrier
}
