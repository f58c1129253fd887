//! QUIC over a direct path between two clients behind NAT.
//!
//! A [`Trial`] is one attempt of one end. It has a separate socket, on which the checks of
//! [`punch::Attempt`] and QUIC share the port. The owner carries the signals of both ends over the
//! link that the server relays:
//!
//! ```text
//!  visitor                                   publisher
//!  Trial::visitor  ── signals ──────────────> Trial::publisher, at the first signal
//!                 <── signals of both ──────>
//!  dial(): a pair, then QUIC as its client    accept(): QUIC from an address that has proved
//!                                             that it knows the password of the checks
//! ```
//!
//! Before that proof no datagram reaches QUIC. The greeting authenticates the peer; the certificate
//! of this path does not: [`tls::peer_client_config`].
//!
//! A trial that is dropped ends, with its socket. A carrier lives on without its trial, and the
//! checks continue beside it: a path that does not answer for 30 s is closed (RFC 7675).

mod hosts;
mod inquiry;
mod router;
mod shared;
mod sources;
mod trial;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use net::udp::Buffers;
use punch::{Kinds, Pace, Why};
use rustls::time_provider::DefaultTimeProvider;
use tls::{PEER_NAME, peer_client_config, peer_server_config, server_name};
use transport::{ALPN, CarrierError, Transport};

use crate::past::PastPaths;
use crate::session::Clients;
use crate::{Keys, QuicSettings, ROTATION, Tickets, TlsClient};

pub use inquiry::{Inquired, inquire};
pub use router::{Ended, MappingReport, Router};
pub use shared::DirectPath;
pub use trial::Trial;

/// A direct path: QUIC without a server between two clients.
pub const DIRECT: Transport = Transport::new("direct").staying();

/// The settings of direct paths.
#[derive(Clone, Debug)]
pub struct PunchSettings {
    /// The settings of QUIC, as for `quic://`.
    pub quic: QuicSettings,
    /// The buffers of each socket.
    pub buffers: Buffers,
    /// The kinds of candidates that are sent to peers.
    pub kinds: Kinds,
    /// The ports of the sockets; `None`: any port.
    pub ports: Option<RangeInclusive<u16>>,
    /// Whether loopback addresses are candidates: for tests on one machine.
    pub loopback: bool,
}

/// Makes the trials of a client. Clones share the measurements of their connections about paths.
#[derive(Clone)]
pub struct Puncher {
    settings: PunchSettings,
    client: TlsClient,
    clients: Clients,
    server: Arc<rustls::ServerConfig>,
    keys: Keys,
    tickets: Arc<Tickets>,
    past: PastPaths,
}

/// The initial data of a trial, common to both ends.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// The number of the trial. The visitor chooses it, increasing from trial to trial; the
    /// publisher takes it from the first signal ([`punch::Signal`]).
    pub round: u32,
    /// The addresses of STUN servers, the server's own first.
    pub stun: Vec<SocketAddr>,
    /// Whether the owner requests a port mapping from the router ([`Trial::map_port`]).
    pub is_mapping: bool,
    /// The pacing of checks at addresses that have not answered, which all trials with one peer
    /// share.
    pub pace: Arc<Mutex<Pace>>,
}

/// The reason why a trial yielded no carrier.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no path.
    #[error("{0}")]
    NoPath(Why),
    /// A pair was found, but QUIC failed over it.
    #[error("a direct path was found, but QUIC fails on it: {0}")]
    Quic(CarrierError),
    /// This machine has no socket for it.
    #[error("no socket for a direct path: {0}")]
    Socket(#[from] io::Error),
}

impl Failure {
    /// The name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoPath(why) => why.name(),
            Self::Quic(_) => "quic",
            Self::Socket(_) => "socket",
        }
    }
}

impl From<Failure> for CarrierError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Quic(error) => error,
            Failure::Socket(error) => Self::Io(error),
            Failure::NoPath(why) => {
                Self::Io(io::Error::new(io::ErrorKind::HostUnreachable, why.to_string()))
            }
        }
    }
}

impl Puncher {
    /// Makes a factory of trials.
    ///
    /// # Errors
    /// The system provides no random numbers, or TLS lacks a cipher suite of QUIC.
    pub fn new(settings: PunchSettings) -> Result<Self, CarrierError> {
        let config = |error: &dyn fmt::Display| CarrierError::Config(error.to_string());
        let keys = Keys::fleeting().map_err(|error| config(&error))?;
        let time = Arc::new(DefaultTimeProvider);
        let tickets = Arc::new(Tickets::new(&keys, &[], ROTATION, time));
        let server = peer_server_config(&[ALPN]).map_err(|error| config(&error))?;
        let name = server_name(PEER_NAME).map_err(|error| config(&error))?;
        let tls = peer_client_config(&[ALPN]).map_err(|error| config(&error))?;
        let clients = Clients::new(&tls).map_err(|error| config(&error))?;
        let (client, past) = (TlsClient { config: tls, name }, PastPaths::default());
        Ok(Self { settings, client, clients, server, keys, tickets, past })
    }

    /// The same with other settings, for new trials.
    #[must_use]
    pub fn with(&self, settings: PunchSettings) -> Self {
        Self { settings, ..self.clone() }
    }
}

impl fmt::Debug for Puncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Puncher").field("settings", &self.settings).finish_non_exhaustive()
    }
}
