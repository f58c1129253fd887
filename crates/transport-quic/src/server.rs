//! The state that all QUIC listeners of a server process share, on all its workers.

use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;

use net::Current;
use net::source::Proxies;
use rustls::time_provider::DefaultTimeProvider;
use tls::{MaterialError, load_certificates};

use crate::{Keys, Peers, QuicSettings, ROTATION, RecordedPeer, StunServer, Tickets, call_back};

/// The shared state of the listeners. Clones share one state.
#[derive(Clone)]
pub struct QuicServer {
    pub(crate) tls: Current<rustls::ServerConfig>,
    pub(crate) settings: Current<QuicSettings>,
    pub(crate) tickets: Current<Tickets>,
    pub(crate) keys: Keys,
    pub(crate) peers: Option<Peers>,
    pub(crate) proxies: Current<Proxies>,
    pub(crate) stun: Option<Arc<StunServer>>,
}

impl QuicServer {
    /// Makes the state. The owner of `tls` may replace its value and must then call
    /// [`QuicServer::renewal`], too. `client_ca` is the file of the authorities of clients, if
    /// clients need certificates. Without `peers` no connection is recorded.
    pub fn new(
        tls: Current<rustls::ServerConfig>,
        client_ca: Option<&Path>,
        settings: QuicSettings,
        keys: Keys,
        peers: Option<Peers>,
    ) -> Result<Self, MaterialError> {
        let tickets = tickets(&keys, client_ca)?.into();
        let proxies = Proxies::default().into();
        let settings = settings.into();
        Ok(Self { tls, settings, tickets, keys, peers, proxies, stun: None })
    }

    /// Sets the reverse proxies, whose connections carry many clients.
    #[must_use]
    pub fn behind(self, proxies: Current<Proxies>) -> Self {
        Self { proxies, ..self }
    }

    /// Answers STUN at the ports of the listeners.
    #[must_use]
    pub fn with_stun(self, stun: Arc<StunServer>) -> Self {
        Self { stun: Some(stun), ..self }
    }

    /// Reads the settings of new connections. Returns a function that applies them.
    pub fn renewal(
        &self,
        client_ca: Option<&Path>,
        settings: QuicSettings,
    ) -> Result<impl FnOnce() + use<>, MaterialError> {
        let (server, new) = (self.clone(), tickets(&self.keys, client_ca)?);
        Ok(move || {
            server.settings.replace(Arc::new(settings));
            // With equal trust the present tickets are kept, because they remember which of them
            // were used.
            if !server.tickets.get().trust_alike(&new) {
                server.tickets.replace(Arc::new(new));
            }
        })
    }

    /// Calls [`call_back`] with the keys of this server.
    pub fn call_back(&self, socket: &UdpSocket, known: &[RecordedPeer]) -> io::Result<usize> {
        call_back(socket, &self.keys, known)
    }
}

fn tickets(keys: &Keys, client_ca: Option<&Path>) -> Result<Tickets, MaterialError> {
    let trusted = client_ca.map(load_certificates).transpose()?.unwrap_or_default();
    Ok(Tickets::new(keys, &trusted, ROTATION, Arc::new(DefaultTimeProvider)))
}

impl fmt::Debug for QuicServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicServer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
